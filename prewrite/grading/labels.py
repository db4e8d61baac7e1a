"""The one label that a reply in free text gives.

A reply is folded, every label in it is found and marked as given, rejected or in doubt (`negation`), and then it is
read in the order of what settles most: a box, bold at its end, a stated answer, the only label given, how it opens or
ends, what is left over.
"""

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any, TypeVar

from prewrite.grading.extract import ANSWER_IS, ANSWER_WORDS, BOLD_END, boxed_answers
from prewrite.grading.negation import DOUBT, GIVEN, JOINT, REJECTED, senses
from prewrite.grading.reply import answer_part

Label = TypeVar("Label", str, int)

_INVISIBLE = "[\\u00ad\\u034f\\u061c\\u115f\\u180e\\u200b-\\u200f\\u202a-\\u202e\\u2060-\\u2064\\ufe00-\\ufe0f\\ufeff]"
_FOLDS = (
    (re.compile(_INVISIBLE), ""),
    (re.compile("[\\u2014\\u2e3a\\u2e3b](?=[a-zA-Z])"), "- "),  # a break, but also in a label ("non—toxic")
    (re.compile("[\\u2010-\\u2015\\u2043\\u2212\\u2796\\u2e3a\\u2e3b\\ufe58\\ufe63\\uff0d]"), "-"),
    (re.compile(r"(?i)\bminus (?=\d)"), "-"),
    (re.compile("[\\u2018\\u2019\\u201b\\u2032\\u02b9\\u02bc\\u02c8\\u00b4`](?=[a-zA-Z])"), "'"),
    (re.compile(r"[*`\"“”„«»]|\b_+|_+\b"), ""),
)
"""Invisible characters, dashes, apostrophes, markup."""
_LETTERS = str.maketrans({"İ": "I", "ı": "i", "ß": "ss", "ẞ": "SS", "ς": "σ"})
"""Letters whose lower case is not one letter, or not that of their upper case."""
_UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff"
"""Scripts that put no blanks between words, or (Korean) hang particles on them."""
_LETTER = rf"[^\W{_UNSPACED}]"
_WORD_STARTS, _WORD_ENDS = rf"(?<!{_LETTER})(?<!{_LETTER}-)", rf"(?!'?{_LETTER}|-{_LETTER}|[\u0300-\u036f]|[.,]\d)"
_SEPARATORS = re.compile(r"\s+and\s+|[\s_/&+-]+|(?<=[a-z])(?=[A-Z])|(?<=[a-zA-Z])(?=\d)")
_SEPARATED = r"[\s_]*(?:[-/&+]|and(?=[\s_]))?[\s_]*"
_NUMBER = (
    r"(?<![\w.,])(?P<number>[+-]?\d{1,40}(?:\.\d{1,40})?)"  # Python reads no number of thousands of digits
    r"(?:(?: stars?| points?)?\s*\(?(?:/|out of|of)\s*(?P<scale>\d{1,40}(?:\.\d{1,40})?)(?!\d))?"
    r"(?:\s+(?:stars?|points?)\b)?(?![\w%]|[.,]\d|-[a-rt-z])"
)
_NUMERIC = re.compile(r"[+-]?\d+(?:\.\d+)?")
_LEAST_SCALE = 3

_FILLER = (
    r"[\s(\[{]*(?:(?:the|an?|options?|choice|letter|label|class|category|most|likely|probably|definitely|clearly|that|it|is|as|be"
    r"|now)[\s(\[{:]+)*"
)
_STATES = re.compile(
    rf"(?:(?:{ANSWER_WORDS}|主题|主題|类别|類別|标签|標籤|情感|分类|分類|label|sentiment|category|class|topic|option|choice|prediction|rating|score|verdict|classification"
    rf"|output|result|conclusion|decision|pick)\)?(?:{ANSWER_IS}|\s+(?:would be|must be|should be)|\s*->)"
    r"|(?:(?<![\w'])(?:i|we)(?:'d| would| will|'ll|'m| am|'re)?|(?:^|[.!\n]))\s*(?:pick|choos|select|go(?:ing)? with"
    r"|say|vot|answer|settl|opt|lean|decid|rat|classify|label|giv|scor|assign)(?:e|ing)?(?: (?:it"
    r"|this)(?: \w+)?)?(?: (?:for|on|towards?))?|must be|has to be|(?:belong|fall|fit)s? (?:in|to|into|under)|(?:^"
    r"|[.,;!?\n])\s*(?:so|thus|hence|therefore|(?:that |which )?leav(?:ing|es))\b[,:]?(?: it(?: is|'s))?"
    rf"|选择?|選){_FILLER}$"
)
_STATED_AFTER = re.compile(
    r"[)\]}]*\s+is\s+(?:clearly |obviously |definitely )?(?:(?:the|a|my)\s+)?(?:(?:only|best|most)\s+)*"
    r"(?:correct|right|valid|best|better|closest|answer|choice|(?:option|one|label|category) that (?:best|most|fits)"
    r"|(?<=most )(?:accurate|appropriate|suitable|fitting|likely|plausible))\b"
    r"|\s+(?:best (?:fi|ma|de)\w+s|(?:fit|matche|describe)s best|makes the most sense|wins)\b|(?:가|이)? 정답"
)
_STATEMENT_ENDS = re.compile(
    r"\s*[)\]}]*\s*(?:$|\n|[.:,;!?。(](?!\s*(?:or|and|but)\b)|-\s|\(?(?:because|since|as|for|given|due|car|porque"
    r"|weil|denn|perché|omdat|потому|так как)\b|입|이|です|だ|的)"
)
_AFTER_ARTICLE = re.compile(
    r"\s+(?!(?:is|was|because|since|as|and|or|seems|would|fits|makes|fails?|cannot|can|does|has|looks|contradicts)\b)[a-z]"
)
_DETERMINER = re.compile(
    r"(?i)(?:\b(?:is|'s|are|was|were|with|has|have|had|see|sees|find|finds|by|in|under|makes?|gives?)\s+no\s+[a-z]"
    r"|\bno (?:way|longer|one|doubt|reason|evidence|indication|mention|matter))"
)
_LEAD_IN = r"(?:[^\n.:]{0,40}(?::|\bis\b)\s*)?"
_OPENING = re.compile(r"\s*\W{0,3}" + _LEAD_IN + r"\W{0,3}")
_END_OF_STATEMENT = re.compile(r"\s*[).:,;\]\n]|\s*-\s")
_TAKEN_BACK = re.compile(
    r"(?i)\b(?:wait|actually|hold on|hmm|scratch that|correction|on (?:second|closer|further)|re-?(?:read|consider"
    r"|think|look)(?:ing)?|let me (?:re\w+|correct|fix)|take (?:that|it) back|i was wrong|my mistake|sorry)\b"
)
_CORRECTED = re.compile(
    r"(?i)(?:^|[.!?;,\n—–-])\s*(?:(?:but|no,?|oh,?) )?(?:wait|hold on|scratch that|correction|on (?:second thought"
    r"|reflection)|my mistake|i was wrong|let me (?:re\w+|correct))\b"
)
_SCALE_TOLD = re.compile(r"(?i)\bscale (?:of |from |running )*\d+ ?(?:to|-|through) ?\d+")
_NUMBER_WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
_RATING_IN_WORDS = re.compile(rf"(?i)\b({'|'.join(_NUMBER_WORDS)})(?= (?:stars?|points?|out of)\b)")
_NEXT_EXAMPLE = re.compile(r"(?i)\n\s*\n\W{0,4}(?:input|question|q|text|review|sentence|premise|passage)\b[^\n:]{0,9}:")
_LONGEST_BEFORE_NEXT_EXAMPLE = 40
_LEAST_EXPLANATION = 2
_LONGEST_LEAD_IN = 80


@dataclass(frozen=True)
class _Mention:
    """A label (None: a number on another scale) in a reply, how the words around it take it, and what they mean."""

    start: int
    end: int
    label: Any
    sense: str
    means: Any


def find_label(text: str | None, labels: Sequence[Label]) -> Label | None:
    """The one label that a reply gives, as `labels` spells it, or None: also where a reply can be read two ways.

    Thinking is cut, an `<answer>` tag is respected; case, how accents are composed, kinds of dash and invisible
    characters do not matter (but a one-letter label has its case: "a" is an article). A label counts only as whole
    words, where the script has blanks ("positively", "choice10" and "unknown" hold none); longer labels first; `_`,
    `-`, `/`, `&` and blanks in it are one. A number is a label by value: 1.0 is 1, 3.5 is none of 1 to 5, "4/5" is 4 of
    1 to 5 and none of 1 to 10.
    Decisions where graders differ:
    - different labels are no answer ("positive or negative"), unless one is boxed, stated ("The answer is B because A
      is too small"), opens the reply with an explanation behind it, or is alone on the last line or in bold at the end;
    - a negated label ("not very positive", "no longer true") is the other one of two, and rejected among more; a cue
      further off in its clause ("fails to be", "less than", "without", "if") leaves no answer, never that label;
    - a label is left over where all others are rejected ("It cannot be A, B or C");
    - "A" before a word ("A man fell") is an article where a sentence starts with it;
    - a short reply that goes on with an example of its own making ("\\n\\nInput: ...") ends before it;
    - abbreviations, other word forms and words outside the set are no labels.
    """
    raw = answer_part(text)
    if (goes_on := _NEXT_EXAMPLE.search(raw)) and len(raw[: goes_on.start()].strip()) <= _LONGEST_BEFORE_NEXT_EXAMPLE:
        raw = raw[: goes_on.start()]
    *_, corrected = 0, *(match.end() for match in _CORRECTED.finditer(raw))
    label = _label_of(raw[corrected:], labels) if corrected else None
    return _label_of(raw, labels) if label is None else label


def _label_of(raw: str, labels: Sequence[Label]) -> Label | None:
    """The label of a reply that is read without regard to words that take back what stands before them."""
    if (exact := {str(label): label for label in labels}.get(raw.strip())) is not None:
        return exact
    reply = _fold(raw)
    mentions = _mentions(reply, tuple(labels))
    rejected = {mention.label for mention in mentions if mention.sense == REJECTED}
    bold = BOLD_END.search(raw)
    for part in (", ".join(boxed_answers(raw)), bold[1] if bold else ""):
        label = _only_label(_fold(part), tuple(labels)) if part else None
        if label is not None and label not in rejected:
            return label
    stated = {mention.label for mention in mentions if mention.sense == GIVEN and _is_stated(reply, mention)}
    if stated:
        return stated.pop() if len(stated) == 1 else None
    return _only_label(reply, tuple(labels))


def _only_label(reply: str, labels: tuple) -> Any:
    """The label of a text that states none: the only one, the one it opens or ends with, the one left over."""
    mentions = _mentions(reply, labels)
    given = {mention.means for mention in mentions} - {None}
    rejected = {mention.label for mention in mentions if mention.sense == REJECTED}
    if len(given) == 1 and not given & rejected:
        return given.pop()
    if given:
        decided = {_opening_label(reply, mentions), _closing_label(reply, mentions)} - {None}
        return decided.pop() if len(decided) == 1 else None
    left = [label for label in labels if label not in rejected]
    return left[0] if len(left) == 1 and all(mention.sense == REJECTED for mention in mentions) else None


def _fold(text: str) -> str:
    """The text as labels are looked for in it; the case of its letters stays."""
    text = unicodedata.normalize("NFC", unicodedata.normalize("NFKC", text.replace("\u00b4", "'")))
    for pattern, replacement in _FOLDS:
        text = pattern.sub(replacement, text)
    text = _SCALE_TOLD.sub("scale", text)
    text = _RATING_IN_WORDS.sub(lambda word: str(_NUMBER_WORDS.index(word[1].lower())), text)
    return text.translate(_LETTERS).strip()


def _mentions(reply: str, labels: tuple) -> list[_Mention]:
    pattern, numbers = _pattern(labels)
    found: list[tuple[int, int, object]] = []
    for match in pattern.finditer(reply):
        if match["number"] is None:
            label = labels[int((match.lastgroup or "")[1:])]
            opens_sentence = reply[max(0, match.start() - 3) : match.start()].rstrip(" ")[-1:] in ("", *".!?\n")
            if label == "A" and opens_sentence and _AFTER_ARTICLE.match(reply, match.end()):
                continue
            around = reply[max(0, match.start() - 12) : match.end() + 12]
            if match.group().lower() == "no" and _DETERMINER.search(around):
                continue
            found.append((*match.span(), label))
            continue
        label, scale = numbers.get(Fraction(match["number"])), match["scale"]
        off_scale = scale is not None and (Fraction(scale) < _LEAST_SCALE or Fraction(scale) != max(numbers))
        may_be_negative = reply.endswith("- ", 0, match.start()) and -Fraction(match["number"]) in numbers.keys() - {0}
        if off_scale or may_be_negative or label is not None:
            found.append((*match.span(), None if off_scale or may_be_negative else label))
    marks = senses(reply.lower(), [(start, end) for start, end, _ in found])
    mentions = []
    for (start, end, label), mark in zip(found, marks, strict=True):
        sense = DOUBT if label is None else mark
        means = label if sense == GIVEN else None
        if sense == REJECTED and len(labels) == 2:
            means = labels[0] if label == labels[1] else labels[1]
        mentions.append(_Mention(start, end, label, sense, means))
    return mentions


@lru_cache(maxsize=64)
def _pattern(labels: tuple) -> tuple[re.Pattern[str], dict[Fraction, object]]:
    """What finds the labels, longer ones first, and the labels that are numbers by value. Groups: `l0`, `l1`, ... as in
    `labels`, or `number` and `scale`."""
    forms = {index: _fold(str(label)) for index, label in enumerate(labels)}
    may_drop = len(set(map(_bare, forms.values()))) == len(set(forms.values()))  # accents, as capitals often do
    numbers = {Fraction(form): labels[index] for index, form in forms.items() if _NUMERIC.fullmatch(form)}
    words = [index for index, form in forms.items() if not _NUMERIC.fullmatch(form)]
    words.sort(key=lambda index: -len(forms[index]))
    alternatives = [f"(?P<l{index}>{_label_pattern(forms[index], may_drop)})" for index in words]
    return re.compile("|".join([_NUMBER if numbers else "(?P<number>(?!))(?P<scale>)", *alternatives])), numbers


def _bare(text: str) -> str:
    """The text without accents."""
    return "".join(letter for letter in unicodedata.normalize("NFD", text) if not unicodedata.combining(letter))


def _label_pattern(form: str, may_drop_accents: bool) -> str:
    starts = "" if re.match(f"[{_UNSPACED}]", form) else _WORD_STARTS
    ends = "" if re.match(f"[{_UNSPACED}]", form[-1:]) else _WORD_ENDS
    if len(form) == 1 and not starts:
        return rf"(?:(?<!\w)|(?<=[是为為选選])){form}(?!\w)"
    if len(form) == 1 and form.isalpha():
        other, stated = form.swapcase(), r"(?:\A|(?<=(?i:answer: ))|(?<=(?i:answer is )))"
        return rf"{starts}{form}{ends}|(?<=\(){other}(?=\))|{stated}{other}(?=\W*\Z)"
    parts = _SEPARATORS.split(form)
    joined = all(len(part) > 1 or part.isdigit() for part in parts)
    if "/" in form and all(len(part) > 2 for part in parts):  # Sci/Tech is also Science and Technology
        return starts + r"(?i:" + _SEPARATED.join(rf"{re.escape(part)}\w*" for part in parts) + ")" + ends
    spaced = re.sub(r"(\\&|/)", r"\\s*\1\\s*", re.escape(form))
    pattern = _SEPARATED.join(map(re.escape, parts)) if joined else re.sub(r"(?:\\[ -]|_)+", r"[\\s_-]+", spaced)
    if may_drop_accents:
        pattern = "".join(c if (bare := _bare(c)) == c or len(bare) != 1 else f"[{c}{bare}]" for c in pattern)
    return f"{starts}(?i:{pattern}){ends}"


def _is_stated(reply: str, mention: _Mention) -> bool:
    before = reply[max(0, mention.start - _LONGEST_LEAD_IN) : mention.start].lower()
    stated = _STATES.search(before) and _STATEMENT_ENDS.match(reply, mention.end)
    return bool(stated or _STATED_AFTER.match(reply, mention.end))


def _opening_label(reply: str, mentions: list[_Mention]) -> object:
    first, *others = mentions
    opens = _OPENING.fullmatch(reply, 0, first.start) and _END_OF_STATEMENT.match(reply, first.end)
    starts = [*(mention.start for mention in others), len(reply)]
    outside = " ".join(reply[mention.end : start] for mention, start in zip(mentions, starts, strict=True))
    if others and (JOINT.fullmatch(reply, first.end, others[0].start) or _TAKEN_BACK.search(outside)):
        return None
    explanation = [word for word in re.findall(r"[^\W\d_]+", outside) if word.lower() not in ("or", "and")]
    return first.means if opens and len(explanation) >= _LEAST_EXPLANATION else None


def _closing_label(reply: str, mentions: list[_Mention]) -> object:
    last = mentions[-1]
    line_start = reply.rfind("\n", 0, last.start) + 1
    closes = line_start > 0 and _OPENING.fullmatch(reply, line_start, last.start)
    return last.means if closes and not re.search(r"\w", reply[last.end :]) else None

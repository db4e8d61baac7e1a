"""Answers that are words: labels in free text, open questions, macro-F1."""

import re
import string
import unicodedata
from collections import Counter
from collections.abc import Sequence

from prewrite.grading.extract import answer_part

_ARTICLES = {"a", "an", "the"}
_BETWEEN = (
    r"(?:(?:an?|the|any|really|very|at all|quite|clearly|think|believe|say|that|it|this|it's|is|was|be|sentiment)\s+)*$"
)
_NEGATION = re.compile(r"(?:\bnot|\bnever|\bhardly|n't|\bcannot|\bfar from)\s+" + _BETWEEN)
_DOUBT = re.compile(r"\b(no|without|whether|if)[ \t]+" + _BETWEEN)
_SENTENCE_START = re.compile(r"(?:^|[.!?\n])\s*$")
_AFTER_ARTICLE = re.compile(r"\s+(?!(?:is|was|because|since|as|and|or|seems|would|fits|makes)\b)[a-z]")
_LEAD_IN = r"(?:[^\n.:]{0,40}(?::|\bis\b)\s*)?"
_OPENING = re.compile(r"\s*\W{0,3}" + _LEAD_IN + r"\W{0,3}")
_END_OF_STATEMENT = re.compile(r"\s*[).:,;\]\n–—]|\s+-")
_WORDS_BEFORE_NEGATION = 40
_LEAST_EXPLANATION = 2


def find_label(text: str, labels: Sequence[str]) -> str | None:
    """The one label that a reply gives, as `labels` spells it, or None.

    Thinking is cut, an `<answer>` tag is respected, case does not matter (except for one-letter labels: "a" is an
    article), and a label counts only as whole words ("positively", "choice10" and "unknown" hold none); longer labels
    first, `_` also written as a space or hyphen.
    Decisions where graders differ:
    - different labels are no answer ("positive or negative"), unless the reply opens with one and goes on to explain
      ("Business\\n\\nIt is about the world economy", "B) A man fell") or its last line is nothing but one;
    - a negated label ("not very positive", "I don't think it is positive") is the other one of two, and no answer
      among more; one behind "no", "without", "whether" or "if" is no answer;
    - "A" before a word ("A man fell") is an article where a sentence starts with it;
    - abbreviations, other word forms and words outside the set are no labels.
    """
    reply = re.sub(
        r"[*`\"“”]|\b_+|_+\b", "", unicodedata.normalize("NFKC", answer_part(text)).replace("’", "'")
    ).strip()
    mentions = _mentions(reply, labels)
    found = {label for _, _, label in mentions if label is not None}
    if len(found) <= 1:
        return found.pop() if found else None
    decided = {_opening_label(reply, mentions), _closing_label(reply, mentions)} - {None}
    return decided.pop() if len(decided) == 1 else None


def _mentions(reply: str, labels: Sequence[str]) -> list[tuple[int, int, str | None]]:
    """(start, end, label) of every label in the text; None for the label where a negation leaves several, or doubt."""
    by_form = {_form(label): label for label in labels}
    alternatives = "|".join(_pattern(label) for label in sorted(labels, key=len, reverse=True))
    pattern = re.compile(rf"(?<![\w])(?<!\w-)(?:{alternatives})(?!\w|-\w|[.,]\d)")
    mentions: list[tuple[int, int, str | None]] = []
    for match in pattern.finditer(reply):
        label: str | None = by_form[_form(match.group())]
        before = reply[max(0, match.start() - _WORDS_BEFORE_NEGATION) : match.start()].lower()
        if label == "A" and _SENTENCE_START.search(before) and _AFTER_ARTICLE.match(reply, match.end()):
            continue
        if _NEGATION.search(before):
            others = [other for other in labels if other != label]
            label = others[0] if len(others) == 1 else None
        elif (doubt := _DOUBT.search(before)) and doubt[1] not in by_form:
            label = None
        mentions.append((match.start(), match.end(), label))
    return mentions


def _form(label: str) -> str:
    spaced = re.sub(r"[\s_-]+", " ", re.sub(r"\s*/\s*", "/", label)).casefold()
    return re.sub(r"(?<=[a-z]) (?=\d)", "", spaced)


def _pattern(label: str) -> str:
    pattern = re.sub(r"(?:\\[ -]|_)+", r"[\\s_-]+", re.escape(label)).replace("/", r"\s*/\s*")
    pattern = re.sub(r"(?<=[a-zA-Z])(?=\d)", r"[\\s_-]?", pattern)
    return pattern if len(label) == 1 and label.isalpha() else f"(?i:{pattern})"


def _opening_label(reply: str, mentions: list[tuple[int, int, str | None]]) -> str | None:
    start, end, label = mentions[0]
    opens = _OPENING.fullmatch(reply, 0, start) and _END_OF_STATEMENT.match(reply, end)
    outside = "".join(
        reply[one_end:next_start]
        for (_, one_end, _), (next_start, _, _) in zip(mentions, [*mentions[1:], (len(reply), 0, None)], strict=True)
    )
    explanation = [word for word in re.findall(r"\w+", outside) if word.lower() not in ("or", "and")]
    return label if opens and len(explanation) >= _LEAST_EXPLANATION else None


def _closing_label(reply: str, mentions: list[tuple[int, int, str | None]]) -> str | None:
    start, end, label = mentions[-1]
    line_start = reply.rfind("\n", 0, start) + 1
    closes = line_start > 0 and _OPENING.fullmatch(reply, line_start, start) and not re.search(r"\w", reply[end:])
    return label if closes else None


def nq_exact_match(prediction: str, golds: Sequence[str]) -> float:
    """1.0 if the prediction equals any gold after SQuAD normalisation, else 0.0 (Natural Questions open).

    An empty prediction is never right, also where a gold is only an article and normalises to nothing.
    """
    reply = answer_part(prediction)
    return float(bool(reply.strip()) and any(_squad_tokens(reply) == _squad_tokens(gold) for gold in golds))


def nq_f1(prediction: str, golds: Sequence[str]) -> float:
    """The largest token F1 of the prediction with any gold, in [0, 1] (SQuAD: Rajpurkar et al. 2016, section 6.1).

    Where both sides normalise to nothing ("A" and "A") it is 1, as in the code of SQuAD 2.
    """
    reply = answer_part(prediction)
    tokens = _squad_tokens(reply)
    return max((_token_f1(tokens, _squad_tokens(gold)) for gold in golds), default=0.0) if reply.strip() else 0.0


def _token_f1(tokens: list[str], gold_tokens: list[str]) -> float:
    if not tokens or not gold_tokens:
        return float(tokens == gold_tokens)
    common = sum((Counter(tokens) & Counter(gold_tokens)).values())
    return 2 * common / (len(tokens) + len(gold_tokens))


def _squad_tokens(text: str) -> list[str]:
    """Canonical decomposition, lower case, no punctuation (of any script), no articles, split at white space."""
    lowered = unicodedata.normalize("NFD", text).lower()
    kept = (c for c in lowered if c not in string.punctuation and not unicodedata.category(c).startswith("P"))
    return [token for token in "".join(kept).split() if token not in _ARTICLES]


def macro_f1(targets: Sequence[str], predictions: Sequence[str | None], labels: Sequence[str]) -> float:
    """The mean over `labels` of each label's F1 = 2 TP / (2 TP + FP + FN), 0 where that is 0 / 0.

    The label set is fixed: a label that occurs on neither side counts as 0. A prediction outside the set (None, "") is
    wrong: it misses its target's label and is a false positive of none.
    """
    if unknown := set(targets) - set(labels):
        raise ValueError(f"Targets outside the labels {list(labels)}: {sorted(unknown)}")
    pairs = Counter(zip(targets, predictions, strict=True))
    target_counts, prediction_counts = Counter(targets), Counter(predictions)
    occurrences = {label: target_counts[label] + prediction_counts[label] for label in labels}
    return sum(2 * pairs[label, label] / occurrences[label] for label in labels if occurrences[label]) / len(labels)

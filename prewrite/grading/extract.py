"""Where in a completion the final answer stands. Every scan is linear in the length of the text."""

import re
from collections import deque

from prewrite.grading.expressions.words import (
    FRACTION_IN_WORDS,
    QUANTITY_IN_PARTS,
    fraction_in_words,
    known_unit,
    spelled_parts,
)

_BOX_OPENER = re.compile(r"\\(?:boxed|fbox)(?![a-zA-Z])\s*")
_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)
_UNBRACED_BOX = re.compile(r"[-+−]?[\d.\\](?:[^\s{}$]|\{[^{}\n]*\}){0,200}|[A-Z](?![a-zA-Z])")
_JOINED = re.compile(r"[\s$,;]*(?:and|or)?[\s$,;]*")
_MAX_JOINED_GAP = 20
ANSWER_WORDS = (
    "answer|respuesta|r[ée]ponse|antwort|resposta|risposta|antwoord|svar|ответ|відповідь|odpowied[źz]|odpověď|răspuns|cevap|"
    "yanıt|đáp án|câu trả lời|jawaban|jibu|απάντηση|答案|答え?|解答|正解|정답|답|คำตอบ|উত্তর|సమాధానం|उत्तर|जवाब|الإجابة|"
    "الجواب|جواب|پاسخ|תשובה"
)
"""One alternative a language, of those that the common multilingual sets have (MGSM, Belebele, Global-MMLU)."""
ANSWER_IS = (
    r"(?:[*_\s]{0,8}[:=：]|\s+(?:is|es|est|ist|lautet|é|è|är|to|jest|este|ni|adalah|là|είναι)\b|\s*(?:是|为|為|은|는|は|คือ|হল|হলো"
    r"|है|هي|هو)|\s+[–—-](?=\s))"
)
_ANSWER_PHRASE = re.compile(rf"####|(?<![^\W\d_])(?:{ANSWER_WORDS}){ANSWER_IS}", re.IGNORECASE)
_INLINE_MATH = re.compile(r"\$([^$\s](?:[^$\n]*[^$\s])?)\$(?!\d)|\\\(([^\n]+?)\\\)")
_NUMBER = re.compile(
    r"(?<![^\W\u0e00-\u0eff\u3040-\u9fff\uac00-\ud7af])(?<!\.)[-−–]?(?:\d(?:[\d,]*\d)?(?:\.\d+(?:\.\.\.|…)?)?|\.\d+)(?:/\d+)?(?:\\?%)?"
    r"(?: (?:hundred|thousand|million|billion|trillion)\b)?"
)
_STATED_NUMBER = re.compile(r"(?i)\b(?:is|are|was|equals|has|have|had|gets?|be|=)\s+(?:\\?\$|[€£¥₹])?(?=[-−–]?\d)")
_REMARK_WORD = r"(?:out of|per|for|from|after|in|with|when|if|of|each|every|that|or|and|to)\b"
_QUANTITY = re.compile(
    rf"(?s)(?P<number>(?:\\?\$|[€£¥₹])?\s?{_NUMBER.pattern.partition(')')[2]})"
    rf"(?P<unit>(?: ?(?!{_REMARK_WORD})[a-zA-Z°]+)?(?:,? (?:and )?\d+ [a-zA-Z]+)*)(?P<tail>.*)"
)
_UNIT_WORD = rf"(?!{_REMARK_WORD})°?[a-zA-Z]+(?:\^\d|[²³])?"
_UNIT = re.compile(rf" (?:(?:square|sq|cubic|cu)\.? )?{_UNIT_WORD}(?:(?:/| per ){_UNIT_WORD})*")
_REMARK = re.compile(
    rf"\s*(?:$|[.,;:!?](?=\s)|[(\[](?!mod\b)|[–—。，（、；！？।॥۔။።]|-\s|\s(?!or\b|and\b|to\b){_REMARK_WORD})|\s(?:and|but|so|while)\s(?!\W*\d)|\s?(?:(?!\d)[^\W_\x00-\u00bf\u0370-\u03ff\u2070-\u218f])"
)
_PROSE_WORD = re.compile(r"(?<![\\a-zA-Z{])[^\W\d_]{2,}")
_CALCULATOR_MARK = re.compile(r"<<[^<>\n]*=([^<>=\n]*)>>")
_SENTENCE_END = re.compile(r"(?<=[\w)\]}%$*])[.!?](?=\s+[A-Z\W])|[。！？]")
_FULL_STOP = re.compile(r"(?<!\.)\.$")
_REASON = re.compile(r"[,;]?\s+\(?(?:because|since|as|which|where|car|porque|weil|denn|так как)\s")
_NO_ANSWER = re.compile(
    r"(?i)(?:[a-z]+\s+){0,2}?(?:between|(?:more|less|greater|fewer|larger|smaller|higher|lower|other)\s+than|at\s+(?:least|most)"
    r"|over|under|above|below|up\s+to|either|neither|no\s+longer|never|hardly|far\s+from|anything\s+but"
    r"|not(?!.*\b(?:but|rather)\b)|entre|zwischen|между)\b(?!\s*:)"
)
_CHOICE_OF_NUMBERS = re.compile(r"\d\s+(?:or|to)\s+(?:\\?\$)?\d")
_UNSETTLED = re.compile(
    r"(?i)(?:\bbetween\s+\S+\s+and|\b(?:more|less|greater|fewer|larger|smaller|higher|lower) than|\bat (?:least|most))"
    r"\s+(?:be\s+)?(?:\\?\$)?$"
)
_DENIED = re.compile(r"(?:\b(?:(?:can)?not|never)|n't)\s+(?:be\s+)?(?:\\?\$)?$", re.IGNORECASE)
_HEDGE = re.compile(r"(?i)(?:(?:about|approximately|around|roughly|nearly|exactly|simply|just|only|equal to)\s+)+")
_BARE_ANSWER = re.compile(r"[\\$\d(\[{+\-]|(?![\u0e00-\u0eff\u3040-\u9fff\uac00-\ud7af]+\d)\S+$")
_CURRENCIES = tuple("€£¥₹")
_MOST_UNIT_WORDS = 2
_BOLD_ENDS = re.compile(r"(?<=[^\s*])\*\*(?![\w*(])")
BOLD_END = re.compile(r"(?:\*\*|__)([^*_\n]{1,80})(?:\*\*|__)[\s.!]*$")
_FAREWELL = re.compile(
    r"(?<=[.!?$)*}\]\s])\s(?:I hope|Hope this|Let me know|Please let me|Feel free|If you(?:'d| would| have| need)"
    r"|Would you like|Do you want)\b"
)
_SPACED_THOUSANDS = re.compile(r"(?<![\w.,])[1-9]\d{0,2}(?:[ \u00a0\u2009\u202f]\d{3})+(?![\w,])")
_HAS_DECIMAL_COMMA = re.compile(r"(?i)(?!answer|####|答|解|正|답|คำ|jawab|jibu)")  # the languages of the other words
_DECIMAL_COMMA = re.compile(r"^([-−]?\d+),(\d{1,2})(?![\d,])")
_VARIABLE = re.compile(r"\\?[a-zA-Z]+")
_PLAIN_FORMULA = re.compile(  # what _NUMBER would read a part of
    r"(?<![\w.])(?:"
    r"[-−+]?(?:\d[\d,.]*)?(?:[½⅓⅔¼¾⅕⅖⅗⅘⅙⅚⅛⅜⅝⅞]|√\(?[\w.]+\)?|π|∞)(?:/\d+)?"
    r"|\d*\.\d*\(\d+\)|[-−]?\d+(?:\.\d+)?°(?![CF ])"
    r"|[({[](?:[-−]?[\d.]+, )+[-−]?[\d.]+[)}\]]|no (?:real |integer )?solutions?|infinitely many solutions"
    rf"|{FRACTION_IN_WORDS}"
    r"|[-−]?\d[\d.]* ?[×·x*] ?10(?:\^[({]?[-−]?\d+[)}]?|[⁻⁰¹²³⁴-⁹]+)"
    r"|\d{1,3}(?: ?: ?\d{1,3})+(?: ?[ap]\.?m\b)?"
    r"|(?P<letter>[a-z]) ?= ?[-−]?[\d./]+(?:,? (?:or|and) (?P=letter) ?= ?[-−]?[\d./]+)+"
    r")(?![\w/])", re.IGNORECASE,
)  # fmt: skip
_MARKDOWN = " \t\r*_`:=：、\u200b"
_LONGEST_PLAIN_ANSWER = 300


def boxed_answers(reply: str) -> list[str]:
    """The contents of the boxes that make up the final answer: one, or several where boxes are joined by "and".

    Decisions where graders differ:
    - a box that is empty, or a bare mention of the notation, is no answer: the last box with content counts;
    - a last box that is never closed was cut off: there is no answer, even where an earlier box is complete;
    - of a box in a box the inner one counts;
    - `\\boxed 5` is read up to white space or `$`;
    - `\\boxed{1} and \\boxed{2}`, with nothing else between them, are parts of one answer.
    """
    boxes, last_is_open = _boxes(reply)
    if not boxes or last_is_open:
        return []
    first = len(boxes) - 1
    while first > 0 and boxes[first][0] - boxes[first - 1][1] <= _MAX_JOINED_GAP:
        if not _JOINED.fullmatch(reply, boxes[first - 1][1], boxes[first][0]):
            break
        first -= 1
    return [content for _, _, content in boxes[first:]]


def is_cut_off(reply: str) -> bool:
    """Whether the last box of a reply is never closed."""
    return _boxes(reply)[1]


def _boxes(reply: str) -> tuple[list[tuple[int, int, str]], bool]:
    """(start, end, content) of every complete box with content; whether the last box is open."""
    closing = _closing_braces(reply)
    boxes: list[tuple[int, int, str]] = []
    last_is_open = False
    for opener in _BOX_OPENER.finditer(reply):
        start = opener.end()
        if reply.startswith("{", start):
            last_is_open = start not in closing
            if last_is_open:
                continue
            end = closing[start] + 1
            content = reply[start + 1 : end - 1].strip()
        else:
            if (unbraced := _UNBRACED_BOX.match(reply, start)) is None:
                continue
            last_is_open = False
            content, end = unbraced.group().rstrip(".,;:"), unbraced.end()
        if content:
            if boxes and opener.start() < boxes[-1][1]:
                boxes.pop()
            boxes.append((opener.start(), end, content))
    return boxes, last_is_open


def _closing_braces(text: str) -> dict[int, int]:
    closing, open_positions = {}, []
    for brace in _BRACE.finditer(text):
        if brace.group() == "{":
            open_positions.append(brace.start())
        elif brace.group() == "}" and open_positions:
            closing[open_positions.pop()] = brace.start()
    return closing


def stated_answer(reply: str) -> str | None:
    """The answer after the last "answer is", "Answer:" or "####", else the one that a reply without such words ends on.

    The number or formula right behind the words counts and no remark after it ("Answer: 12 (3 groups of 4)"); of a
    sentence ("Final Answer: The largest n is 34.") the last formula, else the last number. "Between 3 and 4", "more
    than 4", "either 3 or 4", "not 8" state none. Without the words, a reply that is nothing but an answer counts, else
    the last number of its last line: that is how GSM8K's own solutions end (where they hold calculator marks,
    `<<6*7=42>>42 apples`, the last result counts).
    """
    if farewell := _FAREWELL.search(reply, max(0, reply.rstrip().rfind("\n") - 1)):
        reply = reply[: farewell.start()]
    reply = _SPACED_THOUSANDS.sub(lambda number: re.sub(r"\s", "", number.group()), reply)
    if phrase := _last(_ANSWER_PHRASE, reply):
        rest = reply[phrase.end() :].lstrip(_MARKDOWN + "\n")[:_LONGEST_PLAIN_ANSWER]
        answer = _answer_in(_REASON.split(_BOLD_ENDS.sub("", rest.split("\n", 1)[0], count=1), maxsplit=1)[0])
        if answer and _HAS_DECIMAL_COMMA.match(phrase.group()):
            answer = _DECIMAL_COMMA.sub(r"\1.\2", answer)
        return answer
    line = reply.rstrip().rpartition("\n")[2][-_LONGEST_PLAIN_ANSWER:].strip()
    if line == reply.strip() and _is_bare_answer(line):
        return _answer_in(line)
    if mark := _last(_CALCULATOR_MARK, line):
        return mark[1].strip()
    bold = BOLD_END.search(line)
    stated = (_last_formula(bold[1]) or _answer_in(bold[1])) if bold else None
    return stated or _last_formula(line) or _last_number(line)


def _last_formula(line: str) -> str | None:
    """What a line of prose ends on where that is more than a number: a formula between dollars, or one in plain text.

    Its last number alone is another answer: 4 of `$\\frac{3}{4}$` or of 3π/4.
    """
    found = [formula for formula in _INLINE_MATH.finditer(line) if not _VARIABLE.fullmatch(formula[1] or formula[2])]
    plain = _last(_PLAIN_FORMULA, line)
    last = found[-1] if found else plain
    if last and plain and plain.start() > last.end():
        last = plain
    if last is None or _DENIED.search(line, 0, last.start()) or _UNSETTLED.search(line, 0, last.start()):
        return None
    if _NUMBER.search(line, last.end()):
        return None
    if plain and last is plain:
        return fraction_in_words(plain.group()) or plain.group().rstrip(".,")
    first = len(found) - 1
    while first > 0 and _JOINED.fullmatch(line, found[first - 1].end(), found[first].start()):
        first -= 1
    return ", ".join((formula[1] or formula[2]).strip() for formula in found[first:])


def _last_number(line: str) -> str | None:
    numbers = [number for number in _NUMBER.finditer(line) if not _DENIED.search(line, 0, number.start())]
    number, parts = numbers[-1] if numbers else None, _last(QUANTITY_IN_PARTS, line)
    if number and parts and parts.end() > number.start() and spelled_parts(parts.group()):
        number = parts
    if number is None or _UNSETTLED.search(line, 0, number.start()):
        return None
    unit = None if number is parts else _UNIT.match(line, number.end())
    words = re.findall(r"[a-zA-Z]+", unit.group()) if unit else []
    measured = all(word in ("per", "C", "F") or known_unit(word) not in (None, "dozen") for word in words)
    currency = line[max(0, number.start() - 1) : number.start()]
    return (currency if currency in _CURRENCIES else "") + number.group() + (unit.group() if unit and measured else "")


def _last(pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    last = deque(pattern.finditer(text), maxlen=1)
    return last[0] if last else None


def _is_bare_answer(line: str) -> bool:
    if (quantity := _QUANTITY.fullmatch(line)) and not quantity["tail"]:
        return True
    words = len(_PROSE_WORD.findall(_INLINE_MATH.sub(" ", line)))
    return words == 0 or (words <= _MOST_UNIT_WORDS and _BARE_ANSWER.match(line) is not None)


def _answer_in(line: str) -> str | None:
    line = _SENTENCE_END.split(_CALCULATOR_MARK.sub("", line), maxsplit=1)[0]
    line = _HEDGE.sub("", _FULL_STOP.sub("", line.strip(_MARKDOWN)).strip(_MARKDOWN), count=1) if line else line
    if _NO_ANSWER.match(line):
        return None
    if formulas := list(_INLINE_MATH.finditer(line)):
        first = formulas[0].start() != 0 and len(formulas) - 1
        last = first + 1
        while last < len(formulas) and _JOINED.fullmatch(line, formulas[last - 1].end(), formulas[last].start()):
            last += 1
        return ", ".join((formula[1] or formula[2]).strip() for formula in formulas[first:last])
    words = len(_PROSE_WORD.findall(line))
    if words and _PLAIN_FORMULA.match(line) and (formula := _last_formula(line)):
        return formula
    if quantity := _QUANTITY.fullmatch(line):
        if not (tail := quantity["tail"]):
            return line
        if _REMARK.match(tail):
            return (quantity["number"] + quantity["unit"]).rstrip(",")
    if words <= 1:
        return line or None
    if _CHOICE_OF_NUMBERS.search(line):
        return None
    stated = _last(_STATED_NUMBER, line)
    number = _NUMBER.search(line, stated.end()) if stated else None
    return number.group() if number else _last_number(line) if _NUMBER.search(line) else line

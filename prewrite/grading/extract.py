"""Where in a completion the final answer stands. Every scan is linear in the length of the text."""

import re
from collections import deque

_BOX_OPENER = re.compile(r"\\(?:boxed|fbox)(?![a-zA-Z])\s*")
_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)
_UNBRACED_BOX = re.compile(r"[-+−]?[\d.\\](?:[^\s{}$]|\{[^{}\n]*\})*|[A-Z](?![a-zA-Z])")
_JOINED_BOXES_GAP = re.compile(r"[\s$,;]*(?:and|or)?[\s$,;]*")
_MAX_JOINED_GAP = 20
_ANSWER_PHRASE = re.compile(r"####|\banswer\b(?:\s+is\b|[*_\s]{0,8}[:=])", re.IGNORECASE)
_INLINE_MATH = re.compile(r"\$([^$\n]+)\$|\\\(([^\n]+?)\\\)")
_NUMBER = re.compile(
    r"(?<![\w.])[-−–]?(?:\d[\d,]*(?:\.\d+)?|\.\d+)(?:/\d+)?(?:\\?%)?"
    r"(?: (?:hundred|thousand|million|billion|trillion)\b)?"
)
_PROSE_WORD = re.compile(r"(?<![\\a-zA-Z{])[a-zA-Z]{2,}")
_CALCULATOR_MARK = re.compile(r"<<[^<>\n]*=([^<>=\n]*)>>")
_REASON = re.compile(r"[,;]?\s+\(?(?:because|since|as|which|where)\s")
_BARE_ANSWER = re.compile(r"[\\$\d(\[{+\-]|\S+$")
_MOST_UNIT_WORDS = 2
_MARKDOWN = " \t\r*_`:="
_LONGEST_PLAIN_ANSWER = 300


def strip_thinking(text: str) -> str:
    """The part of a completion that is the reply: after the last `</think>`, before an unclosed `<think>`.

    A template may have opened the thinking, so `</think>` alone counts too. A completion that was cut off while it
    thought has no reply: "".
    """
    return text.rpartition("</think>")[2].partition("<think>")[0]


def answer_part(text: str) -> str:
    """The reply without its thinking, and within the last `<answer>` tag where there is one."""
    reply = strip_thinking(text)
    end = reply.rfind("</answer>")
    start = reply.rfind("<answer>", 0, max(end, 0))
    return reply if start < 0 else reply[start + len("<answer>") : end]


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
    while first > 0 and _are_joined(reply, boxes[first - 1][1], boxes[first][0]):
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
            unbraced = _UNBRACED_BOX.match(reply, start)
            if unbraced is None:
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


def _are_joined(text: str, end_of_one: int, start_of_next: int) -> bool:
    gap_is_short = start_of_next - end_of_one <= _MAX_JOINED_GAP
    return gap_is_short and _JOINED_BOXES_GAP.fullmatch(text, end_of_one, start_of_next) is not None


def stated_answer(reply: str) -> str | None:
    """The answer after the last "answer is", "Answer:" or "####", else the one that a reply without such words ends on.

    Of a stated sentence ("Final Answer: The largest n is 34.") the last formula counts, else the last number. Without
    the words, a reply that is nothing but an answer counts, else the last number of its last line: that is how GSM8K's
    own solutions end (where they hold calculator marks, `<<6*7=42>>42 apples`, the last result counts).
    """
    phrase = _last(_ANSWER_PHRASE, reply)
    if phrase:
        rest = reply[phrase.end() :].lstrip(_MARKDOWN + "\n")[:_LONGEST_PLAIN_ANSWER]
        return _answer_in(_REASON.split(rest.split("\n", 1)[0], maxsplit=1)[0])
    line = reply.rstrip().rpartition("\n")[2][-_LONGEST_PLAIN_ANSWER:].strip()
    if line == reply.strip() and _is_bare_answer(line):
        return _answer_in(line)
    mark = _last(_CALCULATOR_MARK, line)
    if mark:
        return mark[1].strip()
    number = _last(_NUMBER, line)
    return number.group().rstrip(",") if number else None


def _last(pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    last = deque(pattern.finditer(text), maxlen=1)
    return last[0] if last else None


def _is_bare_answer(line: str) -> bool:
    words = len(_PROSE_WORD.findall(_INLINE_MATH.sub(" ", line)))
    return words == 0 or (words <= _MOST_UNIT_WORDS and _BARE_ANSWER.match(line) is not None)


def _answer_in(line: str) -> str | None:
    line = _CALCULATOR_MARK.sub("", line).strip(_MARKDOWN).rstrip(".").strip(_MARKDOWN)
    formulas = [first or second for first, second in _INLINE_MATH.findall(line)]
    if formulas:
        return formulas[-1].strip()
    numbers = _NUMBER.findall(line)
    if numbers and len(_PROSE_WORD.findall(line)) > 1:
        return numbers[-1].rstrip(",")
    return line or None

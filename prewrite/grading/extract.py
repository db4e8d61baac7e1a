"""Where in a completion the final answer stands. Every scan is linear in the length of the text."""

import re

_BOX_OPENER = re.compile(r"\\(?:boxed|fbox)(?![a-zA-Z])\s*")
_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)
_UNBRACED_BOX = re.compile(r"[-+−]?[\d.\\](?:[^\s{}$]|\{[^{}\n]*\})*|[A-Z](?![a-zA-Z])")
_JOINED_BOXES_GAP = re.compile(r"[\s$,;]*(?:and|or)?[\s$,;]*")
_MAX_JOINED_GAP = 20
_ANSWER_PHRASE = re.compile(r"####|\banswer\b(?:\s+is\b|[*_\s]{0,8}[:=])", re.IGNORECASE)
_INLINE_MATH = re.compile(r"\$([^$\n]+)\$|\\\(([^\n]+?)\\\)")
_NUMBER = re.compile(r"(?<![\w.])[-−–]?(?:\d[\d,]*(?:\.\d+)?|\.\d+)(?:/\d+)?(?:\\?%)?")
_PROSE_WORD = re.compile(r"(?<![\\a-zA-Z{])[a-zA-Z]{2,}")
_MARKDOWN = " \t\r*_`:="
_LONGEST_PLAIN_ANSWER = 300


def strip_thinking(text: str) -> str:
    """The part of a completion that is the reply: after the last `</think>`, and before a `<think>` that is never closed.

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
    """The answer after the last "answer is", "Answer:" or "####"; without such words a reply that is one short line.

    Of a stated sentence ("Final Answer: The largest n is 34.") the last formula counts, else the last number.
    """
    phrase = None
    for phrase in _ANSWER_PHRASE.finditer(reply):  # noqa: B007
        pass
    if phrase is None:
        line = reply.strip()
        if "\n" in line or len(line) > _LONGEST_PLAIN_ANSWER or _PROSE_WORD.search(_without_math(line)):
            return None
    else:
        rest = reply[phrase.end() : phrase.end() + 4 * _LONGEST_PLAIN_ANSWER].strip(_MARKDOWN + "\n")
        line = rest.split("\n", 1)[0][:_LONGEST_PLAIN_ANSWER]
    line = line.strip(_MARKDOWN).rstrip(".").strip(_MARKDOWN)
    formulas = [first or second for first, second in _INLINE_MATH.findall(line)]
    if formulas:
        return formulas[-1].strip()
    if len(_PROSE_WORD.findall(line)) > 1:
        numbers = _NUMBER.findall(line)
        return numbers[-1].rstrip(",") if numbers else line
    return line or None


def _without_math(line: str) -> str:
    return _INLINE_MATH.sub(" ", line)

"""Rewards for the form of a completion: its tags, its box, its steps."""

import re
from collections.abc import Callable, Sequence

from prewrite.errors import UserError
from prewrite.grading import boxed_answers
from prewrite.rewards.base import Score
from prewrite.tasks.control_tokens import without_trailing_control_tokens
from prewrite.types import Example, Sample

_TAG = re.compile(r"</?(?:think|answer)>")
_THINK_THEN_ANSWER = re.compile(r"\s*<think>(.*)</think>\s*<answer>(.*)</answer>\s*", re.DOTALL)
_TAGS_IN_ORDER = ["<think>", "</think>", "<answer>", "</answer>"]
# Atomic up to the first inner tags: open-r1's own expression takes quadratic time on a text that repeats them.
_OPEN_R1 = re.compile(r"(?sm)(?><think>\n.*?\n</think>\n<answer>\n).*?\n</answer>$")
_STEP = re.compile(r"(Step \d+:|^\d+\.|\n-|\n\*|First,|Second,|Next,|Finally,)")


def format_reward(samples: Sequence[Sample], rows: Sequence[Example], *, style: str = "think_answer") -> list[Score]:
    """1 if the completion has the form, else 0. Range [0, 1].

    style: "think_answer": one `<think>` part, then one `<answer>` part, with nothing but white space around them;
    "open_r1": each of the four tags on its own line, exactly as open-r1's expression has it (so text after the
        `</answer>` line, or a second think part, still passes there, and here too);
    "think_boxed": a `<think>` part first, and after it a box that is not empty.
    Tags are in lower case; control tokens at the end are the decoder's and do not count.
    """
    forms: dict[str, Callable[[str], bool]] = {
        "think_answer": lambda text: _answer_of_think_answer(text) is not None,
        "open_r1": is_open_r1,
        "think_boxed": _is_think_boxed,
    }
    if style not in forms:
        raise UserError(f"reward format_reward: style is {style!r}; it must be one of {', '.join(forms)}.")
    return [float(forms[style](without_trailing_control_tokens(sample.text))) for sample in samples]


def think_answer_format_reward(samples: Sequence[Sample], rows: Sequence[Example]) -> list[Score]:
    """1 for the form "think_answer" of `format_reward` with a box in the answer, 0.5 for the form alone, else 0.

    Range [0, 1]. An empty box is no box.
    """
    answers = [_answer_of_think_answer(without_trailing_control_tokens(sample.text)) for sample in samples]
    return [0.0 if answer is None else 1.0 if boxed_answers(answer) else 0.5 for answer in answers]


def tag_count_reward(samples: Sequence[Sample], rows: Sequence[Example]) -> list[Score]:
    """A quarter for each of the four tags that occurs exactly once with its line breaks, as open-r1's. Range [0, 1]."""
    tags = ("<think>\n", "\n</think>\n", "\n<answer>\n", "\n</answer>")
    return [sum(0.25 for tag in tags if sample.text.count(tag) == 1) for sample in samples]


def reasoning_steps_reward(samples: Sequence[Sample], rows: Sequence[Example]) -> list[Score]:
    """min(1, steps / 3), where a step is a word like "First," or a list mark, as open-r1 counts them. Range [0, 1].

    As there, "1." counts at the start of the text alone, and one word said three times is full marks.
    """
    return [min(1.0, len(_STEP.findall(sample.text)) / 3) for sample in samples]


def _answer_of_think_answer(text: str) -> str | None:
    match = _THINK_THEN_ANSWER.fullmatch(text) if _TAG.findall(text) == _TAGS_IN_ORDER else None
    return match.group(2) if match else None


def is_open_r1(text: str) -> bool:
    """Whether open-r1's ^<think>\n.*?\n</think>\n<answer>\n.*?\n</answer>$ (DOTALL, MULTILINE) matches at the start."""
    return _OPEN_R1.match(text) is not None


def _is_think_boxed(text: str) -> bool:
    thinking, end, reply = text.partition("</think>")
    return bool(end) and thinking.lstrip().startswith("<think>") and bool(boxed_answers(reply))

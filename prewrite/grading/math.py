"""Is this completion a right answer to this gold?

The answer is looked for in `extract`, compared here where both sides are plain numbers or the same text, and else in
the worker processes of `pool`, which a completion can neither hang nor fill up nor make run code.

Verdicts: True, False, or None = no verdict: the gold is empty or cannot be read (prose), or the batch's budget ran out
before the answer was looked at. Whatever is wrong with the completion (nothing found, unreadable, too long) is False.
"""

import re
from collections.abc import Iterable
from fractions import Fraction
from functools import lru_cache

from prewrite.grading.expressions.parser import MAX_LENGTH
from prewrite.grading.extract import boxed_answers, is_cut_off, stated_answer
from prewrite.grading.pool import shared_pool
from prewrite.grading.reply import answer_part

LEAST_BUDGET_S, BUDGET_S_A_PAIR = 15.0, 0.1

_LONGEST_PLAIN_NUMBER = 100
_PLAIN_NUMBER = re.compile(r"-?(?:\d{1,3}(?:,\d{3})+|\d+)?(?:\.\d+)?")
_PLAIN_FRACTION = re.compile(r"(-?)(?:\\[dt]?frac\{(\d+)\}\{(\d+)\}|(\d+)/(\d+))")
_CHOICE_LETTER = re.compile(r"(?:\\text(?:bf)?\{)?\(?[A-Z]\)?\}?")
_OPTION = re.compile(r"(?:\\text(?:bf)?\{)?\(?[A-Z](?:[):.}]|$)")
_GSM8K_MARK = "####"


def is_correct_math(completion: str | None, gold: str) -> bool | None:
    """Whether the final answer of `completion` is right; see `grade_math`, which is faster for many."""
    return grade_math([(completion, gold)])[0]


def grade_math(pairs: Iterable[tuple[str | None, str]], budget_s: float | None = None) -> list[bool | None]:
    """The verdict of each (completion, gold), in order.

    completion: the model's whole text; what stands before the last `</think>` does not count. None is a wrong answer.
    gold: an answer in LaTeX or plain notation, a solution with its answer in a box, or one with it after `####`.
    budget_s: seconds for the pairs that need the worker processes, all of them together (starting the processes, once,
        is not counted); None = 15, or a tenth of a second for each of them where that is more.

    Safe from any thread and from executors of an event loop; installs no signal handler and sets no alarm.
    """
    verdicts: list[bool | None] = []
    jobs: dict[tuple[str, tuple[str, ...]], list[int]] = {}
    for index, (completion, gold) in enumerate(pairs):
        gold_answer = _gold_answer(gold)
        candidates = _candidates(completion or "", gold_answer)
        settled, verdict = _settle(gold_answer, candidates)
        verdicts.append(verdict)
        if not settled:
            jobs.setdefault((gold_answer, candidates), []).append(index)
    if budget_s is None:
        budget_s = max(LEAST_BUDGET_S, BUDGET_S_A_PAIR * len(jobs))
    for indices, verdict in zip(jobs.values(), shared_pool().grade(list(jobs), budget_s) if jobs else [], strict=True):
        for index in indices:
            verdicts[index] = verdict
    return verdicts


def extract_math_answer(completion: str) -> str | None:
    """The final answer of a completion: what its last box holds, else what it states plainly, else None.

    A last box that is cut off is no answer. See `boxed_answers` and `stated_answer` of `prewrite.grading.extract`.
    """
    reply = answer_part(completion)
    if boxes := boxed_answers(reply):
        return boxes[-1]
    return None if is_cut_off(reply) else stated_answer(reply)


def _candidates(completion: str, gold_answer: str) -> tuple[str, ...]:
    """The texts of which one has to be right: the answer; joined boxes as a list; the stated letter of a choice."""
    reply = answer_part(completion)
    if not (boxes := boxed_answers(reply)):
        answer = extract_math_answer(completion)
        return () if answer is None else (answer,)
    candidates = [boxes[-1]]
    if len(boxes) > 1:
        candidates.append(", ".join(boxes))
    stated = stated_answer(reply) if _CHOICE_LETTER.fullmatch(gold_answer) else None
    if stated and _CHOICE_LETTER.fullmatch(stated) and not _OPTION.match(boxes[-1]):
        candidates.append(stated)
    return tuple(candidate for candidate in candidates if len(candidate) <= MAX_LENGTH or candidate == gold_answer)


@lru_cache(maxsize=100_000)
def _gold_answer(gold: str | None) -> str:
    text = "" if gold is None else str(gold).strip()
    return ", ".join(boxed_answers(text)) or text.rpartition(_GSM8K_MARK)[2].strip()


def _settle(gold_answer: str, candidates: tuple[str, ...]) -> tuple[bool, bool | None]:
    """(settled here, verdict). Not settled: a worker has to read the answers."""
    if not gold_answer:
        return True, None
    if gold_answer in candidates:
        return True, True
    if len(gold_answer) > MAX_LENGTH:
        return True, None
    if len(candidates) == 1 and (gold_number := _plain_number(gold_answer)) is not None:
        number = _plain_number(candidates[0])
        if number == gold_number:
            return True, True
        if number is not None and number.denominator == gold_number.denominator == 1:
            return True, False
    return False, None


def _plain_number(text: str) -> Fraction | int | None:
    text = text.strip(" $\n").removesuffix(".")
    if len(text) > _LONGEST_PLAIN_NUMBER:
        return None
    if _PLAIN_NUMBER.fullmatch(text) and text.strip("-"):
        digits = text.replace(",", "")
        return Fraction(digits) if "." in digits else int(digits)  # Fraction() of a text is five times as slow
    fraction = _PLAIN_FRACTION.fullmatch(text)
    if fraction is None or not int(fraction[3] or fraction[5]):
        return None
    return Fraction(int(fraction[1] + (fraction[2] or fraction[4])), int(fraction[3] or fraction[5]))

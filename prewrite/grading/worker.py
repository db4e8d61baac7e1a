"""One grading process: reads a job a line, writes a verdict a line, ends when its input does.

It limits itself before it works: memory, no core dump, and for each job an alarm that ends the process, so that it
dies even if its parent did first. The parent's own deadline (see `pool`) is shorter.
"""

import json
import logging
import os
import re
import resource
import signal
import sys

from prewrite.grading.compare import same_answer
from prewrite.grading.notation import canonical_words, normalise
from prewrite.grading.parser import Unreadable, parse

MEMORY_LIMIT_BYTES = 2 * 1024**3
READY = b"ready\n"

_LARGE_OPERATOR = re.compile(r"\\(?:i?int|oint|sum|prod|lim|overline|pmod|equiv|setminus|cap|times)(?![a-zA-Z])")
_CHOICE_LETTER = re.compile(r"\(?([a-z])\)?")
_CHOICE_WITH_TEXT = re.compile(r"(?:option |choice |answer:?)?(?:\(([a-z])\)|([a-z])(?:[):.]|$)).*", re.DOTALL)
_PROSE_WORDS = 3


def grade(gold: str, answers: list[str]) -> bool | None:
    """Whether one of the answers is the gold; None where the gold cannot be read and no answer repeats it."""
    verdicts = [_grade_one(gold, answer) for answer in answers]
    if True in verdicts:
        return True
    if not answers:
        return None if _grade_one(gold, "") is None else False
    return None if None in verdicts else False


def _grade_one(gold: str, answer: str) -> bool | None:
    gold, answer = normalise(gold), normalise(answer)
    if gold == answer:
        return True
    gold_words, words = canonical_words(gold), canonical_words(answer)
    if gold_words == words and re.search("[a-z]{2}", words):
        return True
    choice = _CHOICE_LETTER.fullmatch(gold_words)
    if choice and (chosen := _CHOICE_WITH_TEXT.fullmatch(words)):
        return choice[1] == (chosen[1] or chosen[2])
    readings = (True, False) if "," in gold and "," in answer else (True,)
    return any(verdicts := [_compare(gold, answer, thousands) for thousands in readings]) or (
        None if None in verdicts else False
    )


def _compare(gold: str, answer: str, thousands_commas: bool) -> bool | None:
    try:
        gold_tree = parse(gold, thousands_commas)
    except Unreadable:
        is_prose = len(re.findall(r"(?<![\\a-zA-Z])[a-zA-Z]{2,}", re.sub(r"\\text\{[^{}]*\}", "", gold))) >= _PROSE_WORDS
        return None if is_prose else _math_verify(gold, answer)
    try:
        return same_answer(gold_tree, parse(answer, thousands_commas))
    except Unreadable:
        return bool(_LARGE_OPERATOR.search(answer)) and bool(_math_verify(gold, answer))


def _math_verify(gold: str, answer: str) -> bool | None:
    """math-verify's word on notation beyond our parser (sums, integrals, congruences); None if it cannot read the gold.

    Its time-outs stay off: they are alarms, and this process has its own.
    """
    from math_verify import LatexExtractionConfig, parse, verify

    def read(text: str) -> list:
        config = [LatexExtractionConfig(boxed_match_priority=-1)]
        return parse(f"${text}$", extraction_config=config, fallback_mode="no_fallback", parsing_timeout=None)

    gold_forms = read(gold)
    if not gold_forms:
        return None
    return bool(answer) and verify(gold_forms, read(answer), timeout_seconds=None)


def main(job_seconds: float) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT_BYTES, MEMORY_LIMIT_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    sys.setrecursionlimit(10_000)
    logging.disable()
    replies = os.fdopen(os.dup(sys.stdout.fileno()), "wb", buffering=0)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    replies.write(READY)
    for line in sys.stdin.buffer:
        gold, answers = json.loads(line)
        signal.setitimer(signal.ITIMER_REAL, job_seconds)
        try:
            verdict = grade(gold, answers)
        except (MemoryError, RecursionError):
            verdict = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        replies.write(json.dumps(verdict).encode() + b"\n")

"""One grading process: reads a job a line, writes a verdict a line, ends when its input does.

It limits itself: memory, and for each job the processor time, after which the kernel ends it, whatever it is doing and
even if its parent is gone. Processor time, so that a busy machine makes no right answer wrong.
"""

import json
import logging
import os
import re
import resource
import signal
import sys

from prewrite.grading.expressions.compare import meaning, same_answer
from prewrite.grading.expressions.notation import canonical_words, normalise, squeezed, without_text_commands
from prewrite.grading.expressions.parser import parse
from prewrite.grading.expressions.tokens import WORDS_IN_FORMULAS
from prewrite.grading.expressions.tree import Node, Unreadable

MEMORY_LIMIT_BYTES = 2 * 1024**3

_BEYOND_PARSER = re.compile(r"\\(?:i?int|oint|sum|prod|lim|pmod|equiv|setminus|cap|cup|begin\{cases\})(?![a-zA-Z])")
_LONGEST_FOR_MATH_VERIFY = 300
_CHOICE = re.compile(
    r"\s*(?:(?:[Oo]ption|[Cc]hoice|[Aa]nswer:?)\s*)?(?:\(([A-Za-z])\)|([A-Z])(?=\s*(?:[):.].*)?$))", re.DOTALL
)
_WORDS_ONLY = re.compile(r"[a-zA-Z\s,.;:'!?-]+")
_WORDS = re.compile(r"(?=.*[a-z]{2})(?:\D*|.*_.*)")
_PROSE_WORDS = 3
_LABELLED = re.compile(r"\s*\(([A-Z])\)[\s:.]*(?![-+*/^=,;<>!_&]|\\(?:cdot|times|cup|cap))(\S.*)")
_DECIMAL_COMMA = re.compile(r"-?(?:0,\d+|\d+,(?!\d{3}$)\d+|[1-9]\d{0,2}(?:\.\d{3})+,\d+)")
_DECIMAL_POINT = re.compile(r"-?(?:\d*\.\d+|\\frac\{\d+\}\{\d+\})")


def grade(gold: str, answers: list[str]) -> bool | None:
    """Whether one of the answers is the gold; None where the gold cannot be read and no answer repeats it."""
    verdicts = [_grade_one(gold, answer) for answer in answers or [""]]
    if answers and True in verdicts:
        return True
    return None if None in verdicts else False


def _grade_one(gold: str, answer: str) -> bool | None:
    gold, answer = normalise(gold), normalise(answer)
    if _DECIMAL_COMMA.fullmatch(answer) and _DECIMAL_POINT.fullmatch(gold):  # no list: it has the digits of the gold
        answer = answer.replace(".", "").replace(",", ".")
    gold_words, words = canonical_words(gold), canonical_words(answer)
    if gold == answer or _bare(gold) == _bare(answer) or (gold_words == words and _WORDS.fullmatch(words)):
        return True
    gold_choice, choice = _CHOICE.match(without_text_commands(gold)), _CHOICE.match(without_text_commands(answer))
    if gold_choice and choice and len(gold_words.strip("()")) == 1:
        return (gold_choice[1] or gold_choice[2]).upper() == (choice[1] or choice[2]).upper()
    if labelled := _LABELLED.fullmatch(without_text_commands(gold)):  # "(A) 12": the letter or its text
        return any(_grade_one(part, answer) for part in labelled.groups())
    readings = (True, False) if "," in gold and "," in answer else (True,)
    verdicts = [_compare(gold, answer, thousands_commas) for thousands_commas in readings]
    return True if True in verdicts else verdicts[0]


def _bare(text: str) -> str:
    return squeezed(without_text_commands(text))


def _compare(gold: str, answer: str, thousands_commas: bool) -> bool | None:
    if _is_prose(gold):
        return None
    try:
        gold_tree = _tree(gold, thousands_commas)
    except Unreadable:
        return _math_verify(gold, answer)
    try:
        return same_answer(gold_tree, _tree(answer, thousands_commas))
    except Unreadable:
        return bool(_math_verify(gold, answer))


def _tree(answer: str, thousands_commas: bool) -> Node:
    return meaning(canonical_words(answer)) or parse(answer, thousands_commas)


def _is_prose(gold: str) -> bool:
    words = [word for word in re.findall(r"\b[a-z]{2,}\b", gold) if word not in WORDS_IN_FORMULAS]
    return len(words) >= _PROSE_WORDS and bool(_WORDS_ONLY.fullmatch(gold)) and meaning(canonical_words(gold)) is None


def _math_verify(gold: str, answer: str) -> bool | None:
    """math-verify's word where the notation is beyond our parser (sums, integrals, congruences), None elsewhere.

    Its own time-outs stay off: they are alarms, work in a main thread only, and miss what hangs in C code.
    """
    if not _BEYOND_PARSER.search(gold + answer) or len(gold + answer) > _LONGEST_FOR_MATH_VERIFY:
        return None
    timer = signal.setitimer(signal.ITIMER_PROF, 0)  # the import is ours, not the answer's
    from math_verify import LatexExtractionConfig, parse, verify

    signal.setitimer(signal.ITIMER_PROF, *timer)

    def read(text: str) -> list:
        config = [LatexExtractionConfig(boxed_match_priority=-1)]
        return parse(f"${text}$", extraction_config=config, fallback_mode="no_fallback", parsing_timeout=0)

    if not (gold_forms := read(gold)):
        return None
    return bool(answer) and verify(gold_forms, read(answer), timeout_seconds=0)


def main() -> None:
    """Serves jobs from stdin until it ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # launchers send it to all that a rank has started
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT_BYTES, MEMORY_LIMIT_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    sys.setrecursionlimit(10_000)
    logging.disable()
    replies = os.fdopen(os.dup(sys.stdout.fileno()), "wb", buffering=0)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    replies.write(b"ready\n")
    for line in sys.stdin.buffer:
        gold, answers, processor_seconds = json.loads(line)
        signal.setitimer(signal.ITIMER_PROF, processor_seconds)
        try:
            verdict = grade(gold, answers)
        except (MemoryError, RecursionError):
            verdict = False
        signal.setitimer(signal.ITIMER_PROF, 0)
        replies.write(json.dumps(verdict).encode() + b"\n")

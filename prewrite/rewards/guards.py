"""Faults that make a rewrite worth nothing, found before the task model is asked."""

import re
import unicodedata
from collections.abc import Sequence
from typing import Literal

from prewrite.rewards.base import Ask
from prewrite.tasks.control_tokens import holds_control_token, without_trailing_control_tokens
from prewrite.types import Example, InstructionRow, Sample

Fault = Literal["truncated", "control_token", "empty", "leak"]
LEAK_NGRAM = 8

_WORD = re.compile(r"[぀-ヿ㐀-鿿가-힯]|[^\W぀-ヿ㐀-鿿가-힯]+")  # scripts without spaces: a character is a word
_LIST_MARKER = re.compile(r"^[ \t]*\(?\d{1,2}[.):]|\bsteps?\s+\d{1,2}\b", re.MULTILINE | re.IGNORECASE)


def rewrite_fault(
    sample: Sample, rewrite: str, row: InstructionRow, examples: Sequence[Example], ask: Ask | None
) -> Fault | None:
    """Why the rewrite is worth nothing and need not be asked, or None.

    truncated: the completion ran into `max_completion_length`. control_token: it forges a turn of a chat. empty: no
    instruction is in it. leak: it gives away what it is scored on:
        an example's text: the two share 8 words in a row that the instruction does not have;
        for ask="row", where the policy reads the problem, the gold answer, unless the instruction has it too.
    Label names, numbers, braces and `\\boxed{}` are no fault.
    """
    if sample.finish_reason == "length":
        return "truncated"
    if not rewrite:
        forged = holds_control_token(without_trailing_control_tokens(sample.text))
        return "control_token" if forged else "empty"
    if ask == "row":
        leaks = any(_gives_answer(rewrite, row.instruction, example) for example in examples)
    else:
        leaks = _repeats_text(rewrite, row.instruction, examples)
    return "leak" if leaks else None


def _repeats_text(rewrite: str, instruction: str, examples: Sequence[Example]) -> bool:
    own = _ngrams(rewrite) - _ngrams(instruction)
    return bool(own) and any(
        not own.isdisjoint(_ngrams(text)) for example in examples for text in example.fields.values()
    )


def _gives_answer(rewrite: str, instruction: str, example: Example) -> bool:
    golds = (example.target,) if isinstance(example.target, str) else example.target
    shown, known = (f" {' '.join(_words(_LIST_MARKER.sub(' ', text)))} " for text in (rewrite, instruction))
    answers = [f" {' '.join(_words(gold))} " for gold in golds if _words(gold)]
    return any(answer in shown and answer not in known for answer in answers)


def _ngrams(text: str) -> set[tuple[str, ...]]:
    words = _words(text)
    return {tuple(words[start : start + LEAK_NGRAM]) for start in range(len(words) - LEAK_NGRAM + 1)}


def _words(text: str) -> list[str]:
    return _WORD.findall(unicodedata.normalize("NFKC", text).casefold())

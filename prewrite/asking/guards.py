"""Faults that make a rewrite worth nothing, found before the task model is asked."""

import re
import unicodedata
from collections.abc import Sequence
from typing import Literal

from prewrite.tasks.control_tokens import holds_control_token, without_trailing_control_tokens
from prewrite.types import Example, Sample

# truncated: the completion ran into `max_completion_length`. control_token: it forges a turn of a chat. empty: no
# instruction is in it. wrong_tags: a template with other tags than its row's. leak: it gives away what it is scored on.
# quotes_request: it repeats what the policy was told to do, in place of doing it.
Fault = Literal["truncated", "control_token", "empty", "wrong_tags", "leak", "quotes_request"]
LEAK_NGRAM = 8
QUOTED_NGRAM = 4
# An order to rewrite an instruction is none for the task: "Rewrite the following instruction so that ...".
_ORDER = re.compile(
    r"\b(?:re-?write|re-?word|re-?phrase|improve)\s+(?:the|this|that|your|my|an?)?\s*(?:\w+\s+){0,2}(?:instruction|prompt)s?\b",
    re.IGNORECASE,
)

_WORD = re.compile(r"[぀-ヿ㐀-鿿가-힯]|[^\W぀-ヿ㐀-鿿가-힯]+")  # scripts without spaces: a character is a word
_LIST_MARKER = re.compile(r"^[ \t]*\(?\d{1,2}[.):]|\bsteps?\s+\d{1,2}\b", re.MULTILINE | re.IGNORECASE)


def form_fault(sample: Sample, rewrite: str) -> Fault | None:
    """What is wrong with the completion itself, whatever it is asked on."""
    if sample.finish_reason == "length":
        return "truncated"
    if not rewrite:
        forged = holds_control_token(without_trailing_control_tokens(sample.text))
        return "control_token" if forged else "empty"
    return None


def repeats_example(rewrite: str, instruction: str, examples: Sequence[Example]) -> bool:
    """Whether rewrite and an example share 8 words in a row that the instruction does not have.

    Label names, numbers, braces and `\\boxed{}` are no leak.
    """
    own = _ngrams(rewrite) - _ngrams(instruction)
    return bool(own) and any(
        not own.isdisjoint(_ngrams(text)) for example in examples for text in example.fields.values()
    )


def quotes_request(rewrite: str, instruction: str, meta_instruction: str) -> bool:
    """Whether the rewrite repeats what the policy was told, and the instruction does not: 4 words in a row of the
    meta-instruction, or an order to rewrite an instruction."""
    if _ORDER.search(rewrite) and not _ORDER.search(instruction):
        return True
    quoted = _ngrams(rewrite, QUOTED_NGRAM) & _ngrams(meta_instruction, QUOTED_NGRAM)
    return bool(quoted - _ngrams(instruction, QUOTED_NGRAM))


def gives_answer(rewrite: str, instruction: str, target: str | tuple[str, ...]) -> bool:
    """Whether the rewrite of a problem that the policy reads holds its answer, and the problem itself does not."""
    golds = (target,) if isinstance(target, str) else target
    shown, known = (f" {' '.join(_words(_LIST_MARKER.sub(' ', text)))} " for text in (rewrite, instruction))
    answers = [f" {' '.join(_words(gold))} " for gold in golds if _words(gold)]
    return any(answer in shown and answer not in known for answer in answers)


def _ngrams(text: str, n: int = LEAK_NGRAM) -> set[tuple[str, ...]]:
    words = _words(text)
    return {tuple(words[start : start + n]) for start in range(len(words) - n + 1)}


def _words(text: str) -> list[str]:
    return _WORD.findall(unicodedata.normalize("NFKC", text).casefold())

"""Faults that make a rewrite worth nothing, found before the task model is asked."""

import re
import unicodedata
from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

from prewrite.tasks.control_tokens import holds_control_token, without_trailing_control_tokens
from prewrite.types import Example, Sample

# truncated: the completion ran into `max_completion_length`. control_token: it forges a turn of a chat. empty: no
# instruction is in it. wrong_tags: a template with other tags than its row's. leak: it gives away what it is scored on.
# quotes_request: it repeats what the policy was told to do, in place of doing it. no_instruction: it answers, or offers
# its help, in place of instructing. foreign_text: it holds words in a script that nothing around it is written in.
Fault = Literal[
    "truncated", "control_token", "empty", "wrong_tags", "leak", "quotes_request", "no_instruction", "foreign_text"
]
LEAK_NGRAM = 8
QUOTED_NGRAM = 4
# An order to rewrite an instruction is none for the task ("Rewrite the following instruction so that ..."), nor is a
# report of having done it ("Reworded the instruction into a question ...").
_ORDER = re.compile(
    r"(?i)\b(?:re-?wr(?:ite|ote|itten)|re-?word(?:ed)?|re-?phrased?|improve)\s+(?:the|this|that|your|my|an?)?\s*(?:\w+\s+){0,2}(?:instruction|prompt)s?\b"
)
# What makes a text or a sentence that names one label no answer: it asks, orders, or says when the label is right.
_CONDITION = re.compile(r"[?؟？]|\b(?:whether|if|when(?:ever)?|unless|otherwise|or|do not|els?e)\b", re.IGNORECASE)
_SENTENCE_END = re.compile(r"(?<=[.!?؟？。！])[\"'”’*)\]]*\s+|\n+")
_IS = r"\b(?:is|are|was|were|be|belongs? to|means|says|expresses|conveys|ha[sd]|shows)\b"
# A label (%s) at the beginning or within three words of "is" or the like; and so at the end, of something definite.
_STATED = rf"(?:^\W*|(?:{_IS}|[:=])\W+(?:\w+\W+){{0,3}})%s\b"
_STATED_OF_THIS = rf"^\W*(?:the|this|that|its?|answer)\b.*(?:{_IS}|[:=])\W+(?:\w+\W+){{0,3}}%s\W*$"
_OFFER = re.compile(
    r"(?i)\bi(?:['’]m| am) sorry\b|\b(?:do|would) you (?:need|want|like)\b[^.!\n]{0,30}\b(?:help|assist(?:ance)?)\b|"
    r"\bi(?:['’]ll| will|['’]d| would|['’]m| am| can)\b[^.?!\n]{0,40}\b(?:help|assist|solve|happy|glad|do my best)\b"
)
# Scripts, by the first word of a letter's Unicode name, that mathematics and any text in Latin letters may use.
_SHARED_SCRIPTS = {
    "LATIN", "GREEK", "MATHEMATICAL", "MODIFIER", "DOUBLE-STRUCK", "SCRIPT", "FEMININE", "MASCULINE", "MICRO",
}  # fmt: skip

_WORD = re.compile(r"[぀-ヿ㐀-鿿가-힯]|[^\W぀-ヿ㐀-鿿가-힯]+")  # scripts without spaces: a character is a word
_LIST_MARKER = re.compile(r"^[ \t]*\(?\d{1,2}[.):]|\bsteps?\s+\d{1,2}\b", re.MULTILINE | re.IGNORECASE)


def form_fault(sample: Sample, rewrite: str) -> Fault | None:
    """What is wrong with the completion itself, whatever it is asked on."""
    if sample.finish_reason == "length":
        return "truncated"
    if rewrite:
        return None
    return "control_token" if holds_control_token(without_trailing_control_tokens(sample.text)) else "empty"


def repeats_example(rewrite: str, instruction: str, examples: Sequence[Example]) -> bool:
    """Whether rewrite and an example share 8 words in a row that the instruction does not have.

    Label names, numbers, braces and `\\boxed{}` are no leak.
    """
    own = _ngrams(rewrite) - _ngrams(instruction)
    texts = (text for example in examples for text in example.fields.values()) if own else ()
    return any(not own.isdisjoint(_ngrams(text)) for text in texts)


def wording_fault(
    rewrite: str, instruction: str, meta_instruction: str, labels: Sequence[str] = (), examples: Sequence[Example] = ()
) -> Fault | None:
    """What is wrong with the rewrite's wording, beside the instruction that it rewrites. labels, examples: of the task;
    the examples say in which scripts it is written."""
    if quotes_request(rewrite, instruction, meta_instruction):
        return "quotes_request"
    if is_no_instruction(rewrite, instruction, labels):
        return "no_instruction"
    known = [text for example in examples for text in example.fields.values()]
    return "foreign_text" if holds_foreign_text(rewrite, instruction, meta_instruction, *labels, *known) else None


def quotes_request(rewrite: str, instruction: str, meta_instruction: str) -> bool:
    """Whether the rewrite has 4 words of the meta-instruction in a row, or an order to rewrite, that are its own."""
    if _ORDER.search(rewrite) and not _ORDER.search(instruction):
        return True
    quoted = _ngrams(rewrite, QUOTED_NGRAM) & _ngrams(meta_instruction, QUOTED_NGRAM)
    return bool(quoted - _ngrams(instruction, QUOTED_NGRAM))


def is_no_instruction(rewrite: str, instruction: str, labels: Sequence[str]) -> bool:
    """Whether the rewrite answers, or offers help, in place of instructing, and the instruction does not.

    It answers where it names one of several labels alone and says that it is so ("Positive: a sentence.", "It is highly
    positive."), neither asking nor ordering nor setting a condition: "It is negative when it complains" is half a rule,
    which tells the other half too, and no answer. Whatever follows, it also answers where the first sentence says so of
    the text at hand and ends there ("The sentence is negative. This is a question: why?"). "The answer is: What is the
    sentiment?" states no label, and asks. It offers help where it speaks as an assistant does ("Please provide the
    problem, and I will help you solve it.").
    """
    if _OFFER.search(rewrite) and not _OFFER.search(instruction):
        return True
    if len(labels) < 2 or len(_named(instruction, labels)) == 1:
        return False
    first = _SENTENCE_END.split(rewrite.strip(), maxsplit=1)[0]
    return _answers(rewrite, labels, _STATED) or _answers(first, labels, _STATED_OF_THIS)


def holds_foreign_text(rewrite: str, *known: str) -> bool:
    """Whether two letters running are of a script that no known text has. Latin and Greek letters are no fault."""
    if rewrite.isascii():
        return False
    scripts = _SHARED_SCRIPTS | set(map(_script, set("".join(known))))
    return any(_script(a) not in scripts and _script(b) not in scripts for a, b in pairwise(rewrite))


def gives_answer(rewrite: str, instruction: str, target: str | tuple[str, ...]) -> bool:
    """Whether the rewrite of a problem that the policy reads holds its answer, and the problem itself does not."""
    golds = (target,) if isinstance(target, str) else target
    shown, known = (f" {' '.join(_words(_LIST_MARKER.sub(' ', text)))} " for text in (rewrite, instruction))
    answers = [f" {' '.join(_words(gold))} " for gold in golds if _words(gold)]
    return any(answer in shown and answer not in known for answer in answers)


def _named(text: str, labels: Sequence[str]) -> list[str]:
    """The labels that a text names, as whole words."""
    own = f" {' '.join(_words(text))} "
    return [label for label in labels if f" {' '.join(_words(label))} " in own]


def _answers(text: str, labels: Sequence[str], stated: str) -> bool:
    """Whether the text names one of the labels alone, as the pattern `stated` says, and sets no condition."""
    named = _named(text, labels)
    if len(named) != 1 or _CONDITION.search(text):
        return False
    return bool(re.search(stated % r"\W+".join(map(re.escape, _words(named[0]))), text.casefold()))


def _script(char: str) -> str:
    """The script of a letter ("LATIN", "CJK"), by the first word of its Unicode name; of all else one that all have."""
    return unicodedata.name(char, "LATIN").split()[0] if char.isalpha() else "LATIN"


def _ngrams(text: str, n: int = LEAK_NGRAM) -> set[tuple[str, ...]]:
    words = _words(text)
    return {tuple(words[start : start + n]) for start in range(len(words) - n + 1)}


def _words(text: str) -> list[str]:
    return _WORD.findall(unicodedata.normalize("NFKC", text).casefold())

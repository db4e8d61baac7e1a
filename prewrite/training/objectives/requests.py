"""What the policy is asked: the row's instruction or a better one, perhaps with what was tried and what went wrong."""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import Levenshtein

from prewrite.config import Config
from prewrite.errors import UserError
from prewrite.training.objectives.estimate import Estimate, ranked
from prewrite.training.progress import RowMemory
from prewrite.training.rollout import build_request, build_requests
from prewrite.types import Example, InstructionRow

_TRIED = "Instructions that were tried before, with the answers that they got right"
_WENT_WRONG = "Where the instruction above went wrong"
_SCORE, _GIVEN, _GOLD = "% right:", "Answer given:", "Right answer:"
NEAR_COPY = 0.9  # Levenshtein ratio above which two instructions are near-copies of one another


@dataclass(frozen=True)
class Parent:
    """An instruction to rewrite. failures: (train example, what the task model said to it), all wrong."""

    text: str
    failures: tuple[tuple[Example, str], ...] = ()


@dataclass(frozen=True)
class Brief:
    """What is known of a row, as far as requests may show it. tried: instructions with their estimate, best first."""

    parents: tuple[Parent, ...]
    tried: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True)
class Request:
    """token_ids: of the whole request. parent: the instruction in it. shown: train examples that it shows."""

    token_ids: Sequence[int]
    parent: str
    shown: tuple[Example, ...] = ()


class Requests:
    """The requests of a step's groups: drawn by seed from each row's brief, the same on every rank.

    rows: with an instruction that is known to make a request. initial: token ids of each row's own request. Raises
    UserError where one cannot be made or is too long.
    """

    def __init__(self, config: Config, rows: Sequence[InstructionRow], tokenizer: Any):
        self.config, self.rows, self.tokenizer = config, rows, tokenizer
        self.initial = build_requests(rows, tokenizer, config.rollout)
        self.briefs = [Brief((Parent(row.instruction),)) for row in rows]

    def draw(self, index: int, key: str) -> Request:
        """The request of a group of row `index`. Of a context that is too long failures are cut; what still does not
        fit is left out, the parent too."""
        settings, row, brief = self.config.rollout, self.rows[index], self.briefs[index]
        rng = random.Random(f"request/{self.config.seed}/{key}")
        parent = rng.choice(brief.parents)
        with_context = rng.random() < settings.context_share and (brief.tried or parent.failures)
        contexts = self._contexts(brief, parent, rng) if with_context else ()
        without = [(text, "", ()) for text in (parent.text, row.instruction)]
        for text, extra, examples in [*((parent.text, *context) for context in contexts), *without]:
            try:
                tokens = build_request(replace(row, instruction=text), self.tokenizer, settings, extra=extra)
            except UserError:  # too long, or an example that forges a turn; the row's own is known to pass
                continue
            return Request(tokens, text, examples)
        raise AssertionError("the row's own request was checked at the start")

    def _contexts(self, brief: Brief, parent: Parent, rng: random.Random) -> Iterator[tuple[str, tuple[Example, ...]]]:
        """What a request shows beside the instruction, and the examples in it: whole, then with fewer failures."""
        settings, others = self.config.rollout, [one for one in brief.tried if one[0] != parent.text]
        best, worst = (settings.context_tried + 1) // 2, settings.context_tried // 2
        tried = others[:best] + others[max(best, len(others) - worst) :]
        lines = [f"- {100 * score:.0f}{_SCORE} {' '.join(text.split())}" for text, score in tried]
        failures = rng.sample(parent.failures, min(settings.context_failures, len(parent.failures)))
        for number in range(len(failures), -1, -1):
            parts = ["\n".join([f"{_TRIED}:", *lines])] if lines else []
            if shown := failures[:number]:
                parts.append(f"{_WENT_WRONG}:\n" + "\n\n".join(map(_failure, shown)))
            yield "\n\n".join(parts), tuple(example for example, _ in shown)


def quotes_context(rewrite: str, known: str) -> bool:
    """Whether the rewrite goes on as the context of a request does ("Answer given: ..."), and `known` does not."""
    own, theirs = rewrite.casefold(), known.casefold()
    marks = (mark.casefold() for mark in (_TRIED, _WENT_WRONG, _SCORE, _GIVEN, _GOLD))
    return any(mark in own and mark not in theirs for mark in marks)


def make_brief(
    config: Config,
    first: Sequence[str],
    memory: RowMemory,
    worth: Mapping[str, Estimate],
    train: Mapping[str, Example],
) -> Brief:
    """As parents `first` and the best instructions, by the lower end of what is known; near-copies count once."""
    order = [text for text in ranked(worth, caution=1.0) if text in memory.train or text in memory.dev]
    parents = distinct([*first, *order], config.selection.num_parents)
    if not config.rollout.context_share:
        return Brief(tuple(map(Parent, parents)))
    most = config.rollout.context_tried
    tried = [(text, worth[text].mean) for text in (*order[:most], *order[max(most, len(order) - most) :])]
    return Brief(tuple(Parent(text, _failures(memory, text, train)) for text in parents), tuple(tried))


def distinct(texts: Sequence[str], most: int) -> list[str]:
    """The first `most` texts that are no near-copies of one before them."""
    kept: list[str] = []
    for text in texts:
        if len(kept) < most and all(Levenshtein.ratio(text, other) < NEAR_COPY for other in kept):
            kept.append(text)
    return kept


def _failures(memory: RowMemory, text: str, train: Mapping[str, Example]) -> tuple[tuple[Example, str], ...]:
    wrong = [verdict for verdict in memory.train.get(text, {}).values() if verdict.correct is False]
    return tuple((train[v.example_id], v.prediction or "no answer") for v in wrong[:8] if v.example_id in train)


def _failure(failure: tuple[Example, str]) -> str:
    example, given = failure
    asked = "\n".join(" ".join(text.split()) for text in example.fields.values())
    gold = example.target if isinstance(example.target, str) else " or ".join(example.target)
    return f"Question: {asked}\n{_GIVEN} {given}\n{_GOLD} {gold}"

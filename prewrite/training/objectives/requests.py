"""What the policy is asked: the row's instruction or a better one, perhaps with what was tried and what went wrong."""

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import Levenshtein

from prewrite.config import Config
from prewrite.errors import UserError
from prewrite.training.objectives.estimate import Estimate, ranked
from prewrite.training.progress import RowMemory
from prewrite.training.rollout import build_request, build_requests
from prewrite.types import Example, InstructionRow

NEAR_COPY = 0.9  # Levenshtein ratio above which two instructions are near-copies of one another


@dataclass(frozen=True)
class Parent:
    """An instruction to rewrite. failures: (train example, what the task model said to it), all wrong."""

    text: str
    failures: tuple[tuple[Example, str], ...] = ()


@dataclass(frozen=True)
class Brief:
    """What is known of a row, as far as requests may show it, and groups are scored by it.

    tried: instructions with their estimate, best first. telling: by train example, how much it told so far about which
    rewrite is better; what was never asked is missing.
    """

    parents: tuple[Parent, ...]
    tried: tuple[tuple[str, float], ...] = ()
    telling: Mapping[str, float] = field(default_factory=dict)


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
        """The request of a group of row `index`. A context or parent that is too long for a request is left out."""
        settings, row, brief = self.config.rollout, self.rows[index], self.briefs[index]
        rng = random.Random(f"request/{self.config.seed}/{key}")
        parent, meta_instruction = rng.choice(brief.parents), rng.choice(settings.meta_instructions)
        with_context = rng.random() < settings.context_share and (brief.tried or parent.failures)
        context, shown = self._context(brief, parent, rng) if with_context else ("", ())
        for text, extra, examples in ((parent.text, context, shown), (parent.text, "", ()), (row.instruction, "", ())):
            try:
                tokens = build_request(
                    replace(row, instruction=text),
                    self.tokenizer,
                    settings,
                    meta_instruction=meta_instruction,
                    extra=extra,
                )
            except UserError:  # too long, or an example that forges a turn
                continue
            return Request(tokens, text, examples)
        return Request(self.initial[index], row.instruction)

    def telling(self, row: InstructionRow) -> Mapping[str, float]:
        """How telling each train example is for a row's rewrites, as far as it is known."""
        return next((brief.telling for own, brief in zip(self.rows, self.briefs, strict=True) if own == row), {})

    def _context(self, brief: Brief, parent: Parent, rng: random.Random) -> tuple[str, tuple[Example, ...]]:
        settings, parts = self.config.rollout, []
        others = [one for one in brief.tried if one[0] != parent.text]
        best, worst = (settings.context_tried + 1) // 2, settings.context_tried // 2
        tried = others[:best] + others[max(best, len(others) - worst) :]
        if tried:
            lines = [f"- {100 * score:.0f}% right: {' '.join(text.split())}" for text, score in tried]
            parts.append(
                "Instructions that were tried before, with the answers that they got right:\n" + "\n".join(lines)
            )
        failures = rng.sample(parent.failures, min(settings.context_failures, len(parent.failures)))
        if failures:
            parts.append("Where the instruction above went wrong:\n" + "\n\n".join(map(_failure, failures)))
        return "\n\n".join(parts), tuple(example for example, _ in failures)


def make_brief(
    config: Config,
    row: InstructionRow,
    memory: RowMemory,
    worth: Mapping[str, Estimate],
    train: Mapping[str, Example],
) -> Brief:
    """The best instructions, by the lower end of what is known of them, as parents; near-copies count once."""
    order = [text for text in ranked(worth, caution=1.0) if text in memory.train or text in memory.dev]
    parents, telling = distinct([row.instruction, *order], config.selection.num_parents), how_telling(memory)
    if not config.rollout.context_share:
        return Brief(tuple(map(Parent, parents)), telling=telling)
    most = config.rollout.context_tried
    tried = [(text, worth[text].mean) for text in (*order[:most], *order[max(most, len(order) - most) :])]
    return Brief(tuple(Parent(text, _failures(memory, text, train)) for text in parents), tuple(tried), telling)


def how_telling(memory: RowMemory) -> dict[str, float]:
    """By train example, the variance of right and wrong among the rewrites that were asked on it, over that of a fair
    coin: near 0 where all of them are right, or all wrong. With one success and one failure added (Laplace's rule),
    so that few verdicts say little."""
    right, asked = Counter[str](), Counter[str]()
    for verdicts in memory.train.values():
        for verdict in verdicts.values():
            asked[verdict.example_id] += 1
            right[verdict.example_id] += verdict.correct is True
    share = {example: (right[example] + 1) / (count + 2) for example, count in asked.items()}
    return {example: 4 * p * (1 - p) for example, p in share.items()}


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
    return f"Question: {asked}\nAnswer given: {given}\nRight answer: {gold}"

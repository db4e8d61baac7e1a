"""How far a run has come: one record of all that a resume has to restore beside weights, optimizer and generators."""

import random
from dataclasses import dataclass, field
from functools import lru_cache

from pydantic import TypeAdapter

from prewrite.types import Scored


@dataclass(frozen=True)
class HeldOutScore:
    """An instruction's score on held-out examples. n: those with a verdict; failed: the others.

    score: accuracy, None without any verdict; interval: its 95% interval.
    """

    instruction: str
    step: int
    n: int
    failed: int
    score: float | None
    interval: tuple[float, float] | None = None
    macro_f1: float | None = None
    recall: dict[str, float | None] | None = None

    @property
    def least_score(self) -> float:
        """Its score were every answer that failed a wrong one: a failed call never makes a rewrite look better."""
        return -1.0 if self.score is None else self.score * self.n / (self.n + self.failed)


@dataclass
class RowMemory:
    """What the selection remembers of one instruction row.

    rewards: of every rewrite, those it was given in training. evaluated: the held-out scores by instruction.
    """

    initial: HeldOutScore | None = None
    best: HeldOutScore | None = None
    rewards: dict[str, list[float]] = field(default_factory=dict)
    evaluated: dict[str, HeldOutScore] = field(default_factory=dict)


@dataclass
class Progress:
    """step: optimizer steps taken. draws: rollout batches drawn. place: rows taken from the row order so far.

    leftovers: scored groups that the next batch begins with (dynamic sampling). gaps: the gap alarm's window.
    memory: the selection's, by the row's name.
    """

    step: int = 0
    draws: int = 0
    place: int = 0
    leftovers: list[list[Scored]] = field(default_factory=list)
    gaps: list[float] = field(default_factory=list)
    memory: dict[str, RowMemory] = field(default_factory=dict)

    def to_json(self) -> bytes:
        """The record as JSON; `from_json` gives it back equal."""
        return _ADAPTER.dump_json(self)

    @classmethod
    def from_json(cls, text: bytes) -> "Progress":
        """The record that `to_json` wrote. pydantic.ValidationError where the text is none."""
        return _ADAPTER.validate_json(text)


_ADAPTER = TypeAdapter(Progress)


def row_at(place: int, num_rows: int, seed: int) -> int:
    """The row that stands at a place of the row order: one shuffled pass after another, the same on every rank."""
    return _shuffled(num_rows, seed, place // num_rows)[place % num_rows]


@lru_cache(maxsize=4)
def _shuffled(num_rows: int, seed: int, epoch: int) -> list[int]:
    order = list(range(num_rows))
    random.Random(f"{seed}/{epoch}").shuffle(order)
    return order

"""How far a run has come: one record of all that a resume has to restore beside weights, optimizer and generators."""

import random
from dataclasses import dataclass, field
from functools import lru_cache

from pydantic import TypeAdapter

from prewrite.types import Scored, Verdict


@dataclass(frozen=True)
class Candidate:
    """An instruction that a row may end with, and where it came from.

    step: optimizer steps taken when it was written. source: "initial", "train", "greedy" or "sampled" (for a look).
    """

    step: int
    source: str


@dataclass(frozen=True)
class Claim:
    """The one test of a stage: the best instruction against the initial one, on dev examples that no race has read.

    p_value: one-sided, of no gain. proven: p_value <= 0.05. wins, losses: examples for the best one; n: all compared.
    """

    proven: bool
    p_value: float
    wins: int
    losses: int
    n: int


@dataclass
class RowMemory:
    """What the selection remembers of one instruction row, by instruction.

    train, dev: verdicts by example id, of training and of looks and races; what was never asked is missing. form: the
    mean of what rewards of the text alone gave it.
    """

    candidates: dict[str, Candidate] = field(default_factory=dict)
    train: dict[str, dict[str, Verdict]] = field(default_factory=dict)
    dev: dict[str, dict[str, Verdict]] = field(default_factory=dict)
    form: dict[str, float] = field(default_factory=dict)
    best: str | None = None
    claim: Claim | None = None


@dataclass
class Progress:
    """step: optimizer steps taken. draws: rollout batches drawn. place: rows taken from the row order so far.

    leftovers: scored groups that the next batch begins with (dynamic sampling). gaps: the gap alarm's window.
    alike_batches: rollout batches running whose rewrites were nearly all alike. memory: the selection's, by the row's
    name. set_aside: in solving, the pass over the problems from which on one is back, by its index.
    """

    step: int = 0
    draws: int = 0
    place: int = 0
    leftovers: list[list[Scored]] = field(default_factory=list)
    gaps: list[float] = field(default_factory=list)
    alike_batches: int = 0
    memory: dict[str, RowMemory] = field(default_factory=dict)
    set_aside: dict[int, int] = field(default_factory=dict)

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

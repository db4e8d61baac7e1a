"""How far a run has come: one record of all that a resume has to restore beside weights, optimizer and generators."""

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from pydantic import TypeAdapter

from prewrite.types import Sample, Scored, Verdict


@dataclass(frozen=True)
class Candidate:
    """An instruction that a row may end with, and where it came from.

    step: optimizer steps taken when it was written. source: "initial", "train", "greedy", "sampled" (for a look
    or the first race), "race 2" (for the second).
    """

    step: int
    source: str


@dataclass(frozen=True)
class Winner:
    """What a row has from the last stage that rewrote it.

    kept: the best instruction, then others that a stage may start from too. entry: of best.json.
    """

    kept: dict[str, Candidate]
    entry: dict[str, Any]

    @property
    def instruction(self) -> str:
        return next(iter(self.kept))


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
    weighted sum of what rewards of the text alone gave it.
    """

    candidates: dict[str, Candidate] = field(default_factory=dict)
    train: dict[str, dict[str, Verdict]] = field(default_factory=dict)
    dev: dict[str, dict[str, Verdict]] = field(default_factory=dict)
    form: dict[str, float] = field(default_factory=dict)
    best: str | None = None
    claim: Claim | None = None


@dataclass(frozen=True)
class CarriedGroup:
    """A group under way (partial rollouts). index: of its row. pushes: how many it has seen since it began.

    samples: its G completions, each done or with the finish_reason "abort".
    """

    index: int
    pushes: int
    samples: list[Sample]

    @property
    def num_unfinished(self) -> int:
        return sum(sample.finish_reason == "abort" for sample in self.samples)


@dataclass
class Progress:
    """step: optimizer steps taken. draws: rollout batches drawn. place: rows taken from the row order so far.

    leftovers: scored groups that the next batch begins with (dynamic sampling, partial rollouts). carried: groups that
    go on in the next batch. gaps: the gap alarm's window. alike_batches: rollout batches running whose rewrites were
    nearly all alike. entropy_scale: what the entropy bonus counts next where rollouts have less than the target.
    policy_tokens: that the policy has read and written, over all ranks. memory: the selection's, by the row's name.
    set_aside: in solving, the pass over the problems from which on one is back, by its index. All of these but step,
    draws and policy_tokens are a stage's own.
    kept: JSON values of callbacks, by their names.

    stage: the one that runs, from 0. stage_start, counts_before: optimizer steps, and what was spent, before it.
    winners: of stages that have ended, by the row's name.
    """

    step: int = 0
    draws: int = 0
    place: int = 0
    leftovers: list[list[Scored]] = field(default_factory=list)
    gaps: list[float] = field(default_factory=list)
    alike_batches: int = 0
    memory: dict[str, RowMemory] = field(default_factory=dict)
    policy_tokens: tuple[int, int] = (0, 0)
    set_aside: dict[int, int] = field(default_factory=dict)
    kept: dict[str, dict[str, Any]] = field(default_factory=dict)
    stage: int = 0
    stage_start: int = 0
    counts_before: dict[str, float] = field(default_factory=dict)
    winners: dict[str, Winner] = field(default_factory=dict)
    carried: list[CarriedGroup] = field(default_factory=list)
    entropy_scale: int = 1

    def next_stage(self, counts: Mapping[str, float]) -> None:
        """Ends a stage. counts: what the run has spent so far, over all ranks, by the name of the metric."""
        self.stage, self.stage_start, self.counts_before = self.stage + 1, self.step, dict(counts)
        self.place, self.leftovers, self.gaps, self.alike_batches, self.memory = 0, [], [], 0, {}
        self.set_aside, self.carried, self.entropy_scale = {}, [], 1

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

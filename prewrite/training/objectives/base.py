"""What an objective is."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from prewrite.config import RewardSettings
from prewrite.engine.sampler import Sampler
from prewrite.rewards import Reward, get_reward
from prewrite.types import Rollout, Row, Sample, Sampled, Verdict

Parts = dict[str, float | None]


@dataclass(frozen=True)
class WeightedReward:
    """A reward function as the config asks for it."""

    reward: Reward
    weight: float
    parameters: Mapping[str, Any]


def weighted_rewards(settings: RewardSettings) -> list[WeightedReward]:
    """The reward functions of the config. Raises UserError for an unknown name or parameter."""
    weights = settings.reward_weights or [1.0] * len(settings.reward_funcs)
    entries = []
    for name, weight in zip(settings.reward_funcs, weights, strict=True):
        reward, parameters = get_reward(name), settings.reward_kwargs.get(name, {})
        reward.check_parameters(parameters)
        entries.append(WeightedReward(reward, weight, parameters))
    return entries


@dataclass(frozen=True)
class Mark:
    """What scoring says of one sample.

    parts: the reward parts, by reward; one that does not concern the row is missing. verdicts: those of the task model
    on train examples, () where it was not asked on any.
    """

    parts: Parts
    verdicts: tuple[Verdict, ...] = ()


class Objective(Protocol):
    """Requests to answer, scores of the answers, and an evaluation on what training does not see.

    Every method but `choose`, `request`, `read` and `score_ahead` is called on every rank at the same point of a step.
    draw: the number of the rollout batch; with the group and the seed it decides what is asked and what it is scored
    on. group: its number in the draw, from 0; below 0 those that began in an earlier one (partial rollouts).
    """

    rewards: Sequence[WeightedReward]

    @property
    def rows(self) -> Sequence[Row]:
        """What the requests are made from."""
        ...

    def choose(self, index: int, group: int, draw: int) -> int:
        """The row that a group is of where it is row `index`'s turn, the same on every rank."""
        ...

    def request(self, index: int, group: int, draw: int) -> Sequence[int]:
        """Token ids of the request that a group of row `index` answers, the same on every rank."""
        ...

    def read(self, index: int, group: int, draw: int, sample: Sample) -> Sampled:
        """What a sample of row `index` answers, cleaned once; it travels from here on."""
        ...

    def score_ahead(self, sampled: Sampled, draw: int) -> None:
        """Starts what `score` will wait for, while other samples are still being written. Raises nothing."""
        ...

    def score(self, sampled: Sequence[Sampled], draw: int) -> list[Mark]:
        """The marks of this rank's samples. The ranks fail together (`prewrite.engine.distributed.together`)."""
        ...

    def remember(self, rollouts: Sequence[Rollout], step: int) -> None:
        """Takes notice of a batch's rollouts. step: the optimizer steps taken before them."""
        ...

    def affords(self, num_rollouts: int) -> bool:
        """Whether the budget has room for another batch, beside what the end needs. The same on every rank."""
        ...

    def evaluate(self, step: int, sampler: Sampler) -> dict[str, float]:
        """The held-out scores at a step, as the step's line shows them; before the stage's first: also the start's."""
        ...

    def finish(self, step: int, sampler: Sampler) -> dict[str, float]:
        """What training ends with: choosing the best, and testing it."""
        ...

    def counts(self) -> dict[str, float]:
        """What scoring has cost since the start, over all ranks, by the name of the metric."""
        ...

    def spent(self) -> dict[str, float]:
        """The counts since this was last asked, over all ranks: those of a step."""
        ...

    def outlook(self, steps: int, say: Callable[[str], None]) -> None:
        """Says what will be spent, before anything is, and again when the first calls have shown what they cost."""
        ...

    def summary(self) -> str:
        """The end of a run in words; "" where there is nothing to say on this rank."""
        ...

"""What an objective is."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from prewrite.config import RewardSettings
from prewrite.engine.sampler import Sampler
from prewrite.rewards import Reward, get_reward
from prewrite.types import Rollout, Row, Sample, Sampled

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


class Objective(Protocol):
    """Requests to answer, scores of the answers, and an evaluation on what training does not see.

    requests: token ids of each row's request. Every method but `read` and `score_ahead` is
    called on every rank at the same point of a step.
    """

    requests: Sequence[Sequence[int]]
    rewards: Sequence[WeightedReward]

    @property
    def rows(self) -> Sequence[Row]:
        """What the requests were made from."""
        ...

    def read(self, index: int, group: int, sample: Sample) -> Sampled:
        """What a sample of row `index` answers, cleaned once; it travels from here on."""
        ...

    def score_ahead(self, sampled: Sampled, draw: int) -> None:
        """Starts what `score` will wait for, while other samples are still being written. Raises nothing."""
        ...

    def score(self, sampled: Sequence[Sampled], draw: int) -> list[Parts]:
        """The reward parts of this rank's samples, by reward; one that does not concern the row is missing.

        draw: a number of the rollout batch; with the group and the seed it decides what they are scored on. The ranks
        fail together (`prewrite.engine.distributed.together`).
        """
        ...

    def remember(self, rollouts: Sequence[Rollout]) -> None:
        """Takes notice of a step's rollouts, for the next `evaluate`."""
        ...

    def evaluate(self, step: int, sampler: Sampler) -> dict[str, float]:
        """The held-out scores at a step, as the step's line shows them; step 0: before training."""
        ...

    def counts(self) -> dict[str, float]:
        """What scoring has cost since the start, over all ranks, by the name of the metric."""
        ...

    def summary(self) -> str:
        """The end of a run in words; "" where there is nothing to say on this rank."""
        ...

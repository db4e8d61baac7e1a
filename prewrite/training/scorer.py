"""What a rewrite is worth: cleaned, asked about, graded, rewarded."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from prewrite.engine.scoring import Asked
from prewrite.rewards.base import NOT_MY_ROW, Ask, Reward
from prewrite.rewards.calls import grade_answers, make_calls
from prewrite.rewards.guards import rewrite_fault
from prewrite.rewards.rewrite import clean_rewrite
from prewrite.rewards.rewriting import examples_of_subject
from prewrite.tasks.base import Task
from prewrite.types import Evaluation, Example, InstructionRow, Rollout, Sample


@dataclass(frozen=True)
class WeightedReward:
    """A reward function as the config asks for it."""

    reward: Reward
    weight: float
    parameters: Mapping[str, Any]


@dataclass(frozen=True)
class _Item:
    """A sample on its way to a reward."""

    group: int
    sample: Sample
    row: InstructionRow
    task: Task
    rewrite: str
    examples: Sequence[Example]


class Scorer:
    """Scores samples; all rollouts of a group on the same examples, drawn by seed, so that no rank has to be told."""

    def __init__(
        self,
        rewards: Sequence[WeightedReward],
        tasks: Mapping[str, Task],
        train: Mapping[str, Sequence[Example]],
        task_model: Asked,
        *,
        examples_per_rewrite: int,
        forced_choice: bool,
        seed: int,
    ):
        self.rewards, self.tasks, self.train, self.task_model = rewards, tasks, train, task_model
        self.examples_per_rewrite, self.forced_choice, self.seed = examples_per_rewrite, forced_choice, seed

    def score(self, samples: Sequence[tuple[int, Sample]], rows: Sequence[InstructionRow], draw: int) -> list[Rollout]:
        """Rollouts with their reward parts; `reward` is left None, since a sum may need the whole group's rewards.

        samples: (group, sample) with rows[group] the row it rewrites. draw: a number of the rollout batch; with the
        group and the seed it decides the examples. A part is missing where the reward is not for the row.
        """
        items = [
            _Item(
                group,
                sample,
                rows[group],
                self.tasks[rows[group].dataset_name],
                clean_rewrite(sample.text),
                self.examples(rows[group], draw, group),
            )
            for group, sample in samples
        ]
        asks: set[Ask] = {entry.reward.ask for entry in self.rewards if entry.reward.ask}
        asked = {ask: self._evaluate(items, ask) for ask in asks}
        parts: list[dict[str, float | None]] = [{} for _ in items]
        for entry in self.rewards:
            reward = entry.reward
            scores = reward.score(
                [item.sample for item in items],
                [item.row for item in items],
                evaluations=asked[reward.ask] if reward.ask else [None] * len(items),
                tasks=[item.task for item in items],
                examples=[item.examples for item in items],
                parameters=entry.parameters,
            )
            for part, score in zip(parts, scores, strict=True):
                if score is not NOT_MY_ROW:
                    part[reward.name] = score  # type: ignore[assignment]  # a number or None from here on
        return [
            Rollout(item.sample, item.row, item.group, item.rewrite, None, part)
            for item, part in zip(items, parts, strict=True)
        ]

    def examples(self, row: InstructionRow, draw: int, group: int) -> list[Example]:
        """The mini-batch that scores a group: the same on every rank, another one for every group and step."""
        pool = examples_of_subject(row, self.train[row.dataset_name])
        generator = random.Random(f"{self.seed}/{draw}/{group}")
        return generator.sample(pool, min(self.examples_per_rewrite, len(pool)))

    def _evaluate(self, items: Sequence[_Item], ask: Ask) -> list[Evaluation | None]:
        """One evaluation an item, all calls under way at once; None where the rewrite has a fault."""
        calls = [
            []
            if rewrite_fault(item.sample, item.rewrite, item.row, item.examples, ask)
            else make_calls(ask, item.task, item.rewrite, item.row, item.examples, forced_choice=self.forced_choice)
            for item in items
        ]
        answers = iter(self.task_model.ask([call for own in calls for call in own]))
        evaluations: list[Evaluation | None] = []
        for item, own in zip(items, calls, strict=True):
            if not own:
                evaluations.append(None)
                continue
            verdicts = grade_answers(ask, item.task, item.examples, [next(answers) for _ in own])
            evaluations.append(Evaluation(item.rewrite, item.task.name, tuple(verdicts)))
        return evaluations

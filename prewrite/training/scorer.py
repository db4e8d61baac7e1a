"""What a rewrite is worth: cleaned, asked about, graded, rewarded."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from prewrite.engine.scoring import Asked, Question, Scoring, ask_ahead, evaluate
from prewrite.rewards.base import Ask, Reward, Skip
from prewrite.rewards.calls import has_right_tags
from prewrite.rewards.guards import rewrite_fault
from prewrite.rewards.rewrite import clean_rewrite
from prewrite.rewards.rewriting import examples_of_subject
from prewrite.tasks.base import Task
from prewrite.tasks.files import require_rows
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
        self.examples_per_rewrite, self.seed = examples_per_rewrite, seed
        self.scoring: Scoring = "forced_choice" if forced_choice else "free_text"

    @property
    def rewrites_are_problems(self) -> bool:
        """Whether a rewrite is a whole query with an answer of its own, so that no dev example fits it."""
        return any(entry.reward.ask == "row" for entry in self.rewards)

    def score(self, samples: Sequence[tuple[int, Sample]], rows: Sequence[InstructionRow], draw: int) -> list[Rollout]:
        """Rollouts with their reward parts; `reward` is left None, since a sum may need the whole group's rewards.

        samples: (group, sample) with rows[group] the row it rewrites. draw: a number of the rollout batch; with the
        group and the seed it decides the examples. A part is missing where the reward is not for the row.
        """
        items = [self._item(group, sample, rows[group]) for group, sample in samples]
        parts: list[dict[str, float | None]] = [{} for _ in items]
        evaluations_by_ask: dict[Ask, list[Evaluation | None]] = {}
        for entry in self.rewards:
            reward, ask = entry.reward, entry.reward.ask
            examples = [self.examples(item.row, draw, item.group, reward) for item in items]
            if ask and ask not in evaluations_by_ask:
                evaluations_by_ask[ask] = self._evaluate(items, examples, ask)
            scores = reward.score(
                [item.sample for item in items],
                [item.row for item in items],
                evaluations=evaluations_by_ask[ask] if ask else [None] * len(items),
                tasks=[item.task for item in items],
                examples=examples,
                parameters=entry.parameters,
            )
            for part, score in zip(parts, scores, strict=True):
                if not isinstance(score, Skip):
                    part[reward.name] = score
        return [
            Rollout(item.sample, item.row, item.group, item.rewrite, None, part)
            for item, part in zip(items, parts, strict=True)
        ]

    def ask_ahead(self, group: int, sample: Sample, row: InstructionRow, draw: int) -> None:
        """Starts the calls that `score` will want for this sample, so that they are under way while others are written.

        Raises UserError as `examples` does.
        """
        item = self._item(group, sample, row)
        asked: set[Ask] = set()
        for entry in self.rewards:
            if (ask := entry.reward.ask) and ask not in asked:
                asked.add(ask)
                questions = self._questions([item], [self.examples(row, draw, group, entry.reward)], ask)
                ask_ahead([question for question in questions if question], self.task_model, scoring=self.scoring)

    def _item(self, group: int, sample: Sample, row: InstructionRow) -> _Item:
        return _Item(group, sample, row, self.tasks[row.dataset_name], clean_rewrite(sample.text))

    def examples(self, row: InstructionRow, draw: int, group: int, reward: Reward) -> list[Example]:
        """The mini-batch that scores a group: the same on every rank, another one for every group and step.

        For a reward that asks the row itself it is the row's answer.
        Raises UserError where the reward asks on the row's subject and no train example has it.
        """
        if reward.ask == "row":
            assert row.answer is not None, "check_rows"
            return [Example(id="row", fields={}, target=row.answer)]
        pool = self.train[row.dataset_name]
        if reward.ask == "subject" and self.tasks[row.dataset_name].kind in reward.kinds:
            pool = require_rows(examples_of_subject(row, pool), f"{row.dataset_name} train", f"subject={row.subject!r}")
        generator = random.Random(f"{self.seed}/{draw}/{group}")
        return generator.sample(pool, min(self.examples_per_rewrite, len(pool)))

    def _evaluate(
        self, items: Sequence[_Item], examples: Sequence[Sequence[Example]], ask: Ask
    ) -> list[Evaluation | None]:
        """One evaluation an item, all calls under way at once; None where the answers would not count."""
        questions = self._questions(items, examples, ask)
        asked = [question for question in questions if question]
        evaluations = iter(evaluate(asked, self.task_model, scoring=self.scoring))
        return [next(evaluations) if question else None for question in questions]

    def _questions(
        self, items: Sequence[_Item], examples: Sequence[Sequence[Example]], ask: Ask
    ) -> list[Question | None]:
        return [
            Question(item.task, item.rewrite, own, ask, item.row.tags) if self._is_asked(item, own, ask) else None
            for item, own in zip(items, examples, strict=True)
        ]

    def _is_asked(self, item: _Item, examples: Sequence[Example], ask: Ask) -> bool:
        """Whether a reward is given for the row, and the rewrite has no fault that settles it."""
        kinds = {kind for entry in self.rewards if entry.reward.ask == ask for kind in entry.reward.kinds}
        is_scored = item.task.kind in kinds and (ask != "subject" or item.row.subject is not None)
        has_wrong_tags = ask == "template" and not has_right_tags(item.rewrite, item.row.tags)
        fault = rewrite_fault(item.sample, item.rewrite, item.row, examples, ask)
        return is_scored and not has_wrong_tags and fault is None

"""The objective `rewrite`: the policy rewrites instructions, and the task model's success with them is the reward."""

from collections.abc import Sequence
from contextlib import suppress

from prewrite.asking import MINI_BATCH, Asking
from prewrite.asking.cleaning import clean_rewrite
from prewrite.asking.questions import Question, Scoring, evaluate
from prewrite.config import Config
from prewrite.engine import distributed
from prewrite.engine.sampler import Sampler
from prewrite.engine.task_model import TaskModel
from prewrite.errors import UserError
from prewrite.rewards import Skip
from prewrite.training.objectives.base import Parts
from prewrite.training.objectives.held_out import HeldOut
from prewrite.training.objectives.rewrite_data import RewriteData
from prewrite.types import Evaluation, Example, InstructionRow, Rollout, Sample, Sampled


class Rewrite:
    """An `Objective`. All rollouts of a group are scored on the same examples, drawn by seed."""

    def __init__(
        self,
        config: Config,
        data: RewriteData,
        requests: Sequence[Sequence[int]],
        held_out_requests: Sequence[Sequence[int]],
        task_model: TaskModel,
        held_out: HeldOut | None,
    ):
        self.data, self.rewards = data, data.rewards
        self.requests, self.held_out_requests = requests, held_out_requests
        self.task_model, self.held_out = task_model, held_out
        self.scoring: Scoring = config.task_model.scoring
        self.seed = config.seed
        self.examples_per_rewrite, self.num_sampled = config.reward.examples_per_rewrite, config.selection.num_sampled

    @property
    def rows(self) -> Sequence[InstructionRow]:
        """The instruction rows."""
        return self.data.rows

    def read(self, index: int, group: int, sample: Sample) -> Sampled:
        """The sample with the rewrite in it."""
        return Sampled(sample, self.rows[index], group, clean_rewrite(sample.text))

    def score_ahead(self, sampled: Sampled, draw: int) -> None:
        """Starts the sample's calls, so that they are under way while others are written."""
        with suppress(UserError):  # `score` meets it again, where the ranks fail together
            for asking in self._ways():
                for question in self._questions([sampled], asking, draw):
                    if question is not None:
                        self.task_model.ask_ahead(question.calls(self.scoring))

    def score(self, sampled: Sequence[Sampled], draw: int) -> list[Parts]:
        """See `Objective.score`; raises UserError past the share of failed calls."""
        with distributed.together("scoring rewrites"):
            parts = self._score(sampled, draw)
            self.task_model.check_failure_share()
        return parts

    def _score(self, sampled: Sequence[Sampled], draw: int) -> list[Parts]:
        evaluations = {asking: self._evaluations(sampled, asking, draw) for asking in self._ways()}
        parts: list[Parts] = [{} for _ in sampled]
        for entry in self.rewards:
            reward = entry.reward
            scores = reward.score(
                [one.sample for one in sampled],
                [_instruction(one) for one in sampled],
                evaluations=evaluations[reward.asking] if reward.asking else [None] * len(sampled),
                tasks=[self.data.tasks[_instruction(one).dataset_name] for one in sampled],
                examples=[self.examples(_instruction(one), one.group, draw, reward.asking) for one in sampled],
                rewrites=[one.output for one in sampled],
                parameters=entry.parameters,
            )
            for part, score in zip(parts, scores, strict=True):
                if not isinstance(score, Skip):
                    part[reward.name] = score
        return parts

    def examples(self, row: InstructionRow, group: int, draw: int, asking: Asking | None) -> list[Example]:
        """The mini-batch that scores a group: the same on every rank, another one for every group and draw.

        Raises UserError where the way of asking narrows it and no train example is left.
        """
        if asking is not None and not self._concerns(row, asking):
            return []
        pool = self.data.train.get(row.dataset_name, ())
        return (asking or MINI_BATCH).draw(row, pool, self.examples_per_rewrite, f"{self.seed}/{draw}/{group}")

    def remember(self, rollouts: Sequence[Rollout]) -> None:
        """The rewards of a step's rewrites: the best of them are candidates of the next evaluation."""
        if self.held_out is not None:
            self.held_out.remember(rollouts)

    def evaluate(self, step: int, sampler: Sampler) -> dict[str, float]:
        """Greedy rewrites, and new samples, of every held-out row, judged on held-out examples. Collective."""
        shown: dict[str, float] = {}
        if step == 0:
            with distributed.together("judging the initial instruction"):
                shown = self.held_out.evaluate_initial() if self.held_out is not None else {}
            if not self.num_sampled:
                return shown
        greedy = self._write(sampler, 1, greedy=True)
        sampled = self._write(sampler, self.num_sampled, greedy=False)
        with distributed.together("judging rewrites on held-out examples"):
            return shown | self.held_out.evaluate(step, greedy, sampled) if self.held_out is not None else {}

    def counts(self) -> dict[str, float]:
        """Calls of the task model since the start, over all ranks."""
        stats = self.task_model.stats
        mine = {
            "task_calls": stats.calls,
            "cached_calls": stats.cached,
            "retried_calls": stats.retries,
            "failed_calls": stats.failed,
        }
        return {name: float(sum(part[name] for part in distributed.gather(mine))) for name in mine}

    def summary(self) -> str:
        """The initial and the best instruction with their scores."""
        return self.held_out.summary() if self.held_out is not None else ""

    def _write(self, sampler: Sampler, count: int, *, greedy: bool) -> list[list[str]]:
        """`count` rewrites of each held-out row; truncated ones are "", as in training."""
        if not count:
            return [[] for _ in self.held_out_requests]
        samples = sampler.sample(self.held_out_requests, [count] * len(self.held_out_requests), greedy=greedy)
        return [
            ["" if sample.finish_reason == "length" else clean_rewrite(sample.text) for sample in own]
            for own in samples
        ]

    def _ways(self) -> list[Asking]:
        """The ways of asking that rewards read, each once."""
        return list(dict.fromkeys(entry.reward.asking for entry in self.rewards if entry.reward.asking is not None))

    def _concerns(self, row: InstructionRow, asking: Asking) -> bool:
        return self.data.asks_about(row, asking)

    def _evaluations(self, sampled: Sequence[Sampled], asking: Asking, draw: int) -> list[Evaluation | None]:
        """One evaluation a sample, all calls under way at once; None where the answers would not count."""
        questions = self._questions(sampled, asking, draw)
        asked = [question for question in questions if question]
        evaluations = iter(evaluate(asked, self.task_model, scoring=self.scoring))
        return [next(evaluations) if question else None for question in questions]

    def _questions(self, sampled: Sequence[Sampled], asking: Asking, draw: int) -> list[Question | None]:
        questions: list[Question | None] = []
        for one in sampled:
            row = _instruction(one)
            examples = self.examples(row, one.group, draw, asking)
            is_asked = self._concerns(row, asking) and asking.fault(one.sample, one.output, row, examples) is None
            task = self.data.tasks[row.dataset_name]
            questions.append(Question(asking, task, row, one.output, examples) if is_asked else None)
        return questions


def _instruction(sampled: Sampled) -> InstructionRow:
    assert isinstance(sampled.row, InstructionRow)
    return sampled.row

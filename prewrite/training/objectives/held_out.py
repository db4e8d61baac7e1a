"""Judging rewrites on what training does not see; here, where each row is a question by itself, on other rows."""

import statistics
from collections.abc import Sequence
from typing import Protocol

from prewrite.asking.questions import Asked, Question, Scoring, answers_bar, evaluate
from prewrite.config import Config
from prewrite.reporting.journal import Journal
from prewrite.training.objectives.rewrite_data import RewriteData
from prewrite.types import Evaluation, Rollout


class HeldOut(Protocol):
    """What `Rewrite` asks of it. greedy, sampled: rewrites of each of the data's held-out rows."""

    def remember(self, rollouts: Sequence[Rollout], step: int) -> None: ...

    def evaluate_initial(self, step: int) -> dict[str, float]: ...

    def evaluate(
        self, step: int, greedy: Sequence[Sequence[str]], sampled: Sequence[Sequence[str]]
    ) -> dict[str, float]: ...

    def parents(self) -> list[list[str]]: ...

    def wanted_samples(self, calls: int) -> int: ...

    def race(self, step: int, fresh: Sequence[Sequence[str]], calls: int) -> int: ...

    def finish(
        self, step: int, fresh: Sequence[Sequence[str]], calls: int, most: int | None = None
    ) -> dict[str, float]: ...

    def summary(self) -> str: ...


class HeldOutQuestions:
    """How much better rows are answered that training does not see, once the policy has rewritten them.

    Each row is a question by itself, so that there is no best instruction to keep.
    """

    def __init__(self, config: Config, data: RewriteData, task_model: Asked, journal: Journal, stage: int):
        self.data, self.task_model, self.journal, self.stage = data, task_model, journal, stage
        self.scoring: Scoring = config.task_model.scoring
        self.samples = config.task_model.samples_per_query
        self._shown: dict[str, float] = {}

    def remember(self, rollouts: Sequence[Rollout], step: int) -> None:
        """Nothing: a rewrite of one question says nothing of another."""

    def evaluate_initial(self, step: int) -> dict[str, float]:
        """The share of the rows that are answered right as they are."""
        return self._judge([[row.instruction] for row in self.data.held_out_rows], "initial", step)

    def evaluate(
        self, step: int, greedy: Sequence[Sequence[str]], sampled: Sequence[Sequence[str]]
    ) -> dict[str, float]:
        """The share answered right after the greedy rewrites, and the mean over sampled ones."""
        shown = self._judge(greedy, "greedy", step)
        return shown | (self._judge(sampled, "sampled", step) if any(sampled) else {})

    def parents(self) -> list[list[str]]:
        """None: a rewrite of one question says nothing of another."""
        return []

    def wanted_samples(self, calls: int) -> int:
        """None: there is nothing to choose."""
        return 0

    def race(self, step: int, fresh: Sequence[Sequence[str]], calls: int) -> int:
        """None: there is nothing to choose."""
        return 0

    def finish(
        self, step: int, fresh: Sequence[Sequence[str]], calls: int, most: int | None = None
    ) -> dict[str, float]:
        """Nothing: there is no best instruction to find."""
        return {}

    def summary(self) -> str:
        """The last scores beside the first."""
        scores = ", ".join(f"{key.removeprefix('dev_')} {value:.3f}" for key, value in self._shown.items())
        return f"{len(self.data.held_out_rows)} held-out rows, share answered right: {scores}"

    def _judge(self, rewrites: Sequence[Sequence[str]], role: str, step: int) -> dict[str, float]:
        questions = [
            Question(self.data.asking_of(row), self.data.tasks[row.dataset_name], row, text, ())
            for row, own in zip(self.data.held_out_rows, rewrites, strict=True)
            for text in own
        ]
        asked = [question for question in questions if question.rewrite]
        with answers_bar(f"held-out rows, {role}", self.samples * len(asked), leave=False) as progress:
            evaluations = iter(
                evaluate(asked, self.task_model, scoring=self.scoring, samples=self.samples, progress=progress)
            )
        right = []
        for question in questions:
            score = _only(next(evaluations)) if question.rewrite else 0.0  # no rewrite is no right answer
            line = {"step": step, "stage": self.stage, "task": question.task.name, "role": role}
            line |= {"instruction": question.row.instruction}
            self.journal.write_dev(line | {"rewrite": question.rewrite, "n": int(score is not None), "score": score})
            if score is not None:
                right.append(score)
        self.task_model.check_failure_share()
        shown = {f"dev_{role}": statistics.fmean(right)} if right else {}
        self._shown |= shown
        return shown


def _only(evaluation: Evaluation) -> float | None:
    (verdict,) = evaluation.verdicts
    return verdict.score

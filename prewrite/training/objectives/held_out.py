"""Judging rewrites on what training does not see: which instruction is best, or how well new questions are rewritten.

Rank 0 alone holds one. Scores are accuracies.
"""

import statistics
from collections.abc import Sequence
from typing import Any, Protocol

from prewrite.asking.questions import Asked, Question, Scoring, answers_bar, evaluate
from prewrite.config import Config
from prewrite.config.loading import config_hash
from prewrite.evaluation.summary import Summary, summarise
from prewrite.reporting.console import outcome
from prewrite.reporting.journal import Journal
from prewrite.training.objectives.rewrite_data import RewriteData, row_names
from prewrite.training.progress import HeldOutScore, Progress, RowMemory
from prewrite.types import Evaluation, InstructionRow, Rollout


class HeldOut(Protocol):
    """What `Rewrite` asks of it. greedy, sampled: rewrites of each of the data's held-out rows."""

    def remember(self, rollouts: Sequence[Rollout]) -> None: ...

    def evaluate_initial(self) -> dict[str, float]: ...

    def evaluate(
        self, step: int, greedy: Sequence[Sequence[str]], sampled: Sequence[Sequence[str]]
    ) -> dict[str, float]: ...

    def summary(self) -> str: ...


class Selection:
    """Keeps the best instruction of each row: the one with the highest score on the dev examples of its task."""

    def __init__(self, config: Config, data: RewriteData, task_model: Asked, journal: Journal, progress: Progress):
        self.data, self.task_model, self.journal = data, task_model, journal
        self.num_candidates = config.selection.num_candidates
        self.scoring: Scoring = config.task_model.scoring
        self.config_hash = config_hash(config)
        self.names = row_names(data.rows)
        self.memory = progress.memory
        for name in self.names:
            self.memory.setdefault(name, RowMemory())

    def remember(self, rollouts: Sequence[Rollout]) -> None:
        """The rewards of a step's rewrites: the best of them are candidates of the next evaluation."""
        for rollout in rollouts:
            if rollout.reward is not None and rollout.output and isinstance(rollout.row, InstructionRow):
                name = self.names[self.data.rows.index(rollout.row)]
                self.memory[name].rewards.setdefault(rollout.output, []).append(rollout.reward)

    def evaluate_initial(self) -> dict[str, float]:
        """The baseline of every row: the instruction that it starts from."""
        shown = {}
        for name, row in zip(self.names, self.data.rows, strict=True):
            memory = self.memory[name]
            (score,) = self._judge(name, row, [row.instruction], "initial", step=0)
            memory.initial = memory.best = score
            shown[f"dev_initial/{name}"] = _number(score)
        self._write_best()
        return shown

    def evaluate(
        self, step: int, greedy: Sequence[Sequence[str]], sampled: Sequence[Sequence[str]]
    ) -> dict[str, float]:
        """Judges the greedy rewrites, those with the best mean reward so far, and rewrites sampled for this.

        Returns what the step's line shows: the best score, the greedy one, and the mean of the sampled ones, which is
        the policy's own, without any choosing.
        """
        shown: dict[str, float] = {}
        for index, (name, row) in enumerate(zip(self.names, self.data.rows, strict=True)):
            memory = self.memory[name]
            assert memory.best is not None, "evaluate_initial comes first"
            untried = [text for text in memory.rewards if text not in memory.evaluated]
            untried.sort(key=lambda text: -statistics.fmean(memory.rewards[text]))
            scores = self._judge(name, row, greedy[index], "greedy", step)
            shown[f"dev_greedy/{name}"] = _mean(scores)
            scores += self._judge(name, row, untried[: self.num_candidates], "candidate", step)
            if sampled[index]:
                judged = self._judge(name, row, sampled[index], "sampled", step)
                shown[f"dev_sampled_mean/{name}"] = _mean(judged)
                scores += judged
            champion = max(scores, key=lambda score: score.least_score, default=memory.best)
            if champion.least_score > _number(memory.best, none=-1.0):
                memory.best = champion
            shown[f"dev_best/{name}"] = _number(memory.best)
        self._write_best()
        return shown

    def summary(self) -> str:
        """For each row the initial and the best instruction with scores."""
        return outcome(self.journal.best)

    def _judge(
        self, name: str, row: InstructionRow, instructions: Sequence[str], role: str, step: int
    ) -> list[HeldOutScore]:
        """The score of each instruction that is not empty; one that was judged before is not asked again."""
        known, task, asking = self.memory[name].evaluated, self.data.tasks[row.dataset_name], self.data.asking_of(row)
        fresh = [text for text in dict.fromkeys(instructions) if text and text not in known]
        examples = asking.pool(row, self.data.dev[task.name])
        questions = [Question(asking, task, row, text, examples) for text in fresh]
        with answers_bar(f"{name} dev, {role}", len(fresh) * len(examples), leave=False) as progress:
            evaluations = evaluate(questions, self.task_model, scoring=self.scoring, progress=progress)
        for evaluation in evaluations:
            known[evaluation.instruction] = _held_out_score(evaluation.instruction, step, summarise(task, evaluation))
        verdicts = {evaluation.instruction: evaluation.verdicts for evaluation in evaluations}
        for text in instructions:
            if text:
                line = {"step": step, "task": task.name, "row": name, "role": role, "rewrite": text}
                line |= _shown(known[text])
                self.journal.write_dev(line | {"verdicts": [v.correct for v in verdicts.get(text, ())]})
        return [known[text] for text in instructions if text]

    def _write_best(self) -> None:
        self.task_model.check_failure_share()  # of the whole evaluation, before any of it is called the best
        entries = {}
        for name in self.names:
            memory = self.memory[name]
            assert memory.initial is not None
            assert memory.best is not None
            entries[name] = {
                "instruction": memory.best.instruction,
                **_shown(memory.best),
                "baseline": {"instruction": memory.initial.instruction, **_shown(memory.initial)},
                "step": memory.best.step,
                "looked_at": len(memory.evaluated),
                "config_hash": self.config_hash,
            }
        self.journal.write_best(entries)


class HeldOutQuestions:
    """How much better rows are answered that training does not see, once the policy has rewritten them.

    Each row is a question by itself, so that there is no best instruction to keep.
    """

    def __init__(self, config: Config, data: RewriteData, task_model: Asked, journal: Journal):
        self.data, self.task_model, self.journal = data, task_model, journal
        self.scoring: Scoring = config.task_model.scoring
        self._shown: dict[str, float] = {}

    def remember(self, rollouts: Sequence[Rollout]) -> None:
        """Nothing: a rewrite of one question says nothing of another."""

    def evaluate_initial(self) -> dict[str, float]:
        """The share of the rows that are answered right as they are."""
        return self._judge([[row.instruction] for row in self.data.held_out_rows], "initial", step=0)

    def evaluate(
        self, step: int, greedy: Sequence[Sequence[str]], sampled: Sequence[Sequence[str]]
    ) -> dict[str, float]:
        """The share answered right after the greedy rewrites, and the mean over sampled ones."""
        shown = self._judge(greedy, "greedy", step)
        return shown | (self._judge(sampled, "sampled", step) if any(sampled) else {})

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
        with answers_bar(f"held-out rows, {role}", len(asked), leave=False) as progress:
            evaluations = iter(evaluate(asked, self.task_model, scoring=self.scoring, progress=progress))
        right = []
        for question in questions:
            correct = _only(next(evaluations)) if question.rewrite else False  # no rewrite is no right answer
            line = {"step": step, "task": question.task.name, "role": role, "instruction": question.row.instruction}
            score = None if correct is None else float(correct)
            self.journal.write_dev(line | {"rewrite": question.rewrite, "n": int(correct is not None), "score": score})
            if correct is not None:
                right.append(float(correct))
        self.task_model.check_failure_share()
        shown = {f"dev_{role}": statistics.fmean(right)} if right else {}
        self._shown |= shown
        return shown


def _only(evaluation: Evaluation) -> bool | None:
    (verdict,) = evaluation.verdicts
    return verdict.correct


def _held_out_score(instruction: str, step: int, summary: Summary) -> HeldOutScore:
    accuracy = summary.accuracy
    return HeldOutScore(
        instruction,
        step,
        summary.n - summary.failed,
        summary.failed,
        score=accuracy.value if accuracy else None,
        interval=(accuracy.interval.low, accuracy.interval.high) if accuracy else None,
        macro_f1=summary.macro_f1.value if summary.macro_f1 else None,
        recall=summary.recall,
    )


def _shown(score: HeldOutScore) -> dict[str, Any]:
    """What dev.jsonl and best.json say of it."""
    return {
        "n": score.n,
        "failed": score.failed,
        "score": score.score,
        "interval": score.interval,
        "macro_f1": score.macro_f1,
        "recall": score.recall,
    }


def _number(score: HeldOutScore, none: float = float("nan")) -> float:
    return none if score.score is None else score.score


def _mean(scores: Sequence[HeldOutScore]) -> float:
    judged = [score.score for score in scores if score.score is not None]
    return statistics.fmean(judged) if judged else float("nan")

"""What is known of every instruction of every row: all verdicts that were paid for, and what they make of it."""

import statistics
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from prewrite.asking.questions import Asked, Question, Scoring, answers_bar, evaluate
from prewrite.config import Config
from prewrite.evaluation.summary import summarise
from prewrite.reporting.journal import Journal
from prewrite.rewards import Skip
from prewrite.tasks.base import Task
from prewrite.tasks.rows import is_whole, row_names
from prewrite.training.objectives.base import WeightedReward
from prewrite.training.objectives.call_plan import look_examples, race_examples
from prewrite.training.objectives.estimate import Estimate, estimate_worth, ranked
from prewrite.training.objectives.rewrite_data import METRIC_KINDS, RewriteData
from prewrite.training.progress import Candidate, Progress, RowMemory
from prewrite.types import Evaluation, Example, InstructionRow, Rollout, Sample, Verdict


class Ledger:
    """Asks, remembers and writes down. Rank 0 alone holds one. A row goes by its index in the data.

    names: of the rows. memory: what is known, by name; it belongs to the run's progress. race_examples: those of
    looks and races, by row.
    """

    def __init__(self, config: Config, data: RewriteData, task_model: Asked, journal: Journal, progress: Progress):
        self.config, self.data, self.task_model, self.journal = config, data, task_model, journal
        self.scoring: Scoring = config.task_model.scoring
        self.samples = config.task_model.samples_per_query
        self.names, self.stage = row_names(data.rows), progress.stage
        self.memory = progress.memory
        for index, (name, row) in enumerate(zip(self.names, data.rows, strict=True)):
            self.memory.setdefault(name, RowMemory())
            before = progress.winners.get(name)
            start = before.kept if before is not None and before.instruction == row.instruction else {}
            for text, candidate in (start or {row.instruction: Candidate(0, "initial")}).items():
                self._add(index, text, candidate)
        self.race_examples = [race_examples(config, data, row) for row in data.rows]
        self._examples = [{example.id: example for example in own} for own in self.race_examples]
        self._own_train = [
            None if is_whole(row) else {example.id for example in data.train_of(row)} for row in data.rows
        ]
        self.value = {task.name: _value(config, data, task) for task in data.tasks.values()}
        self._rewarded: dict[tuple[int, str], tuple[tuple[Verdict, ...], float]] = {}

    def of(self, index: int) -> RowMemory:
        """The memory of a row."""
        return self.memory[self.names[index]]

    def take_in(self, rollouts: Sequence[Rollout], step: int) -> None:
        """Takes in what a step's rewrites did on train examples. step: the optimizer steps taken before them."""
        form_rewards = [entry for entry in self.data.rewards if entry.reward.asking is None]
        for rollout in rollouts:
            if not rollout.verdicts or not isinstance(rollout.row, InstructionRow):
                continue
            index = self.data.rows.index(rollout.row)
            memory, own = self.of(index), self._own_train[index]
            memory.candidates.setdefault(rollout.output, Candidate(step, "train"))
            seen = {
                verdict.example_id: verdict
                for verdict in rollout.verdicts
                if verdict.correct is not None and (own is None or verdict.example_id in own)
            }
            memory.train.setdefault(rollout.output, {}).update(seen)
            parts = [rollout.reward_parts.get(entry.reward.name) or 0.0 for entry in form_rewards]
            memory.form[rollout.output] = sum(
                entry.weight * part for entry, part in zip(form_rewards, parts, strict=True)
            )

    def worth(self, index: int) -> dict[str, Estimate]:
        """The estimate of every instruction of a row, from all verdicts on train and the race's part of dev.

        With an own reward that reads verdicts the mean over them is what the run's rewards give for all of them at
        once, whatever that is a function of; how far right and wrong lie apart says how unsure it is, on a scale on
        which the rewrites' rewards span 1, so that neither the unit nor the zero of a reward decides anything.
        """
        row, memory = self.data.rows[index], self.of(index)
        known = {text: memory.train.get(text, {}) | memory.dev.get(text, {}) for text in memory.candidates}
        value = self.value[row.dataset_name]
        scores = {text: {example: value(verdict) for example, verdict in own.items()} for text, own in known.items()}
        unit, weight = 1.0, self._weight_of_verdicts(row)
        if self.goes_by_own_rewards(row):
            given = {text: self.rewards_of(index, text, own) / weight for text, own in known.items() if own}
            unit = max(given.values(), default=0.0) - min(given.values(), default=0.0) or 1.0
            scores = {text: _about(given[text] / unit, own) if own else {} for text, own in scores.items()}
        estimates = estimate_worth(scores, {text: (c.step, c.source) for text, c in memory.candidates.items()})
        return {
            text: Estimate(unit * estimate.mean + memory.form.get(text, 0.0) / weight, unit * estimate.sd)
            for text, estimate in estimates.items()
        }

    def judged(self, index: int) -> list[str]:
        """What the task model was asked with, the best first, by the lower end of the estimate."""
        memory, worth = self.of(index), self.worth(index)
        return [text for text in ranked(worth, caution=1.0) if text in memory.train or text in memory.dev]

    def goes_by_own_rewards(self, row: InstructionRow) -> bool:
        """Whether a function of the user's own, which reads verdicts, has a part in what the row's best is best in."""
        own = [entry.weight for entry in self._asking(row) if ":" in entry.reward.name]
        return self.config.selection.metric is None and any(own)

    def rewards_of(self, index: int, text: str, known: Mapping[str, Verdict]) -> float:
        """The weighted sum of the run's rewards that ask, over all these verdicts (by example) at once.

        A failed call is a wrong answer, no verdict of a reward -1; an example that the row does not have is left out.
        """
        row, told = self.data.rows[index], self._examples[index]
        verdicts = tuple(failed_as(False, verdict) for example, verdict in known.items() if example in told)
        before, total = self._rewarded.get((index, text), ((), 0.0))
        if before == verdicts:  # it may be a slow function, and is asked again and again
            return total
        evaluation, total = Evaluation(text, row.dataset_name, verdicts), 0.0
        for entry in self._asking(row):
            score = self.reward(index, entry, text, evaluation, [told[verdict.example_id] for verdict in verdicts])
            total += 0.0 if isinstance(score, Skip) else entry.weight * (score if score is not None else -1.0)
        self._rewarded[index, text] = verdicts, total
        return total

    def add(self, index: int, texts: Sequence[str], step: int, source: str) -> None:
        """New candidates of a row; "" is none."""
        for text in filter(None, texts):
            self._add(index, text, Candidate(step, source))

    def _add(self, index: int, text: str, candidate: Candidate) -> None:
        memory = self.of(index)
        if text not in memory.candidates:
            memory.candidates[text] = candidate
            memory.form[text] = self._form(index, text)

    def _form(self, index: int, text: str) -> float:
        """What the rewards of the text alone give an instruction that no completion was scored for."""
        scores = (
            (entry.weight, self.reward(index, entry, text)) for entry in self.data.rewards if not entry.reward.asking
        )
        return sum(weight * score for weight, score in scores if isinstance(score, int | float))

    def reward(
        self,
        index: int,
        entry: WeightedReward,
        text: str,
        evaluation: Evaluation | None = None,
        examples: Sequence[Example] = (),
    ) -> float | Skip | None:
        """A reward of an instruction by itself. evaluation, examples: what the task model did with it, on which."""
        row = self.data.rows[index]
        (score,) = entry.reward.score(
            [Sample((), (), (), text, "stop")],
            [row],
            evaluations=[evaluation],
            tasks=[self.data.tasks[row.dataset_name]],
            examples=[examples],
            rewrites=[text],
            parameters=entry.parameters,
        )
        return score

    def ask(self, index: int, texts: Sequence[str], examples: Sequence[Example], role: str) -> None:
        """Sees to it that each instruction has its verdict on each example; what is known is not asked again."""
        known = self.of(index).dev
        missing = {
            text: [example for example in examples if example.id not in known.get(text, {})]
            for text in dict.fromkeys(filter(None, texts))
        }
        refused = self.task_model.num_refused
        for evaluation in self.answers(index, {text: own for text, own in missing.items() if own}, role):
            is_cut = self.task_model.num_refused > refused  # then nobody can tell a failed call from one never made
            verdicts = {v.example_id: v for v in evaluation.verdicts if not (is_cut and v.correct is None)}
            known.setdefault(evaluation.instruction, {}).update(verdicts)

    def answers(self, index: int, asked: Mapping[str, Sequence[Example]], role: str) -> list[Evaluation]:
        """The evaluation of each instruction on its own examples, all calls under way at once."""
        what, questions = f"{self.names[index]} dev, {role}", self._questions(index, asked)
        with answers_bar(what, self.samples * sum(map(len, asked.values())), leave=False) as progress:
            return evaluate(questions, self.task_model, scoring=self.scoring, samples=self.samples, progress=progress)

    def paid_for(
        self, index: int, texts: Sequence[str], examples: Sequence[Example], calls: float
    ) -> Sequence[Example]:
        """The first of the examples, as many as so many calls ask each text on; a kept answer takes none."""

        def missing(size: int) -> int:
            questions = self._questions(index, dict.fromkeys(texts, examples[:size]))
            asked = (call for question in questions for call in question.calls(self.scoring, self.samples))
            return self.task_model.num_missing(asked)

        return examples[: bisect_right(range(len(examples) + 1), calls, key=missing) - 1]

    def _questions(self, index: int, asked: Mapping[str, Sequence[Example]]) -> list[Question]:
        row = self.data.rows[index]
        task, asking = self.data.tasks[row.dataset_name], self.data.asking_of(row)
        return [Question(asking, task, row, text, examples) for text, examples in asked.items()]

    def mean(self, index: int, texts: Sequence[str]) -> float | None:
        """The mean score of the usable ones of `texts` over a look's examples; a failed call counts as wrong.

        None where there is no usable one, or the budget left nothing for them.
        """
        row, known = self.data.rows[index], self.of(index).dev
        looked = [example.id for example in look_examples(self.config, self.data, row)]
        told = [(text, {e: known[text][e] for e in looked if e in known[text]}) for text in texts if text in known]
        if self.goes_by_own_rewards(row):
            weight = self._weight_of_verdicts(row)
            scores = [self.rewards_of(index, text, own) / weight for text, own in told if own]
        else:
            scores = [self.value[row.dataset_name](verdict) for _, own in told for verdict in own.values()]
        return statistics.fmean(scores) if scores else None

    def entry(self, index: int, text: str, worth: Mapping[str, Estimate], beside: str) -> dict[str, Any]:
        """What best.json says of an instruction: the estimate, and the scores on the examples that another one has too,
        so that the two can be compared."""
        dev = self.of(index).dev
        verdicts = [verdict for example, verdict in dev.get(text, {}).items() if example in dev.get(beside, {})]
        return {"estimate": worth[text].mean, "sd": worth[text].sd, **self._summary(index, text, verdicts)}

    def what_it_is(self, index: int) -> dict[str, Any]:
        """A row's task, subject and level, as dev.jsonl and best.json carry them."""
        row = self.data.rows[index]
        return {"task": row.dataset_name, "subject": row.subject, "level": row.level}

    def write_line(
        self,
        index: int,
        text: str,
        role: str,
        step: int | None,
        estimate: Estimate | None,
        verdicts: Sequence[Verdict] | None = None,
    ) -> None:
        """A line of dev.jsonl. verdicts: those of the test; None = all that the instruction has on the race's part."""
        shown = list(self.of(index).dev.get(text, {}).values()) if verdicts is None else verdicts
        line: dict[str, Any] = {"step": step, "stage": self.stage, "row": self.names[index], **self.what_it_is(index)}
        line |= {"role": role, "rewrite": text, **self._summary(index, text, shown)}
        if estimate is not None:
            line |= {"estimate": estimate.mean, "sd": estimate.sd}
        verdicts_by_example = {"verdicts": [v.correct for v in shown], "examples": [v.example_id for v in shown]}
        self.journal.write_dev(line | verdicts_by_example)

    def _summary(self, index: int, text: str, verdicts: Sequence[Verdict]) -> dict[str, Any]:
        """What dev.jsonl and best.json say of an instruction's verdicts."""
        summary = summarise(self.data.tasks[self.data.rows[index].dataset_name], Evaluation(text, "", tuple(verdicts)))
        accuracy = summary.accuracy
        return {
            "n": summary.n - summary.failed,
            "failed": summary.failed,
            "score": accuracy.value if accuracy else None,
            "interval": (accuracy.interval.low, accuracy.interval.high) if accuracy else None,
            "macro_f1": summary.macro_f1.value if summary.macro_f1 else None,
            "recall": summary.recall,
            "majority": summary.majority,
        }

    def _asking(self, row: InstructionRow) -> list[WeightedReward]:
        """The rewards that read what the task model says to the row's rewrites."""
        return [e for e in self.data.rewards if e.reward.asking and self.data.asks_about(row, e.reward.asking)]

    def _weight_of_verdicts(self, row: InstructionRow) -> float:
        return sum(abs(entry.weight) for entry in self._asking(row)) or 1.0


def failed_as(right: bool, verdict: Verdict) -> Verdict:
    """The verdict; of a failed call that it was right, or wrong: no failure makes a rewrite look better."""
    return verdict if verdict.correct is not None else replace(verdict, correct=right, f1=float(right))


def _about(mean: float, scores: Mapping[str, float]) -> dict[str, float]:
    """The scores, moved so that this is their mean: how far they lie apart says how unsure it is."""
    shift = mean - statistics.fmean(scores.values())
    return {example: score + shift for example, score in scores.items()}


def _value(config: Config, data: RewriteData, task: Task) -> Callable[[Verdict], float]:
    """A verdict's score, 0 for a failed call.

    accuracy: right or wrong. f1: token F1. balanced_accuracy: right answers of rare labels count more, so that the mean
    is the mean recall; it also stands in for macro-F1, which is no mean over examples.
    """
    of_kind = next((name for name, kind in METRIC_KINDS.items() if kind == task.kind), None)
    by_f1 = any("f1" in entry.reward.name for entry in data.rewards)
    metric = config.selection.metric or (of_kind if by_f1 else None)
    if metric == of_kind == "f1":
        return lambda verdict: verdict.f1 or 0.0
    if metric == of_kind == "balanced_accuracy":
        golds = [str(example.target) for part in (data.train, data.dev) for example in part.get(task.name, ())]
        weight = {label: len(golds) / (len(task.labels) * max(1, golds.count(label))) for label in task.labels}
        return lambda verdict: weight[str(verdict.target)] * (verdict.score or 0.0)
    return lambda verdict: verdict.score or 0.0

"""Choosing: candidates are judged on held-out (dev) examples, and the best instruction a task is kept."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from prewrite.config import SelectionSettings
from prewrite.engine.scoring import Asked, Scoring, answers_bar, ask_and_grade
from prewrite.evaluation.evaluation import Summary, summarise
from prewrite.reporting.journal import Journal
from prewrite.tasks.base import Task
from prewrite.types import Example, InstructionRow, Rollout


@dataclass(frozen=True)
class Standing:
    """An instruction with its score on the dev examples of its task."""

    instruction: str
    step: int
    summary: Summary

    @property
    def score(self) -> float:
        """Dev accuracy; nothing is below it where no example has a verdict."""
        return self.summary.accuracy.value if self.summary.accuracy else -math.inf

    @property
    def least_score(self) -> float:
        """Its score were every answer that failed a wrong one: a failed call never makes a rewrite look better."""
        return self.score * (1 - self.summary.failed / self.summary.n) if self.summary.accuracy else -math.inf


class Selection:
    """Judges rewrites on dev and remembers the best of each task. Rank 0 alone has one."""

    def __init__(
        self,
        settings: SelectionSettings,
        tasks: Mapping[str, Task],
        dev: Mapping[str, Sequence[Example]],
        task_model: Asked,
        journal: Journal,
        *,
        scoring: Scoring,
        config_hash: str,
    ):
        self.settings, self.tasks, self.dev, self.task_model = settings, tasks, dev, task_model
        self.journal, self.config_hash = journal, config_hash
        self.scoring: Scoring = scoring
        self.initial: dict[str, Standing] = {}
        self.best: dict[str, Standing] = {}
        self._rewards: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        self._looked_at: dict[str, dict[str, Standing]] = defaultdict(dict)

    def judge_initial(self, rows: Sequence[InstructionRow]) -> None:
        """The baseline of every task: the best of its initial instructions."""
        for task, instructions in _by_task((row.dataset_name, row.instruction) for row in rows).items():
            standings = self._judge(task, instructions, "initial", step=0)
            self.initial[task] = self.best[task] = max(standings, key=lambda standing: standing.score)
        self._write_best()

    def note(self, rollouts: Sequence[Rollout]) -> None:
        """Remembers the rewards of a step's rewrites: the best of them are candidates of the next look."""
        for rollout in rollouts:
            if rollout.reward is not None and rollout.rewrite:
                self._rewards[rollout.row.dataset_name][rollout.rewrite].append(rollout.reward)

    def look(
        self, step: int, greedy: Sequence[tuple[str, str]], sampled: Sequence[tuple[str, str]]
    ) -> dict[str, float]:
        """Judges the greedy rewrites, those with the best mean reward so far, and rewrites sampled for this look.

        greedy, sampled: (task, rewrite). Returns what the step's line shows: the best score, the greedy one, and the
        mean of the sampled ones, which is the policy's own, without any choosing.
        """
        shown: dict[str, float] = {}
        by_task = {name: _by_task(pairs) for name, pairs in {"greedy": greedy, "sampled": sampled}.items()}
        for task in self.initial:
            seen = self._rewards[task]
            untried = [rewrite for rewrite in seen if rewrite not in self._looked_at[task]]
            untried.sort(key=lambda rewrite: -sum(seen[rewrite]) / len(seen[rewrite]))
            standings = self._judge(task, by_task["greedy"].get(task, []), "greedy", step)
            shown[f"dev_greedy/{task}"] = _mean(standings)
            standings += self._judge(task, untried[: self.settings.num_candidates], "candidate", step)
            if task in by_task["sampled"]:
                judged = self._judge(task, by_task["sampled"][task], "sampled", step)
                shown[f"dev_sampled_mean/{task}"] = _mean(judged)
                standings += judged
            champion = max(standings, key=lambda standing: standing.least_score, default=self.best[task])
            if champion.least_score > self.best[task].score:
                self.best[task] = champion
            shown[f"dev_best/{task}"] = self.best[task].score
        self._write_best()
        return shown

    def _judge(self, task: str, instructions: Sequence[str], role: str, step: int) -> list[Standing]:
        """A standing for each instruction that is not empty; one that was looked at before is not asked again."""
        known = self._looked_at[task]
        fresh = [text for text in dict.fromkeys(instructions) if text and text not in known]
        examples = self.dev[task]
        with answers_bar(f"{task} dev, {role}", len(fresh) * len(examples), leave=False) as progress:
            own_examples = [examples] * len(fresh)
            evaluations = ask_and_grade(
                self.tasks[task], fresh, own_examples, self.task_model, scoring=self.scoring, progress=progress
            )
        for evaluation in evaluations:
            known[evaluation.instruction] = Standing(
                evaluation.instruction, step, summarise(self.tasks[task], evaluation)
            )
        verdicts = {evaluation.instruction: evaluation.verdicts for evaluation in evaluations}
        for text in instructions:
            if not text:
                continue
            look = {"step": step, "task": task, "role": role, "rewrite": text, **_scores(known[text].summary)}
            self.journal.write_dev(look | {"verdicts": [v.correct for v in verdicts.get(text, ())]})
        return [known[text] for text in instructions if text]

    def _write_best(self) -> None:
        self.task_model.check_failure_share()  # of the whole look, before any of it is called the best
        self.journal.write_best(
            {
                task: {
                    "instruction": best.instruction,
                    **_scores(best.summary),
                    "baseline": {
                        "instruction": self.initial[task].instruction,
                        **_scores(self.initial[task].summary),
                    },
                    "step": best.step,
                    "looked_at": len(self._looked_at[task]),
                    "config_hash": self.config_hash,
                }
                for task, best in self.best.items()
            }
        )


def _scores(summary: Summary) -> dict[str, Any]:
    accuracy = summary.accuracy
    return {
        "n": summary.n - summary.failed,
        "failed": summary.failed,
        "score": accuracy.value if accuracy else None,
        "interval": [accuracy.interval.low, accuracy.interval.high] if accuracy else None,
        "macro_f1": summary.macro_f1.value if summary.macro_f1 else None,
        "recall": summary.recall,
    }


def _by_task(pairs: Any) -> dict[str, list[str]]:
    grouped: dict[str, list[str]] = defaultdict(list)
    for task, text in pairs:
        grouped[task].append(text)
    return dict(grouped)


def _mean(standings: Sequence[Standing]) -> float:
    scores = [standing.score for standing in standings if standing.summary.accuracy]
    return sum(scores) / len(scores) if scores else math.nan

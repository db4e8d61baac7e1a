"""The objective `solve`: the policy answers problems itself; its answers' own correctness and form are the reward."""

import random
import statistics
from collections.abc import Callable, Mapping, Sequence

from prewrite.config import Config
from prewrite.engine import distributed
from prewrite.engine.distributed import World
from prewrite.engine.sampler import Sampler
from prewrite.report.folder import read_folder
from prewrite.reporting.journal import Journal
from prewrite.reporting.looks import look_table
from prewrite.rewards import Skip
from prewrite.training.objectives.base import Mark, Parts, WeightedReward
from prewrite.training.objectives.solve_data import Problem, SolveData
from prewrite.training.progress import Progress
from prewrite.training.rollout import roll_out
from prewrite.types import Example, Rollout, Sample, Sampled


class Solve:
    """An `Objective`. No task model is asked. Problems that tell nothing may be set aside for some passes."""

    def __init__(self, config: Config, data: SolveData, world: World, journal: Journal | None, progress: Progress):
        self.config, self.data, self.world, self.journal, self.progress = config, data, world, journal, progress
        self.rewards: Sequence[WeightedReward] = data.rewards
        self.rows: Sequence[Example] = [problem.example for problem in data.train]
        self._drawn: dict[tuple[int, int], int] = {}

    def choose(self, index: int, group: int, draw: int) -> int:
        """The problem; where it is set aside, another one, by seed, that no group of the draw is of."""
        if self._is_aside(index, group):
            taken = {one for (drawn, _), one in self._drawn.items() if drawn == draw}
            others = [one for one in range(len(self.rows)) if one not in taken and not self._is_aside(one, group)]
            if others:  # else there is nothing better than the problem itself
                index = random.Random(f"{self.config.seed}/{draw}/{group}").choice(others)
        return index

    def request(self, index: int, group: int, draw: int) -> Sequence[int]:
        """The problem as a chat."""
        if not any(drawn == draw for drawn, _ in self._drawn):
            self._drawn.clear()
        self._drawn[draw, group] = index
        return self.data.train[index].request

    def read(self, index: int, group: int, draw: int, sample: Sample) -> Sampled:
        """The sample with the problem that was asked."""
        return Sampled(sample, self.rows[self._drawn[draw, group]], group, sample.text)

    def score_ahead(self, sampled: Sampled, draw: int) -> None:
        """Nothing: grading is quick."""

    def score(self, sampled: Sequence[Sampled], draw: int) -> list[Mark]:
        """See `Objective.score`; also learns which problems tell nothing."""
        with distributed.together("scoring solutions"):
            parts = self._parts(sampled, [self.data.train[self._drawn[draw, one.group]] for one in sampled])
        if self.config.data.set_aside_passes:
            self._set_aside(sampled, parts, draw)
        return [Mark(part) for part in parts]

    def remember(self, rollouts: Sequence[Rollout], step: int) -> None:
        """Nothing: `score` has seen groups too that no step is taken on."""

    def affords(self, num_rollouts: int) -> bool:
        """Always: no call is paid for."""
        return True

    def evaluate(self, step: int, sampler: Sampler) -> dict[str, float]:
        """The mean of every reward over greedy answers to the held-out problems, and over sampled ones. Collective."""
        shown: dict[str, float] = {}
        held_out = self.data.held_out
        for sampling, count in (("greedy", 1), ("sampled", self.config.selection.num_sampled)):
            if not count:
                continue
            requests = [problem.request for problem in held_out]
            sampled = roll_out(sampler, requests, count, self.world, self._answer, greedy=sampling == "greedy")
            with distributed.together("scoring held-out solutions"):
                parts = self._parts(sampled, [held_out[one.group] for one in sampled])
                mine = [(one.group, part) for one, part in zip(sampled, parts, strict=True)]
            marks = [pair for part in distributed.gather(mine) for pair in part]
            for task in dict.fromkeys(problem.task.name for problem in held_out):
                own = [part for index, part in marks if held_out[index].task.name == task]
                means = self._means(own)
                shown[f"dev_{sampling}/{task}"] = means["total"]
                if sampling == "greedy":
                    shown |= {f"dev_{name}/{task}": mean for name, mean in means.items() if name != "total"}
                if self.journal is not None:
                    line = {"step": step, "task": task, "sampling": sampling, "n": len(own), "rewards": means}
                    self.journal.write_dev(line)
        return shown

    def finish(self, step: int, sampler: Sampler) -> dict[str, float]:
        """Nothing: the last look is the end."""
        return {}

    def counts(self) -> dict[str, float]:
        """Nothing is asked."""
        return {}

    def spent(self) -> dict[str, float]:
        """Nothing is asked."""
        return {}

    def outlook(self, steps: int, say: Callable[[str], None]) -> None:
        """How many problems there are, and how often each comes."""
        say(self.data.outlook(self.config, steps, self.world.size))

    def summary(self) -> str:
        """Every reward at every look, those before a resume included."""
        return "" if self.journal is None else look_table(read_folder(self.journal.folder).dev)

    def _answer(self, index: int, sample: Sample) -> Sampled:
        return Sampled(sample, self.data.held_out[index].example, index, sample.text)

    def _parts(self, sampled: Sequence[Sampled], problems: Sequence[Problem]) -> list[Parts]:
        parts: list[Parts] = [{} for _ in sampled]
        for entry in self.rewards:
            scores = entry.reward.score(
                [one.sample for one in sampled],
                [problem.example for problem in problems],
                tasks=[problem.task for problem in problems],
                examples=[()] * len(sampled),
                rewrites=[one.output for one in sampled],
                parameters=entry.parameters,
            )
            for part, score in zip(parts, scores, strict=True):
                if not isinstance(score, Skip):
                    part[entry.reward.name] = score
        return parts

    def _means(self, marks: Sequence[Parts]) -> dict[str, float]:
        """Of each reward, and as "total" of their weighted sum; a reward without any verdict is left out."""
        means: dict[str, float] = {}
        for entry in self.rewards:
            known = [score for part in marks if (score := part.get(entry.reward.name)) is not None]
            if known:
                means[entry.reward.name] = statistics.fmean(known)
        return {"total": sum(entry.weight * means.get(entry.reward.name, 0.0) for entry in self.rewards)} | means

    def _pass(self, group: int) -> int:
        return (self.progress.place + group) // len(self.rows)

    def _is_aside(self, index: int, group: int) -> bool:
        return self.progress.set_aside.get(index, 0) > self._pass(group)

    def _set_aside(self, sampled: Sequence[Sampled], parts: Sequence[Mapping[str, float | None]], draw: int) -> None:
        """Notes the problems of a batch that all or none of their samples solved, the same on every rank."""
        mine = [(one.group, part.get("accuracy_reward")) for one, part in zip(sampled, parts, strict=True)]
        solved: dict[int, set[float]] = {}
        for group, score in (pair for part in distributed.gather(mine) for pair in part):
            if score is not None:
                solved.setdefault(group, set()).add(score)
        for group, scores in solved.items():
            if len(scores) == 1:
                back = self._pass(group) + 1 + self.config.data.set_aside_passes
                self.progress.set_aside[self._drawn[draw, group]] = back

"""The objective `rewrite`: the policy rewrites instructions, and the task model's success with them is the reward."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from prewrite.asking import MINI_BATCH, Asking
from prewrite.asking.cleaning import clean_rewrite
from prewrite.asking.guards import Fault, wording_fault
from prewrite.asking.questions import Question, Scoring, evaluate
from prewrite.config import Config
from prewrite.engine import distributed
from prewrite.engine.sampler import Sampler
from prewrite.engine.task_model import TaskModel
from prewrite.errors import UserError
from prewrite.reporting.written import Written, as_before
from prewrite.rewards import Skip
from prewrite.training.objectives.base import Mark, Parts
from prewrite.training.objectives.budget import Budget
from prewrite.training.objectives.call_plan import (
    calls_each,
    forecast,
    num_races,
    outlook,
    planned,
    race_calls,
    reserve,
)
from prewrite.training.objectives.held_out import HeldOut
from prewrite.training.objectives.requests import Request, Requests
from prewrite.training.objectives.rewrite_data import RewriteData
from prewrite.training.progress import Progress
from prewrite.types import Evaluation, Example, InstructionRow, Rollout, Sample, Sampled, Verdict

SCRIPT_EXAMPLES = 8  # of a task, that say in which scripts it is written
SPARE = 1.3  # fresh rewrites drawn for each that is wanted: some are alike, or faulty


class Rewrite:
    """An `Objective`. All rollouts of a group are scored on the same examples, drawn by seed."""

    def __init__(
        self,
        config: Config,
        data: RewriteData,
        requests: Requests,
        held_out_requests: Sequence[Sequence[int]],
        task_model: TaskModel,
        held_out: HeldOut | None,
        progress: Progress,
        written: Written | None = None,
    ):
        self.config, self.data, self.rewards = config, data, data.rewards
        self.requests, self.held_out_requests = requests, held_out_requests
        self.task_model, self.held_out, self.progress, self.written = task_model, held_out, progress, written
        self.scoring: Scoring = config.task_model.scoring
        self.budget = Budget(config.budget, task_model, progress)
        self._counts: dict[str, float] = {}  # up to the last step
        self.samples = config.task_model.samples_per_query
        self._drawn: dict[tuple[int, int], Request] = {}
        self._update_requests()

    @property
    def rows(self) -> Sequence[InstructionRow]:
        """The instruction rows."""
        return self.data.rows

    def choose(self, index: int, group: int, draw: int) -> int:
        """The row itself."""
        return index

    def request(self, index: int, group: int, draw: int) -> Sequence[int]:
        """The row's instruction, or a better one of it, to be rewritten."""
        if not any(drawn == draw for drawn, _ in self._drawn):
            self._drawn.clear()
        request = self._drawn[draw, group] = self.requests.draw(index, f"{draw}/{group}")
        return request.token_ids

    def read(self, index: int, group: int, draw: int, sample: Sample) -> Sampled:
        """The sample with the rewrite in it."""
        self.budget.add([sample])
        row, request = self.rows[index], self._drawn[draw, group]
        shown = None if request.parent == row.instruction else request.parent
        return Sampled(sample, row, group, clean_rewrite(sample.text), shown=shown)

    def score_ahead(self, sampled: Sampled, draw: int) -> None:
        """Starts the sample's calls, so that they are under way while others are written."""
        with suppress(UserError):  # `score` meets it again, where the ranks fail together
            for asking in self.data.ways:
                for question in self._questions([sampled], asking, draw):
                    if question is not None:
                        self.task_model.ask_ahead(question.calls(self.scoring, self.samples))

    def score(self, sampled: Sequence[Sampled], draw: int) -> list[Mark]:
        """See `Objective.score`; raises UserError past the share of failed calls."""
        with distributed.together("scoring rewrites"):
            marks = self._score(sampled, draw)
            self.task_model.check_failure_share()
        return marks

    def _score(self, sampled: Sequence[Sampled], draw: int) -> list[Mark]:
        evaluations = {asking: self._evaluations(sampled, asking, draw) for asking in self.data.ways}
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
        return [
            Mark(part, self._train_verdicts(_instruction(one), index, evaluations))
            for index, (one, part) in enumerate(zip(sampled, parts, strict=True))
        ]

    def _train_verdicts(
        self, row: InstructionRow, index: int, evaluations: Mapping[Asking, Sequence[Evaluation | None]]
    ) -> tuple[Verdict, ...]:
        """What the estimate reads of sample `index`: the verdicts of the way of asking that dev is asked by."""
        own = evaluations.get(self.data.asking_of(row))
        evaluation = own[index] if own is not None and self.data.dev else None
        return evaluation.verdicts if evaluation is not None else ()

    def examples(self, row: InstructionRow, group: int, draw: int, asking: Asking | None) -> list[Example]:
        """The mini-batch that scores a group: the same on every rank, another one for every group and draw.

        Raises UserError where the way of asking narrows it and no train example is left.
        """
        if asking is not None and not self.data.asks_about(row, asking):
            return []
        pool = self.data.train.get(row.dataset_name, ())
        return (asking or MINI_BATCH).draw(
            row, pool, self.config.reward.examples_per_rewrite, f"{self.config.seed}/{draw}/{group}"
        )

    def remember(self, rollouts: Sequence[Rollout], step: int) -> None:
        """Takes the verdicts in, and chooses by them what is rewritten next. Collective."""
        if self.held_out is not None:
            self.held_out.remember(rollouts, step)
        self._update_requests()

    def affords(self, num_rollouts: int) -> bool:
        """Whether another batch fits beside the last look, the race and the test."""
        self.budget.update()
        most = self.budget.most
        if most is None:
            return True
        batch = num_rollouts * calls_each(self.config, self.data)
        return self.budget.spent + batch + reserve(self.config, self.data, most) <= most

    def evaluate(self, step: int, sampler: Sampler) -> dict[str, float]:
        """Greedy rewrites, and new samples, of every held-out row, judged on held-out examples. Collective."""
        self.budget.update(alone=True)
        shown = self._evaluate(step, sampler)
        self.budget.update()
        return shown

    def _evaluate(self, step: int, sampler: Sampler) -> dict[str, float]:
        shown, num_sampled = dict[str, float](), self.config.selection.num_sampled
        if step == self.progress.stage_start:
            with distributed.together("judging the initial instruction"):
                shown = self.held_out.evaluate_initial(step) if self.held_out is not None else {}
            if not num_sampled:
                return shown
        greedy = self._write(sampler, 1, "greedy")
        sampled = self._write(sampler, num_sampled, "sampled")
        with distributed.together("judging rewrites on held-out examples"):
            if self.held_out is not None:
                shown |= self.held_out.evaluate(step, greedy, sampled)
        self._update_requests()  # from all that is known, as the start of a resumed run makes them
        return shown

    def finish(self, step: int, sampler: Sampler) -> dict[str, float]:
        """The races among all rewrites, fresh ones where they have room, and the test of the winner. Collective."""
        self.budget.update(alone=True)
        most, shown = self.budget.most, {}
        left = race_calls(self.config, self.data, most, self.budget.spent) // self.samples  # as many answers
        races = num_races(self.config, self.data, left)
        for race in range(races):
            if race:
                self._update_requests()  # what the race before found best
            calls = left // (races - race)
            wanted = distributed.broadcast(self.held_out.wanted_samples(calls) if self.held_out is not None else 0)
            fresh = self._write_for_race(sampler, int(SPARE * wanted), race)
            with distributed.together("choosing the best rewrite"):
                if self.held_out is not None and race < races - 1:
                    left -= self.held_out.race(step, fresh, calls)
                elif self.held_out is not None:
                    shown = self.held_out.finish(step, fresh, calls, most)
        return shown

    def counts(self) -> dict[str, float]:
        """Calls, tokens and money since the start, over all ranks."""
        return self.budget.update()

    def spent(self) -> dict[str, float]:
        """Calls, tokens and money since this was last asked, over all ranks."""
        before, self._counts = self._counts, self.counts()
        return {name: total - before.get(name, 0.0) for name, total in self._counts.items()}

    def outlook(self, steps: int, say: Callable[[str], None]) -> None:
        """The calls by part; and tokens, money and time as soon as the first calls are back."""
        self._counts = self.counts()
        kept = distributed.gather(self.task_model.spending.kept_used()["requests"])
        world_size = len(kept)
        say(outlook(self.config, self.data, steps, world_size))
        if sum(kept):
            told = "they are not paid for again, and count against the limits"
            say(f"  {sum(kept):,.0f} answers of an earlier start are kept: {told}")
        training, *_, together = planned(self.config, self.data, steps, world_size)
        rollouts = training.most / max(1, calls_each(self.config, self.data))
        longest = max(map(len, self.held_out_requests), default=0)
        tokens = (int(rollouts * longest), int(rollouts * self.config.rollout.max_completion_length))
        spending = self.task_model.spending
        spending.when_sampled = lambda: say(forecast(self.config, together.expected, spending, tokens))

    def summary(self) -> str:
        """The initial and the best instruction with their scores."""
        return self.held_out.summary() if self.held_out is not None else ""

    def _write(self, sampler: Sampler, count: int, what: str) -> list[list[str]]:
        """`count` rewrites of each held-out row; truncated ones are "", as in training."""
        rows, requests = self.data.held_out_rows, self.held_out_requests
        own = [[Request(tokens, row.instruction)] for row, tokens in zip(rows, requests, strict=True)]
        return self._write_each(sampler, own, count, what)

    def _write_for_race(self, sampler: Sampler, count: int, race: int) -> list[list[str]]:
        """`count` rewrites of each row for race number `race`, from 0; from the second on of what did best before."""
        if not race:
            return self._write(sampler, count, "race 0")
        which = range(len(self.held_out_requests))
        drawn = [[self.requests.draw(index, f"race {race}/{copy}") for copy in range(count)] for index in which]
        return self._write_each(sampler, drawn, 1, f"race {race}")

    def _write_each(
        self, sampler: Sampler, requests: Sequence[Sequence[Request]], count: int, what: str
    ) -> list[list[str]]:
        """`count` rewrites of each of a held-out row's requests, by row. what: "greedy", or what they are for."""
        asked = [request.token_ids for own in requests for request in own] if count else []
        if not asked:
            return [[] for _ in requests]
        written = sampler.sample(asked, [count] * len(asked), greedy=what == "greedy")
        if self.held_out is not None:  # on rank 0: every rank writes the same, or its own for nobody
            self.budget.add(sample for own in written for sample in own)
        samples = iter(written)
        rewrites = [
            [self._whole(row, sample, request.parent) for request in own for sample in next(samples)]
            for row, own in zip(self.data.held_out_rows, requests, strict=True)
        ]
        return as_before(self.written, (self.progress.stage, self.progress.step, what), rewrites)

    def _whole(self, row: InstructionRow, sample: Sample, parent: str) -> str:
        """The rewrite in a sample, "" where it has a fault that can be told without a mini-batch."""
        rewrite = clean_rewrite(sample.text)
        return "" if self._fault(row, sample, rewrite, parent, self.data.asking_of(row), ()) else rewrite

    def _update_requests(self) -> None:
        """What requests start from, from rank 0, which knows all verdicts, to every rank."""
        settings = self.config.selection
        if settings.num_parents == settings.num_races == 1:
            return
        with distributed.together("choosing what is rewritten next"):
            parents = self.held_out.parents() if self.held_out is not None else []
        self.requests.parents = distributed.broadcast(parents) or self.requests.parents

    def _evaluations(self, sampled: Sequence[Sampled], asking: Asking, draw: int) -> list[Evaluation | None]:
        """One evaluation a sample, all calls under way at once; None where the answers would not count."""
        questions = self._questions(sampled, asking, draw)
        asked = [question for question in questions if question]
        evaluations = iter(evaluate(asked, self.task_model, scoring=self.scoring, samples=self.samples))
        return [next(evaluations) if question else None for question in questions]

    def _questions(self, sampled: Sequence[Sampled], asking: Asking, draw: int) -> list[Question | None]:
        questions: list[Question | None] = []
        for one in sampled:
            row = _instruction(one)
            examples = self.examples(row, one.group, draw, asking)
            parent = row.instruction if one.shown is None else one.shown
            fault = self._fault(row, one.sample, one.output, parent, asking, examples)
            is_asked = self.data.asks_about(row, asking) and fault is None
            task = self.data.tasks[row.dataset_name]
            questions.append(Question(asking, task, row, one.output, examples) if is_asked else None)
        return questions

    def _fault(
        self,
        row: InstructionRow,
        sample: Sample,
        rewrite: str,
        parent: str,
        asking: Asking,
        examples: Sequence[Example],
    ) -> Fault | None:
        """The faults of a rewrite. parent: the instruction that its request asked to rewrite."""
        is_own = parent == row.instruction
        known = row if is_own else replace(row, instruction=f"{row.instruction}\n{parent}")
        fault = asking.fault(sample, rewrite, known, examples)
        meta, labels = self.config.rollout.meta_instruction, self.data.tasks[row.dataset_name].labels
        known_examples = self.data.train.get(row.dataset_name, ())[:SCRIPT_EXAMPLES]
        return fault or wording_fault(rewrite, row.instruction, meta, labels, known_examples)


def _instruction(sampled: Sampled) -> InstructionRow:
    assert isinstance(sampled.row, InstructionRow)
    return sampled.row

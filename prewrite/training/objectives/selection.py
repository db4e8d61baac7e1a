"""Choosing each row's best instruction: looks on the way, a race at the end, and one test of what came out."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from prewrite.asking.questions import Asked
from prewrite.config import Config
from prewrite.config.loading import config_hash
from prewrite.evaluation.duel import make_duel
from prewrite.evaluation.statistics import mcnemar_test, paired_permutation_test
from prewrite.reporting.console import outcome
from prewrite.reporting.journal import Journal, plain
from prewrite.training.objectives.call_plan import AS_MANY, dev_parts, look_examples, test_rows
from prewrite.training.objectives.estimate import Estimate, ranked
from prewrite.training.objectives.ledger import Ledger, failed_as
from prewrite.training.objectives.race import FINALISTS, Round, course, plan_race, run_race
from prewrite.training.objectives.requests import distinct
from prewrite.training.objectives.rewrite_data import RewriteData
from prewrite.training.objectives.use import how_to_ask
from prewrite.training.progress import Candidate, Claim, Progress, Winner
from prewrite.types import Example, Rollout, Verdict

LEVEL = 0.05  # of the test


class Selection:
    """Which instruction of each row is the best. Rank 0 alone holds one.

    All that decides are verdicts on train examples and on the first part of dev. The test alone reads the second part,
    once.
    """

    def __init__(self, config: Config, data: RewriteData, task_model: Asked, journal: Journal, progress: Progress):
        self.config, self.data, self.task_model, self.journal = config, data, task_model, journal
        self.progress, self.before = progress, dict(progress.winners)
        self.config_hash = config_hash(config)
        self.ledger = Ledger(config, data, task_model, journal, progress)
        self.spent: dict[str, list[str]] = {name: [] for name in self.ledger.names}
        self.plans: dict[str, list[list[Round]]] = {name: [] for name in self.ledger.names}
        self.races, self.finalists = 0, dict[int, Sequence[str]]()  # of the last race, by row, best first
        self.duels: list[dict[str, Any]] = []

    def remember(self, rollouts: Sequence[Rollout], step: int) -> None:
        """Takes in what a step's rewrites did on train examples. step: the optimizer steps taken before them."""
        self.ledger.take_in(rollouts, step)

    def evaluate_initial(self, step: int) -> dict[str, float]:
        """Each row's own instruction, and what earlier stages kept beside it, on the examples of a look."""
        shown: dict[str, float] = {}
        for index, row in enumerate(self.data.rows):
            kept = [text for text in self.ledger.of(index).candidates if text != row.instruction]
            for role, texts in (("initial", [row.instruction]), ("kept", kept)):
                shown |= self._look(index, texts, role, step)
            self.ledger.of(index).best = row.instruction
        self._write_best()
        return shown | means_over_rows(shown)

    def evaluate(
        self, step: int, greedy: Sequence[Sequence[str]], sampled: Sequence[Sequence[str]]
    ) -> dict[str, float]:
        """Judges greedy rewrites and rewrites sampled for this look; their means, and the estimate of the best so far.

        The mean of the sampled ones is the policy's own score, without any choosing.
        """
        shown: dict[str, float] = {}
        for index, name in enumerate(self.ledger.names):
            for source, texts in (("greedy", greedy[index]), ("sampled", sampled[index])):
                self.ledger.add(index, texts, step, source)
                shown |= self._look(index, texts, source, step)
            worth = self.ledger.worth(index)
            best = ranked(worth)[0]
            self.ledger.of(index).best = best
            shown[f"dev_best/{name}"] = worth[best].mean
        self._write_best()
        return shown | means_over_rows(shown)

    def parents(self) -> list[list[str]]:
        """What is rewritten of each row. After a race half of the requests start from its best, others from others."""
        return list(map(self._parents, range(len(self.data.rows))))

    def _parents(self, index: int) -> list[str]:
        initial, best = self.data.rows[index].instruction, self.ledger.of(index).best
        first = [best or initial, *self.finalists[index]] if self.races else [initial]
        parents = distinct([*first, *self.ledger.judged(index)], self.config.selection.num_parents)
        return parents[:1] * (len(parents) - 2 if self.races else 0) + parents

    def wanted_samples(self, calls: int) -> int:
        """Fresh rewrites of each row that the next race has room for, beside those that take part anyway."""
        rows = range(len(self.ledger.names))
        plans = [self._plan(index, calls // max(1, len(rows)), AS_MANY) for index in rows]
        room = max((plan[0].contenders for plan in plans if plan), default=0)
        return max(0, room - min(len(self.finalists.get(index, self.ledger.of(index).train)) for index in rows))

    def race(self, step: int, fresh: Sequence[Sequence[str]], calls: int) -> int:
        """A race in each row, and best.json. fresh: rewrites of each row beside those known. calls: what it may spend.

        The first race is among all rewrites. In a later one the last of the race before meet the fresh ones. Returns
        the answers that it took.
        """
        share, asked = calls // max(1, len(self.ledger.names)), 0
        self.races += 1
        for index in range(len(self.ledger.names)):
            memory, source = self.ledger.of(index), "sampled" if self.races == 1 else f"race {self.races}"
            new = [text for text in dict.fromkeys(filter(None, fresh[index])) if text not in memory.train | memory.dev]
            self.ledger.add(index, new, step, source)
            asked += self._race(index, new, share, step)
        self._write_best()
        return asked

    def finish(
        self, step: int, fresh: Sequence[Sequence[str]], calls: int, most: int | None = None
    ) -> dict[str, float]:
        """The last race, then the test. most: all calls of the run that the budget allows; None = no limit."""
        self.race(step, fresh, calls)
        shown: dict[str, float] = {}
        for index, name in enumerate(self.ledger.names):
            memory = self.ledger.of(index)
            shown[f"dev_best/{name}"] = self.ledger.worth(index)[memory.best or ""].mean
            memory.claim = self._test(index, most)
            self._remember_race_duel(index)
        self.journal.write_wins_losses(self.duels)
        entries = self._write_best()
        for index, name in enumerate(self.ledger.names):
            self.progress.winners[name] = Winner(self._kept(index), plain(entries[name]))
        return shown | means_over_rows(shown)

    def summary(self) -> str:
        """For each row what was spent on choosing, the initial and the best instruction, and what the test says."""
        own = {name: entry for name, entry in self.journal.best.items() if name in self.ledger.names}
        spent = {name: "\n  ".join(told) for name, told in self.spent.items()}
        return outcome(own, spent, run_folder=str(self.journal.folder))

    def _plan(self, index: int, calls: int, rewrites: int) -> list[Round]:
        """A row's race. The initial instruction runs along in every round, at its own cost."""
        return plan_race(calls, rewrites, len(self.ledger.race_examples[index]), beside=1)

    def _race(self, index: int, new: Sequence[str], calls: int, step: int) -> int:
        """Finds a row's best instruction and the last ones beside it. Returns the answers that it took."""
        memory, initial = self.ledger.of(index), self.data.rows[index].instruction
        worth, last = self.ledger.worth(index), self.finalists.get(index)
        entrants = [*last, *new] if last else [text for text in ranked(worth) if text != initial]
        plan = self._plan(index, calls, len(entrants))
        before, refused, held = sum(map(len, memory.dev.values())), self.task_model.num_refused, list[Round]()
        name, which = self.ledger.names[index], f"race {self.races}" if self.config.selection.num_races > 1 else "race"
        if not plan:
            why = "no rewrite is left" if self._plan(index, calls, AS_MANY) else f"{calls} calls are too few for one"
            self.spent[name].append(f"no {which}: {why}")
            memory.best = memory.best if last else ranked(worth)[0]
            self.finalists[index] = last or entrants[:FINALISTS]
            return 0

        def ask(texts: Sequence[str], examples: int) -> None:
            self.ledger.ask(index, [initial, *texts], self.ledger.race_examples[index][:examples], "race")
            if self.task_model.num_refused == refused:
                held.append(Round(len(texts), examples))

        def rank(texts: Sequence[str]) -> Sequence[str]:
            nonlocal worth
            worth = self.ledger.worth(index)
            return ranked({text: worth[text] for text in texts})

        finalists = run_race(entrants, plan, ask, rank)
        for text in [initial, *entrants[: plan[0].contenders]]:
            self.ledger.write_line(index, text, "race", step, worth[text])
        asked = sum(map(len, memory.dev.values())) - before
        rounds, ended = course(plan, held, len(self.ledger.race_examples[index]))
        field = f"the best {plan[0].contenders} of {len(entrants)} rewrites by estimate"
        if last:
            field = f"{len(last)} rewrites of the race before and {len(new) or 'no'} fresh ones"
        self.spent[name].append(f"{which}: {field}, then {rounds} examples; {asked} answers, {ended}")
        self.plans[name].append(held)
        memory.best = self._winner(index, [initial, *finalists], plan[-1].examples, worth)
        self.finalists[index] = finalists
        examples, read = self.ledger.race_examples[index], plan[-1].examples
        # The next race begins where this one ended: who was lucky on these examples is not so again.
        self.ledger.race_examples[index] = [*examples[read:], *examples[:read]]
        return asked

    def _winner(self, index: int, texts: Sequence[str], count: int, worth: Mapping[str, Estimate]) -> str:
        """The best on the race's first `count` examples and others that all share, by the run's own rewards; with
        `selection.metric` by the estimate. Where the budget left some unasked, by its lower end: who was asked little
        is lucky."""
        examples, known = self.ledger.race_examples[index], self.ledger.of(index).dev
        shared = [example for example in examples if all(example.id in known.get(text, {}) for text in texts)]
        if shared[:count] != list(examples[:count]):
            return ranked({text: worth[text] for text in texts}, caution=1.0)[0]
        if self.config.selection.metric is not None:
            return ranked({text: worth[text] for text in texts})[0]
        own = {text: {example.id: known[text][example.id] for example in shared} for text in texts}
        form = self.ledger.of(index).form
        return max(texts, key=lambda text: form.get(text, 0.0) + self.ledger.rewards_of(index, text, own[text]))

    def _test(self, index: int, most: int | None) -> Claim | None:
        """The best against the initial instruction, on examples that nothing else has read; None where they are one."""
        row = self.data.rows[index]
        best = self.ledger.of(index).best
        assert best is not None
        examples = dev_parts(self.config, self.data, row)[1][: test_rows(self.config, self.data, row, most)]
        share = self.task_model.calls_left / (len(self.data.rows) - index)
        examples = self.ledger.paid_for(index, (best, row.instruction), examples, share)
        if best == row.instruction or not examples:
            return None
        first, second = (
            list(e.verdicts)
            for e in self.ledger.answers(index, dict.fromkeys([best, row.instruction], examples), "test")
        )
        # A failed call of the best one is a wrong answer, one of the initial one a right answer.
        if self.config.selection.metric in (None, "accuracy") and self.config.task_model.samples_per_query == 1:
            ours, theirs = [v.correct is True for v in first], [v.correct is not False for v in second]
            result = mcnemar_test(ours, theirs, alternative="greater")
        else:
            value, seed = self.ledger.value[row.dataset_name], self.config.seed
            ours = [value(failed_as(False, verdict)) for verdict in first]
            theirs = [value(failed_as(True, verdict)) for verdict in second]
            result = paired_permutation_test(ours, theirs, alternative="greater", seed=seed)
        for text, verdicts in ((best, first), (row.instruction, second)):
            self.ledger.write_line(index, text, "test", None, None, verdicts)
        self._remember_duel(index, "test", first, second, examples)
        return Claim(result.p_value <= LEVEL, result.p_value, result.wins, result.losses, len(examples))

    def _remember_race_duel(self, index: int) -> None:
        """Best against initial on the race's examples that both have."""
        memory, initial = self.ledger.of(index), self.data.rows[index].instruction
        ours, theirs = memory.dev.get(memory.best or "", {}), memory.dev.get(initial, {})
        shared = [example for example in self.ledger.race_examples[index] if example.id in ours.keys() & theirs.keys()]
        if memory.best != initial and shared:
            best, others = ([known[example.id] for example in shared] for known in (ours, theirs))
            self._remember_duel(index, "race", best, others, shared)

    def _remember_duel(
        self, index: int, where: str, best: Sequence[Verdict], initial: Sequence[Verdict], examples: Sequence[Example]
    ) -> None:
        memory, row = self.ledger.of(index), self.data.rows[index]
        others = [list(own.values()) for text, own in memory.dev.items() if text not in (memory.best, row.instruction)]
        columns = self.data.tasks[row.dataset_name].fields
        texts = {example.id: "\n".join(example.fields[column] for column in columns) for example in examples}
        duel = make_duel(best, initial, others, texts)
        self.duels.append({"row": self.ledger.names[index], "where": where, **asdict(duel)})

    def _look(self, index: int, texts: Sequence[str], source: str, step: int) -> dict[str, float]:
        """Asks on the examples of a look; the mean score, by the name of its metric, where there is one."""
        row = self.data.rows[index]
        self.ledger.ask(index, texts, look_examples(self.config, self.data, row), source)
        worth = self.ledger.worth(index) if self.ledger.goes_by_own_rewards(row) else {}  # else the score ranks alike
        for text in dict.fromkeys(filter(None, texts)):
            self.ledger.write_line(index, text, source, step, worth.get(text))
        mean, kind = self.ledger.mean(index, texts), "sampled_mean" if source == "sampled" else source
        return {} if mean is None else {f"dev_{kind}/{self.ledger.names[index]}": mean}

    def _kept(self, index: int) -> dict[str, Candidate]:
        """The best of a row, then others that are no near-copies, by the lower end of their estimates."""
        memory = self.ledger.of(index)
        assert memory.best is not None
        kept = distinct([memory.best, *self.ledger.judged(index)], self.config.selection.num_parents)
        return {text: memory.candidates[text] for text in kept}

    def _earlier(self, name: str, initial: str) -> list[dict[str, Any]]:
        """How the instruction that a row began with came about: a stage after another, the oldest first."""
        before = self.before.get(name)
        if before is None or before.instruction != initial:
            return []
        entry = before.entry
        told = {key: entry[key] for key in ("stage", "instruction", "step", "estimate", "test")}
        told |= {"baseline": entry["baseline"]["instruction"], "baseline_estimate": entry["baseline"]["estimate"]}
        return [*entry["earlier"], told]

    def _write_best(self) -> dict[str, dict[str, Any]]:
        """Writes best.json, with rows of earlier stages that this one does not have; returns this stage's entries."""
        self.task_model.check_failure_share()  # of the whole look, before any of it is called the best
        entries = {}
        for index, (name, row) in enumerate(zip(self.ledger.names, self.data.rows, strict=True)):
            memory, worth, initial = self.ledger.of(index), self.ledger.worth(index), row.instruction
            assert memory.best is not None
            sample = self.ledger.race_examples[index][0]
            entries[name] = {
                "instruction": memory.best,
                **self.ledger.entry(index, memory.best, worth, initial),
                "baseline": {"instruction": initial, **self.ledger.entry(index, initial, worth, memory.best)},
                "stage": self.progress.stage,
                "use": how_to_ask(self.config, self.data, row, memory.best, sample, self.task_model),
                "step": memory.candidates[memory.best].step,
                "num_candidates": len(memory.candidates),
                "races": [[(r.contenders, r.examples) for r in plan] for plan in self.plans[name]],
                "test": None if memory.claim is None else vars(memory.claim),
                **self.ledger.what_it_is(index),
                "tags": list(row.tags),
                "config_hash": self.config_hash,
                "run": self.config.run_name,
                "policy": self.config.policy.model,
                "earlier": self._earlier(name, initial),
            }
        self.journal.write_best({name: winner.entry for name, winner in self.before.items()} | entries)
        return entries


def means_over_rows(shown: Mapping[str, float]) -> dict[str, float]:
    """The mean of each measure over its rows, as "dev_best", where there is more than one row."""
    by_measure: dict[str, list[float]] = {}
    for key, value in shown.items():
        by_measure.setdefault(key.partition("/")[0], []).append(value)
    return {measure: sum(values) / len(values) for measure, values in by_measure.items() if len(values) > 1}

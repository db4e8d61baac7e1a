"""Choosing the best instruction: what is asked, what is believed, and what is claimed."""

import json
import random
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from prewrite.config import Config
from prewrite.config.loading import load_config
from prewrite.engine.task_wire import request_body
from prewrite.errors import UserError
from prewrite.evaluation.statistics import paired_power
from prewrite.reporting.journal import Journal
from prewrite.tasks import get_task
from prewrite.training.objectives.base import weighted_rewards
from prewrite.training.objectives.held_out import HeldOutQuestions
from prewrite.training.objectives.rewrite_data import RewriteData, row_names
from prewrite.training.objectives.selection import Selection
from prewrite.training.progress import Progress
from prewrite.types import Answer, Example, InstructionRow, Rollout, Sample, Verdict

FILE = Path(__file__).parent.parent / "configs" / "quickstart.json"
CONFIG = load_config(FILE)


class Scripted:
    """Answers right with each instruction's own probability, the same way every time; "f" in its place fails it."""

    def __init__(self, worth: Mapping[str, float | str], *, strict: bool = False, seed: int = 0):
        self.worth, self.strict, self.seed = worth, strict, seed
        self.queries: list[str] = []
        self.kept: set[str] = set()
        self.calls_left, self.num_refused = float("inf"), 0

    def ask(self, calls, *, progress=None):
        made = calls[: int(min(len(calls), self.calls_left))]
        self.calls_left, self.num_refused = self.calls_left - len(made), self.num_refused + len(calls) - len(made)
        self.queries += [call.query for call in made]
        refused = Answer(text=None, error="the budget is spent")
        return [self._answer(call.query) for call in made] + [refused] * (len(calls) - len(made))

    def _answer(self, query: str) -> Answer:
        instruction = max((text for text in self.worth if query.startswith(text)), key=len)
        chance = self.worth[instruction]
        if isinstance(chance, str):
            return Answer(text=None, error="gone")
        difficulty = random.Random(f"{self.seed}/{query.removeprefix(instruction)}").random()
        luck = random.Random(f"{self.seed}/{query}").random()
        right = 0.5 * difficulty + 0.5 * luck < _quantile(chance)
        return Answer("positive" if right else "negative")

    def body(self, call):
        return request_body(call, CONFIG.task_model, None)

    def num_missing(self, calls):
        return sum(call.query not in self.kept for call in calls)

    def ask_ahead(self, calls):
        raise AssertionError("choosing asks and waits")

    def check_failure_share(self):
        if self.strict:
            raise UserError("too many calls failed")


def _quantile(chance: float) -> float:
    """Where the mean of two uniform numbers lies below with this chance."""
    return (chance / 2) ** 0.5 if chance <= 0.5 else 1 - ((1 - chance) / 2) ** 0.5


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(load_config(FILE, [f"output_dir={tmp_path}"]))


def selection_with(
    task_model: Scripted,
    journal: Any,
    *initial: str,
    progress: Progress | None = None,
    dev: int = 400,
    labels: tuple[str, ...] = ("positive",),
    rewards: tuple[str, ...] = ("accuracy_classification_reward",),
    train: int = 0,
    **settings: Any,
) -> Selection:
    rows = [InstructionRow(text, "sst2") for text in initial]
    examples = [Example(str(i), {"text": f"text {i}"}, labels[i % len(labels)]) for i in range(dev + train)]
    config = Config.model_validate(CONFIG.model_dump() | {"selection": {"test_size": dev // 2, **settings}})
    weighted = weighted_rewards(config.reward.model_copy(update={"reward_funcs": list(rewards)}))
    own = {"sst2": examples[dev:]} if train else {}
    data = RewriteData(rows, rows, {"sst2": get_task("sst2")}, weighted, own, {"sst2": examples[:dev]})
    return Selection(config, data, task_model, journal, progress or Progress())


def best_of(journal: Journal, name: str = "sst2") -> dict[str, Any]:
    return json.loads((journal.folder / "best.json").read_text())[name]


def lines(journal: Journal, role: str) -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in (journal.folder / "dev.jsonl").read_text().splitlines()]
    return [row for row in rows if row["role"] == role]


def test_the_race_finds_the_best_and_the_test_proves_it(journal: Journal) -> None:
    worth = {"Initial": 0.5} | {f"Rewrite {i:02}": 0.4 + 0.01 * i for i in range(31)} | {"Best": 0.9}
    task_model = Scripted(worth)
    selection = selection_with(task_model, journal, "Initial")
    assert selection.evaluate_initial(0).keys() == {"dev_initial/sst2"}
    spent = len(task_model.queries)
    selection.finish(3, [[text for text in worth if text != "Initial"]], calls=2000)
    best = best_of(journal)
    assert best["instruction"] == "Best"
    assert best["test"]["proven"] is True
    assert best["test"]["p_value"] < 0.001
    assert best["test"]["n"] == 200
    assert best["baseline"]["instruction"] == "Initial"
    assert best["n"] == best["baseline"]["n"], "the two scores are of the same examples"
    assert len(task_model.queries) - spent <= 2000 + 2 * 200
    assert "proven" in selection.summary()
    assert "evaluate.py --prompts" in selection.summary()


def test_a_budget_that_ends_in_the_race_still_chooses_and_counts_nothing_against_those_not_asked(
    journal: Journal,
) -> None:
    worth = {"Initial": 0.3} | {f"Rewrite {i:02}": 0.3 for i in range(15)} | {"Best": 0.95}
    task_model = Scripted(worth)
    selection = selection_with(task_model, journal, "Initial")
    selection.evaluate_initial(0)
    task_model.calls_left = 150  # the first round alone takes more
    selection.finish(3, [["Best", *list(worth)[1:-1]]], calls=2000)
    assert task_model.num_refused > 0
    assert best_of(journal)["instruction"] == "Best"
    assert best_of(journal)["test"] is None, "there was nothing left for it"
    assert best_of(journal)["races"] == [[]], "no round was held whole"
    assert re.search(
        r"race: the best 16 of \d+ rewrites by estimate, then none .* the budget ended in round 1 of",
        selection.summary(),
    )
    verdicts = [verdict for known in selection.ledger.of(0).dev.values() for verdict in known.values()]
    assert len(verdicts) == len(task_model.queries)
    assert all(verdict.correct is not None for verdict in verdicts)


def test_no_race_reads_what_the_test_reads(journal: Journal) -> None:
    worth = {"Initial": 0.5} | {f"Rewrite {i}": 0.5 + 0.05 * i for i in range(8)}
    task_model = Scripted(worth)
    selection = selection_with(task_model, journal, "Initial")
    selection.evaluate_initial(0)
    selection.evaluate(1, [["Rewrite 1"]], [["Rewrite 2"]])
    selection.finish(2, [list(worth)[1:]], calls=5000)
    asked = {"race": set(), "test": set()}
    for place, query in enumerate(task_model.queries):
        example = query.split("text ")[-1]
        asked["test" if place >= len(task_model.queries) - 400 else "race"].add(example)
    assert len(asked["test"]) == 200
    assert not asked["race"] & asked["test"]
    assert len(lines(journal, "test")) == 2


def test_where_nothing_is_better_the_initial_one_stays_and_nothing_is_claimed(journal: Journal) -> None:
    worth = {"Initial": 0.8} | {f"Rewrite {i}": 0.4 for i in range(16)}
    selection = selection_with(Scripted(worth), journal, "Initial")
    selection.evaluate_initial(0)
    selection.finish(1, [list(worth)[1:]], calls=3000)
    assert best_of(journal)["instruction"] == "Initial"
    assert best_of(journal)["test"] is None
    assert "none of 16 rewrites is better" in selection.summary()


def test_verdicts_of_training_decide_who_runs(journal: Journal) -> None:
    progress = Progress()
    worth = {"Initial": 0.5, "Seen good": 0.8} | {f"Seen poor {i}": 0.3 for i in range(40)}
    selection = selection_with(Scripted(worth), journal, "Initial", progress=progress)
    selection.evaluate_initial(0)
    selection.remember([rollout("Initial", f"Seen poor {i}", 6, i) for i in range(40)], step=0)
    selection.remember([rollout("Initial", "Seen good", 18, 41)], step=0)
    selection.finish(1, [[]], calls=120)
    assert best_of(journal)["instruction"] == "Seen good"
    assert {row["rewrite"] for row in lines(journal, "race")} < set(worth)
    assert Progress.from_json(progress.to_json()) == progress


def rollout(instruction: str, text: str, right: int, key: int) -> Rollout:
    verdicts = tuple(Verdict(f"{key}-{i}", "positive", None, i < right, True) for i in range(20))
    row = InstructionRow(instruction, "sst2")
    reward = {"accuracy_classification_reward": right / 20}
    return Rollout(Sample((), (), (), text, "stop"), row, 0, text, right / 20, reward, 0.0, verdicts=verdicts)


def test_what_rewards_of_the_text_give_counts_for_rewrites_that_were_never_trained_on(journal: Journal) -> None:
    long = "Long " * 500
    selection = selection_with(Scripted({"Initial": 0.6, "Short": 0.75, long: 0.8}), journal, "Initial")
    penalty = CONFIG.reward.model_copy(update={"reward_funcs": ["accuracy_classification_reward", "length_penalty"]})
    selection.ledger.data = selection.data = replace(selection.data, rewards=weighted_rewards(penalty))
    selection.evaluate_initial(0)
    selection.finish(1, [["Short", long]], calls=1000)
    assert selection.ledger.of(0).form[long] == -1.0
    assert best_of(journal)["instruction"] == "Short"


class ByLabel(Scripted):
    """Right on each label with the instruction's own probability for it. In the examples they take turns."""

    def __init__(self, negative: Mapping[str, float], positive: Mapping[str, float]):
        super().__init__(dict(negative))
        self.by_label = (dict(negative), dict(positive))

    def _answer(self, query: str) -> Answer:
        label = int(query.rsplit(" ", 1)[1]) % 2
        self.worth = self.by_label[label]
        is_right = super()._answer(query).text == "positive"
        return Answer(("negative", "positive")[label if is_right else 1 - label])


def spotted(samples, rows, *, evaluations):
    """Points for each negative text that is recognised: a reward for which the positive ones do not count."""
    return [
        None
        if one is None
        else 100.0 * sum(v.prediction == v.target == "negative" for v in one.verdicts) / len(one.verdicts)
        for one in evaluations
    ]


def missed(samples, rows, *, evaluations):
    """What a negative weight is for: negative texts that are not recognised."""
    return [sum(v.target == "negative" and not v.correct for v in one.verdicts) / 100 for one in evaluations]


def least_recall(samples, rows, *, evaluations):
    """The lower one of the recalls of both labels; no verdict by itself says anything of it."""
    scores = []
    for one in evaluations:
        own = [[v.correct is True for v in one.verdicts if v.target == label] for label in ("negative", "positive")]
        scores.append(min(sum(right) / len(right) for right in own if right))
    return scores


ACCURATE = {f"Accurate {i:02}": 0.97 for i in range(31)}  # of positive texts; of negative ones 0.6, 0.1
OWN = ("spotted", {"Best": 0.95}, {"Best": 0.45}, 0.6), ("least_recall", {"Best": 0.5}, {"Best": 0.5}, 0.1)


@pytest.mark.parametrize(("name", "negative", "positive", "low"), OWN)
@pytest.mark.parametrize("beside", [(), ("f1_classification_reward",)])
def test_no_round_of_a_race_cuts_by_accuracy_what_the_own_reward_finds_best(
    journal: Journal, name: str, negative: dict, positive: dict, low: float, beside: tuple[str, ...]
) -> None:
    common = {"Initial": 0.5, **ACCURATE}
    task_model = ByLabel(dict.fromkeys(common, low) | negative, common | positive)
    rewards, labels = (f"tests.test_selection:{name}", *beside), ("negative", "positive")
    selection = selection_with(task_model, journal, "Initial", labels=labels, rewards=rewards, train=400)
    selection.evaluate_initial(0)
    selection.evaluate(1, [["Accurate 00"]], [["Accurate 01", "Best"]])
    assert best_of(journal)["instruction"] == "Best", "a look goes by it too"
    selection.finish(3, [[*ACCURATE, "Best"]], calls=2000)
    scores = {row["rewrite"]: row["score"] for row in lines(journal, "race")}
    assert scores["Best"] < min(scores[text] for text in selection.finalists[0] if text != "Best")
    assert best_of(journal)["instruction"] == "Best"
    estimates = {row["rewrite"]: row["estimate"] for row in lines(journal, "race")}
    assert max(estimates, key=lambda text: estimates[text]) == "Best", "what evaluate.py ranks by"
    assert all("estimate" in row for row in lines(journal, "greedy") + lines(journal, "sampled"))


@pytest.mark.parametrize("calls", [0, 180])
def test_who_runs_and_who_is_a_parent_is_decided_by_the_own_reward(journal: Journal, calls: int) -> None:
    """180 calls pay for a race among eight."""
    texts = {"Best": 0.9} | dict.fromkeys(ACCURATE, 0.6)
    task_model = ByLabel({"Initial": 0.5, **texts}, {"Initial": 0.5, **ACCURATE, "Best": 0.1})
    selection = selection_with(
        *(task_model, journal, "Initial"),
        labels=("negative", "positive"),
        rewards=("tests.test_selection:spotted",),
        train=400,
        num_parents=2,
    )
    selection.evaluate_initial(0)
    examples = selection.data.train["sst2"][:20]
    for text in texts:
        right = (9, 1) if text == "Best" else (6, 10)  # of the ten negative ones, of the ten positive ones
        verdicts = tuple(
            Verdict(one.id, one.target, one.target if is_right else None, is_right, is_right)
            for place, one in enumerate(examples)
            for is_right in (place // 2 < right[place % 2],)
        )
        selection.remember([replace(rollout("Initial", text, 0, 0), verdicts=verdicts)], step=0)
    assert selection.parents()[0][1] == "Best"
    assert selection.ledger.worth(0)["Best"].mean == pytest.approx(45, abs=5), "in the reward's own measure"
    selection.finish(1, [[]], calls=calls)
    assert best_of(journal)["instruction"] == "Best"


@pytest.mark.parametrize(("weight", "best"), [(-1.0, "Spots"), (0.0, "Accurate")])
def test_an_own_reward_counts_by_its_weight(journal: Journal, weight: float, best: str) -> None:
    task_model = ByLabel({"Initial": 0.5, "Accurate": 0.6, "Spots": 0.95}, {"Initial": 0.5, "Accurate": 1, "Spots": 0})
    selection = selection_with(
        *(task_model, journal, "Initial"),
        labels=("negative", "positive"),
        rewards=("tests.test_selection:missed", "accuracy_classification_reward"),
    )
    rewards = [replace(selection.data.rewards[0], weight=weight), selection.data.rewards[1]]
    selection.ledger.data = selection.data = replace(selection.data, rewards=rewards[: 1 if weight else 2])
    selection.evaluate_initial(0)
    selection.finish(1, [["Accurate", "Spots"]], calls=1000)
    assert best_of(journal)["instruction"] == best


def test_a_metric_goes_before_an_own_reward(journal: Journal) -> None:
    task_model = ByLabel({"Initial": 0.5, "Accurate": 0.6, "Spots": 0.95}, {"Initial": 0.5, "Accurate": 1, "Spots": 0})
    labels, rewards = ("negative", "positive"), ("tests.test_selection:spotted",)
    for metric, best in ((None, "Spots"), ("accuracy", "Accurate")):
        selection = selection_with(task_model, journal, "Initial", labels=labels, rewards=rewards, metric=metric)
        selection.evaluate_initial(0)
        selection.finish(1, [["Accurate", "Spots"]], calls=1000)
        assert best_of(journal)["instruction"] == best


def test_a_failed_call_never_makes_a_rewrite_look_better(journal: Journal) -> None:
    selection = selection_with(Scripted({"Initial": 0.6, "Fails": "f", "Good": 0.9}), journal, "Initial", dev=100)
    selection.evaluate_initial(0)
    selection.evaluate(1, [["Fails"]], [["Good"]])
    assert best_of(journal)["instruction"] == "Good"
    selection.finish(1, [[]], calls=2000)
    assert best_of(journal)["instruction"] == "Good"
    assert selection.ledger.worth(0)["Fails"].mean < 0.1


def test_answers_of_an_endpoint_that_fails_are_written_down_and_called_no_best(journal: Journal) -> None:
    selection = selection_with(Scripted({"Initial": "f"}, strict=True), journal, "Initial", dev=16)
    with pytest.raises(UserError, match="too many calls failed"):
        selection.evaluate_initial(0)
    assert lines(journal, "initial")[0]["failed"] == 8
    assert not (journal.folder / "best.json").exists()


class RightOnTheFirst(Scripted):
    """The initial instruction is right on the first 12 race examples, rewrites on two of three everywhere."""

    first: frozenset[str] = frozenset()

    def _answer(self, query: str) -> Answer:
        number = int(query.rsplit(" ", 1)[1])
        right = f"{number}" in self.first if query.startswith("Initial") else number % 3 > 0
        return Answer("positive" if right else "negative")


def test_finalists_are_compared_on_the_examples_that_all_of_them_have(journal: Journal) -> None:
    task_model = RightOnTheFirst(dict.fromkeys(["Initial", "One", "Two"], 1.0))
    selection = selection_with(task_model, journal, "Initial", eval_examples=64)
    task_model.first = frozenset(example.id for example in selection.ledger.race_examples[0][:12])
    selection.evaluate_initial(0)  # 64 examples, of which it has 12 right
    selection.finish(1, [["One", "Two"]], calls=40)
    assert "then 2 on 13 examples" in selection.spent["sst2"][0]
    assert best_of(journal)["instruction"] == "Initial"


def test_a_race_that_the_budget_cut_is_not_won_by_who_was_asked_little(journal: Journal) -> None:
    """One has two of three right on all examples of the round; Two was asked on one of them, and had luck."""
    task_model = RightOnTheFirst(dict.fromkeys(["Initial", "One", "Two"], 1.0))
    selection = selection_with(task_model, journal, "Initial", eval_examples=10)
    selection.evaluate_initial(0)
    examples = selection.ledger.race_examples[0][:40]
    lucky = next(place for place, example in enumerate(examples) if int(example.id) % 3 > 0)
    selection.ledger.race_examples[0] = [examples[lucky], *examples[:lucky], *examples[lucky + 1 :]]
    selection.ledger.ask(0, ["Initial"], selection.ledger.race_examples[0], "race")
    task_model.calls_left = 41
    selection.finish(1, [["One", "Two"]], calls=120)
    known = selection.ledger.of(0).dev
    assert (len(known["One"]), [verdict.correct for verdict in known["Two"].values()]) == (40, [True])
    assert best_of(journal)["instruction"] == "One"


def test_a_lone_rewrite_races_the_initial_one_for_all_calls(journal: Journal) -> None:
    task_model = Scripted({"Initial": 0.5, "Only": 0.7})
    selection = selection_with(task_model, journal, "Initial", eval_examples=10)
    selection.finish(1, [["Only"]], calls=200)
    assert (
        "race: the best 1 of 1 rewrites by estimate, then 1 on 100 examples; 200 answers" in selection.spent["sst2"][0]
    )
    assert best_of(journal)["instruction"] == "Only"
    none = selection_with(task_model, journal, "Initial", eval_examples=10)
    none.finish(1, [[]], calls=200)
    assert none.spent["sst2"] == ["no race: no rewrite is left"]


class Keeps(Scripted):
    """Takes no call for what is kept from before a stop."""

    def ask(self, calls, *, progress=None):
        self.calls_left += len(calls) - self.num_missing(calls)
        return super().ask(calls)


def test_a_test_is_as_large_as_calls_pay_for_and_kept_answers_take_none(journal: Journal) -> None:
    task_model = Keeps({"Initial": 0.5, "Only": 0.7})
    sizes, queries = [], []
    for kept, left in ((0, 60), (0, 20), (20, 40), (60, 0)):  # of the test's 60, and calls beside the race's 200
        task_model.queries, task_model.kept, task_model.calls_left = [], set(queries[-60:][:kept]), 200 + left
        selection_with(task_model, journal, "Initial", eval_examples=10, test_size=30).finish(1, [["Only"]], calls=200)
        sizes.append(best_of(journal)["test"]["n"])
        queries = queries or task_model.queries
    assert sizes == [30, 10, 30, 30]


class FailsTheInitial(Scripted):
    """From the test on, half of the initial instruction's calls fail."""

    failing = False

    def _answer(self, query: str) -> Answer:
        if self.failing and query.startswith("Initial") and int(query.rsplit(" ", 1)[1]) % 2:
            return Answer(text=None, error="gone")
        return super()._answer(query)


def test_failed_calls_of_the_initial_one_prove_nothing_whatever_the_test(journal: Journal) -> None:
    for metric in ("accuracy", "balanced_accuracy"):
        task_model = FailsTheInitial({"Initial": 0.6, "Other": 0.65})
        selection = selection_with(task_model, journal, "Initial", metric=metric)
        selection.ledger.of(0).best = "Other"
        task_model.failing = True
        claim = selection._test(0, None)
        assert claim is not None
        assert not claim.proven, metric


def test_each_row_keeps_its_own_best(journal: Journal) -> None:
    worth = {"One": 0.3, "Two": 0.9, "Better": 0.7}
    selection = selection_with(Scripted(worth), journal, "One", "Two")
    selection.evaluate_initial(0)
    selection.finish(1, [["Better"], ["Better"]], calls=2000)
    assert best_of(journal, "sst2#1")["instruction"] == "Better"
    assert best_of(journal, "sst2#2")["instruction"] == "Two"


def test_parents_are_the_best_that_are_no_near_copies(journal: Journal) -> None:
    texts = {
        "Say how the reviewer felt": 19,
        "Say how the reviewer felt.": 18,
        "Is it praise or blame?": 17,
        "Guess": 4,
    }
    selection = selection_with(Scripted({}), journal, "Initial", num_parents=3)
    selection.remember([rollout("Initial", text, right, 7) for text, right in texts.items()], step=0)
    assert selection.parents() == [["Initial", "Say how the reviewer felt", "Is it praise or blame?"]]


def test_a_later_race_is_among_the_last_of_the_one_before_and_fresh_rewrites_of_them(journal: Journal) -> None:
    first = {f"First {i:02}": 0.2 + 0.01 * i for i in range(15)} | {"Good one": 0.7}
    second = {f"Second kind {i:02}": 0.2 for i in range(15)} | {"Best": 0.9}
    task_model = Scripted({"Initial": 0.4, **first, **second})
    selection = selection_with(task_model, journal, "Initial", dev=1200, num_races=2, num_parents=3)
    selection.evaluate_initial(0)
    assert selection.wanted_samples(1500) == 32
    assert 0 < selection.race(3, [list(first)], calls=1500) <= 1500
    assert best_of(journal)["instruction"] == "Good one", "what one race found is kept before the next begins"
    (parents,) = selection.parents()
    assert parents.count("Good one") == len(parents) / 2 == 2
    assert "Initial" not in parents

    read = {query.rpartition("text ")[2] for query in task_model.queries if query.startswith("First")}
    before, last = len(task_model.queries), set(selection.finalists[0])
    assert len(last) == 4
    assert selection.wanted_samples(1500) == 28, "the last four run along"
    selection.finish(3, [[*second, "Good one", ""]], calls=1500)
    assert best_of(journal)["instruction"] == "Best"
    assert best_of(journal)["test"]["proven"] is True
    asked = task_model.queries[before:]
    assert len(asked) <= 1500 + 2 * 600
    assert not any(query.startswith(tuple(set(first) - last)) for query in asked)
    poor = {query.rpartition("text ")[2] for query in asked if query.startswith("Second kind 00")}
    assert poor, "a race of its own examples: what was lucky on those of the race before is not again"
    assert not poor & read
    assert "race 1: the best 16 of 16 rewrites by estimate" in selection.summary()
    assert "race 2: 4 rewrites of the race before and 16 fresh ones" in selection.summary()
    assert {candidate.source for candidate in selection.ledger.of(0).candidates.values()} == {
        *("initial", "sampled", "race 2")
    }


def test_a_later_race_without_calls_keeps_what_the_one_before_found(journal: Journal) -> None:
    selection = selection_with(Scripted({"Initial": 0.4, "Good": 0.8, "Late": 0.9}), journal, "Initial", num_races=2)
    selection.evaluate_initial(0)
    selection.race(1, [["Good"]], calls=400)
    selection.finish(1, [["Late"]], calls=5)
    assert best_of(journal)["instruction"] == "Good"
    assert "no race 2: 5 calls are too few for one" in selection.summary()


def test_a_claim_without_a_difference_is_rarely_made() -> None:
    """Whole choices under no difference, driven through the selection itself; see scripts/benchmarks/false_wins.py."""
    claims = 0
    for seed in range(60):
        worth = {"Initial": 0.6} | {f"Rewrite {i:02}": 0.6 for i in range(12)}
        selection = selection_with(Scripted(worth, seed=seed), Silent(), "Initial", dev=200)
        selection.evaluate_initial(0)
        selection.finish(1, [list(worth)[1:]], calls=600)
        claim = selection.ledger.of(0).claim
        claims += claim is not None and claim.proven
    assert claims <= 0.05 * 60 + 2 * (60 * 0.05 * 0.95) ** 0.5


class Silent:
    """A journal that keeps nothing."""

    folder, best = Path("."), {}

    def write_dev(self, line) -> None: ...

    def write_best(self, best) -> None: ...

    def write_wins_losses(self, duels) -> None: ...


def test_power_is_what_the_console_promises() -> None:
    assert paired_power(700, 0.05, 0.27) == pytest.approx(0.80, abs=0.03)
    assert paired_power(200, 0.05, 0.27) == pytest.approx(0.34, abs=0.05)


def test_rows_are_named_by_what_tells_them_apart() -> None:
    rows = [InstructionRow("a", "sst2"), InstructionRow("b", "math-500", "algebra", "5")]
    assert row_names(rows) == ["sst2", "math-500/algebra/5"]
    assert row_names([rows[0], rows[1], InstructionRow("c", "sst2")]) == ["sst2#1", "math-500/algebra/5", "sst2#2"]


class Echo(Scripted):
    """Answers a question with its last word."""

    def __init__(self):
        super().__init__({})

    def ask(self, calls, *, progress=None):
        return [Answer(call.query.split()[-1]) for call in calls]


def test_questions_kept_back_are_judged_as_they_are_and_rewritten(journal: Journal) -> None:
    rows = [InstructionRow("Say 4", "gsm8k", answer="4"), InstructionRow("Say 5", "gsm8k", answer="6")]
    rewards = weighted_rewards(CONFIG.reward.model_copy(update={"reward_funcs": ["prewrite_accuracy_reward"]}))
    data = RewriteData([], rows, {"gsm8k": get_task("gsm8k")}, rewards, {}, {})
    questions = HeldOutQuestions(CONFIG, data, Echo(), journal, 0)
    assert questions.evaluate_initial(0) == {"dev_initial": 0.5}
    assert questions.evaluate(3, [["Tell 4"], ["Tell 6"]], [["", "4"], ["6", "6"]]) == {
        "dev_greedy": 1.0,
        "dev_sampled": 0.75,
    }
    assert "2 held-out rows, share answered right: initial 0.500, greedy 1.000" in questions.summary()


def test_best_json_asks_as_it_was_measured(journal: Journal) -> None:
    """Whoever sends the sample request with another example's text sends what the score was measured with."""
    sent: list[str] = []

    class Recording(Scripted):
        def ask(self, calls, *, progress=None):
            sent.extend(json.dumps(request_body(call, CONFIG.task_model, None), sort_keys=True) for call in calls)
            return super().ask(calls, progress=progress)

    selection = selection_with(Recording({"Initial \\boxed{}": 0.5, "Best {text}": 0.95}), journal, "Initial \\boxed{}")
    selection.evaluate_initial(0)
    selection.finish(1, [["Best {text}"]], calls=1000)
    use = best_of(journal)["use"]
    assert use["fields"] == {"text": "Sentence"}
    assert use["query"] == "Best {text}\nSentence: {text}"
    assert use["labels"] == ["negative", "positive"]
    assert json.dumps(use["sample_request"], sort_keys=True) in sent
    assert use["sample_gold"] == "positive"
    assert best_of(journal)["run"] == CONFIG.run_name


def test_wins_and_losses_say_where_best_and_initial_differ(journal: Journal) -> None:
    selection = selection_with(Scripted({"Initial": 0.5, "Best": 0.9, "Other": 0.8}), journal, "Initial")
    selection.evaluate_initial(0)
    selection.finish(1, [["Best", "Other"]], calls=1000)
    best = best_of(journal)
    written = [json.loads(line) for line in (journal.folder / "wins_losses.jsonl").read_text().splitlines()]
    test, race = written
    assert (test["where"], race["where"]) == ("test", "race")
    assert (test["num_won"], test["num_lost"]) == (best["test"]["wins"], best["test"]["losses"])
    first = race["won"][0]
    assert first["text"] == f"text {first['example_id']}"
    assert (first["gold"], first["best"], first["initial"]) == ("positive", "positive", "negative")
    assert first["others_right"] == 1  # "Other" has most of them too
    (line, *_) = [line for line in lines(journal, "race") if line["rewrite"] == best["instruction"]]
    assert len(line["examples"]) == len(line["verdicts"]) == line["n"]
    assert first["example_id"] in line["examples"]


def test_damaged_wins_and_losses_are_left_out_and_told(journal: Journal, caplog: pytest.LogCaptureFixture) -> None:
    path = journal.folder / "wins_losses.jsonl"
    damaged = [b'{"row": "a", "wh', b"\xff", b"7", b"[]", b"{}", b'{"row": ["a"]}', b"[" * 100_000]
    path.write_bytes(b"\n".join([b'{"row": "b"}', *damaged, '{"row": "\u2028"}'.encode(), b'{"row": "a"}', b""]))
    journal.write_wins_losses([{"row": "a", "where": "test"}])
    kept = [json.loads(line) for line in path.read_bytes().split(b"\n") if line]
    assert kept == [{"row": "b"}, {"row": "\u2028"}, {"row": "a", "where": "test"}]
    assert f"{path}: lines that cannot be read are left out: {len(damaged)}" in caplog.text

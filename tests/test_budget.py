"""What a run may spend: the plan before it, the count while it goes on, and the end at the limit."""

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist
from transformers import AutoTokenizer

from prewrite.config import BudgetSettings, Config, TaskModelSettings
from prewrite.config.loading import load_config
from prewrite.engine.distributed import free_port
from prewrite.engine.task_model import TaskModel
from prewrite.errors import UserError
from prewrite.reporting.journal import Journal
from prewrite.tasks import get_task
from prewrite.training.objectives.base import weighted_rewards
from prewrite.training.objectives.budget import Budget
from prewrite.training.objectives.call_plan import (
    calls_each,
    forecast,
    look_calls,
    look_examples,
    num_races,
    outlook,
    planned,
    race_reserve,
    refuse_no_race,
    reserve,
)
from prewrite.training.objectives.requests import Requests
from prewrite.training.objectives.rewrite import Rewrite
from prewrite.training.objectives.rewrite_data import RewriteData
from prewrite.training.objectives.selection import Selection
from prewrite.training.progress import Progress
from prewrite.types import Call, Example, InstructionRow, Rollout, Sample
from tests.fault_server import FaultServer, Reply, completion
from tests.launching import MODEL, SMALL, finish, train_here, with_settings
from tests.loaded import start_loaded
from tests.metrics_page import explained
from tests.test_trackers import INSTALLED, check_tensorboard, check_wandb
from tests.test_train import a_label, read_lines

LABELS = ("positive", "negative")


def task_model(base_url: str, budget: BudgetSettings | None = None, **settings: Any) -> TaskModel:
    own = {"concurrency": 4, "timeout": 5.0, "max_retries": 3, "max_failure_share": 1.0, **settings}
    return TaskModel(TaskModelSettings(model="task", **own), base_url=base_url, budget=budget)


def calls(count: int) -> list[Call]:
    return [Call(f"query {number}") for number in range(count)]


def limits(**given: float) -> dict[str, float]:
    return {name: given.get(name, float("inf")) for name in ("requests", "tokens", "cost")}


def test_no_request_is_sent_past_the_limit_and_retries_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("prewrite.engine.task_endpoint._FIRST_BACKOFF", 0.001)

    def every_first_try_fails(body: dict[str, Any], tried: int) -> Reply:
        return Reply(status=500) if tried == 1 else Reply(body=completion("yes"))

    with FaultServer(every_first_try_fails) as server, task_model(server.base_url) as model:
        model.spending.allow(limits(requests=30))
        answers = model.ask(calls(20))
        assert len(server.bodies) == model.stats.requests == 30
        answered = [answer for answer in answers if answer.text]
        assert len(answered) == model.stats.calls
        assert {answer.error for answer in answers if not answer.text} == {"the budget is spent"}
        assert model.num_refused == 20 - len(answered)
        assert model.stats.failed == 0, "what was not asked has not failed"
        assert model.calls_left == 0
        model.check_failure_share()
        model.spending.allow(limits(requests=2))
        assert model.ask(calls(21)[20:])[0].text, "another share is another chance"


def test_tokens_and_money_end_it_too_and_those_of_a_useless_reply_are_paid_for() -> None:
    budget = BudgetSettings(task_input_price=1.0, task_output_price=5.0)  # a call: 10 in and 2 out, 20 millionths
    for limit in (limits(tokens=120), limits(cost=10 * 20e-6)):
        with FaultServer() as server, task_model(server.base_url, budget, concurrency=1) as model:
            model.spending.allow(limit)
            model.ask(calls(30))
            assert len(server.bodies) == 10
    with FaultServer() as server, task_model(server.base_url, concurrency=1, max_retries=0) as model:
        (answer,) = model.ask([Call("neither label", LABELS)])
        assert answer.error
        assert (model.stats.prompt_tokens, model.stats.completion_tokens) == (10, 2)


def test_a_limit_in_tokens_needs_an_endpoint_that_counts_them() -> None:
    def silent(body: dict[str, Any], tried: int) -> Reply:
        return Reply(body=json.dumps({"choices": [{"message": {"content": "yes"}, "finish_reason": "stop"}]}))

    tokens, money = BudgetSettings(max_task_tokens=1000), BudgetSettings(max_cost=1.0, policy_output_price=1.0)
    told = pytest.raises(UserError, match=r"budget\.max_task_tokens: .* has no `usage`")
    with FaultServer(silent) as server, task_model(server.base_url, tokens) as model, told:
        model.probe()
    with FaultServer(silent) as server, task_model(server.base_url, money) as model:
        model.probe()  # only the policy has a price


def test_a_limit_in_money_needs_a_price(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"max_cost without a price.*task_input_price"):
        load_config("configs/quickstart.json", ["max_cost=3"])


def test_tokens_money_and_time_are_told_after_twenty_replies_which_count() -> None:
    budget = BudgetSettings(task_input_price=1.0, task_output_price=5.0, policy_output_price=2.0, max_cost=0.03)
    config = Config.model_validate(
        load_config("configs/quickstart.json").model_dump() | {"budget": budget.model_dump()}
    )
    told: list[str] = []
    with FaultServer() as server, task_model(server.base_url, budget) as model:
        model.spending.when_sampled = lambda: told.append(forecast(config, 2_000_000, model.spending, (0, 1_000_000)))
        model.ask(calls(16))
        assert told == []
        model.ask(calls(30))  # 16 of them are known
        assert len(server.bodies) == 30
    (line,) = told
    assert "by the 20 calls so far (10 tokens in, 2 out" in line
    assert "about 2,000,000 calls take 20.00 million tokens in and 4.00 million out" in line
    assert "they cost 40.00, and the policy's own tokens at most 2.00" in line
    assert "budget.max_cost 0.03 may end training before" in line


def settings(**changes: dict[str, Any]) -> Config:
    """24 rollouts a step in groups of 4, 8 examples each: 192 calls a step; 10 dev examples a look, 40 of the test."""
    given: dict[str, Any] = {
        "policy": {"model": "policy"},
        "data": {"tasks": ["sst2"]},
        "rollout": {"num_generations": 4},
        "reward": {"reward_funcs": ["accuracy_classification_reward"], "examples_per_rewrite": 8},
        "task_model": {"model": "task"},
        "training": {"max_steps": 5, "per_device_train_batch_size": 24},
        "selection": {"eval_steps": 2, "eval_examples": 10, "race_share": 0.0, "test_size": 20},
    }
    return Config.model_validate({name: {**given.get(name, {}), **changes.get(name, {})} for name in given | changes})


def data_for(config: Config) -> RewriteData:
    row = InstructionRow("Initial", "sst2")
    train, dev = (
        [Example(f"{part} {i}", {"text": f"{part} {i}"}, "positive") for i in range(count)]
        for part, count in (("train", 200), ("dev", 60))
    )
    rewards = weighted_rewards(config.reward)
    return RewriteData([row], [row], {"sst2": get_task("sst2")}, rewards, {"sst2": train}, {"sst2": dev})


def parts(config: Config) -> dict[str, tuple[int, int]]:
    return {part.name: (part.expected, part.most) for part in planned(config, data_for(config), 5, 1)}


def test_the_plan_counts_each_part_by_hand() -> None:
    # Looks: the initial instruction, after steps 2 and 4, and after the last one: 4 x 10. Test: 2 x 20.
    assert parts(settings()) == {
        "training": (960, 960),
        "looks": (40, 40),
        "race": (0, 0),
        "test": (40, 40),
        "together": (1040, 1040),
    }
    refills = settings(loss={"dynamic_sampling_refills": 2})
    assert parts(refills)["training"] == (960, 3 * 960)
    twice = settings(training={"num_iterations": 2})  # 5 steps of 3 batches; looks after 2, 4 and 5
    assert parts(twice)["training"] == (576, 576)
    assert parts(twice)["looks"] == (40, 40)
    # Half of 1040: the test may have a tenth, 52, 26 rows, and has its 20; a look and the test are kept, 50; so two
    # batches fit beside the first look: 10 + 2 x 192 + 50 <= 520 and 10 + 3 x 192 + 50 > 520.
    half = settings(budget={"max_task_calls": 520})
    assert parts(half)["training"] == (384, 384)
    assert parts(half)["looks"] == (20, 20)
    assert parts(half)["together"][0] <= 520
    race = settings(selection={"race_share": 0.5})
    assert 0 < parts(race)["race"][0] <= 1000 == parts(race)["race"][1]


def by_steps(config: Config, data: RewriteData, steps: int) -> tuple[int, int]:
    """(rollout batches, calls of looks) of the plan, batch by batch as a run goes on."""
    updates, every = config.updates_per_generation() * config.training.num_iterations, config.selection.eval_steps
    batch, most = config.rollouts_per_generation(1) * calls_each(config, data), config.budget.max_task_calls
    initial = len(look_examples(config, data, data.rows[0])) * config.task_model.samples_per_query
    looks = initial + (look_calls(config, data) if config.selection.num_sampled else 0)
    batches = step = 0
    while True:
        kept = 0 if most is None else reserve(config, data, most)
        over = step >= steps or (most is not None and looks + (batches + 1) * batch + kept > most)
        if batches and (over or (every and step // every > (step - updates) // every)):
            looks += look_calls(config, data)
        if over:
            return batches, looks
        batches, step = batches + 1, step + updates


def test_the_plan_is_that_of_the_steps_one_by_one() -> None:
    rng = random.Random(0)
    for _ in range(300):
        steps, most = rng.randint(0, 40), rng.choice([None, None, rng.randint(1, 20_000)])
        config = settings(
            training={"num_iterations": rng.randint(1, 4)},
            selection={
                **{"eval_steps": rng.randint(0, 7), "num_sampled": rng.choice([0, 2])},
                **{"race_share": rng.choice([None, 0.0, 0.4]), "eval_examples": rng.randint(1, 20)},
            },
            budget={"max_task_calls": most},
        )
        data = data_for(config)
        training, looks, *_ = planned(config, data, steps, 1)
        assert (training.expected // 192, looks.expected) == by_steps(config, data, steps), config


def test_a_run_of_endless_steps_is_planned_at_once() -> None:
    config = settings(budget={"max_task_calls": 520})
    assert planned(config, data_for(config), 2**63 - 1, 1) == planned(config, data_for(config), 1000, 1)
    config = settings(training={"num_iterations": 3}, selection={"race_share": 0.5})
    training, looks, *_ = planned(config, data_for(config), 3 * 10**15, 1)
    assert (training.expected, looks.expected) == (192 * 10**15, 10 + 10 * 10**15)


def test_races_are_no_more_than_the_calls_pay_for() -> None:
    def races(calls: int, wanted: int = 4) -> int:
        config = settings(selection={"num_races": wanted})
        return num_races(config, data_for(config), calls)

    assert [races(calls) for calls in (0, 300, 612, 1000, 1224, 9000)] == [1, 1, 2, 3, 4, 4]
    few = settings(selection={"num_races": 1000, "race_share": 0.5}, budget={"max_task_calls": 700})
    told = outlook(few, data_for(few), 5, 1)
    assert "selection.num_races 1000: the calls pay for 1" in told


def test_a_small_budget_leaves_a_race_that_can_tell_rewrites_apart() -> None:
    def reserved(calls: int, **selection: Any) -> int:
        config = settings(selection={"race_share": None} | selection)
        return race_reserve(config, data_for(config), calls)

    assert [reserved(calls) for calls in (1000, 2000, 20_000)] == [600, 1200, 6000]
    assert reserved(2000, race_share=0.3) == 600, "a share that is given is meant"
    # 0.1 of 2,000 calls for 1 + 2 x 5 rewrites
    looks = {"eval_examples": 64, "num_sampled": 4, "eval_steps": 0}
    assert parts(settings(budget={"max_task_calls": 2000}, selection=looks))["looks"][0] <= 200


class Writer:
    """Stands in for the policy's engine: other rewrites at every call."""

    def __init__(self) -> None:
        self.written, self.asked = 0, list[list[int]]()

    def sample(self, requests: list[list[int]], counts: list[int], *, greedy: bool = False) -> list[list[Sample]]:
        self.asked += requests
        return [[self.one() for _ in range(count)] for count in counts]

    def one(self) -> Sample:
        self.written += 1
        return Sample((1, 2), (3, 4, 5), (0.0,) * 3, f"Is it number {self.written}?", "stop")


def run_objective(
    config: Config, tmp_path: Path, base_url: str, writer: Writer | None = None
) -> tuple[Rewrite, Selection, Progress]:
    """A run's calls, as the trainer makes them: all but the policy is real."""
    data, progress, writer = data_for(config), Progress(), writer or Writer()
    journal = Journal(config.model_copy(update={"output_dir": str(tmp_path)}))
    with TaskModel(config.task_model, base_url=base_url, budget=config.budget) as model:
        model.probe(LABELS)
        selection = Selection(config, data, model, journal, progress)
        requests = Requests(config, data.rows, AutoTokenizer.from_pretrained(MODEL))
        objective = Rewrite(config, data, requests, [[1, 2]], model, selection, progress)
        objective.evaluate(0, writer)  # type: ignore[arg-type]
        while progress.step < 5 and objective.affords(24):
            draw, rollouts = progress.step, []
            for group in range(6):
                objective.request(0, group, draw)
            read = [objective.read(0, place // 4, draw, writer.one()) for place in range(24)]
            for one, mark in zip(read, objective.score(read, draw), strict=True):
                reward = mark.parts["accuracy_classification_reward"]
                rollouts.append(
                    Rollout(one.sample, one.row, one.group, one.output, reward, mark.parts, 0.0, verdicts=mark.verdicts)
                )
            progress.step += 1
            objective.remember(rollouts, draw)
            if progress.step in (2, 4, 5) or not objective.affords(24):
                objective.evaluate(progress.step, writer)  # type: ignore[arg-type]
        objective.finish(progress.step, writer)  # type: ignore[arg-type]
        objective.counts()
    return objective, selection, progress


@pytest.fixture
def lone_rank() -> Iterator[None]:
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{free_port()}", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def best_of(selection: Selection) -> dict[str, Any]:
    return json.loads((selection.journal.folder / "best.json").read_text())["sst2"]


@pytest.mark.usefixtures("lone_rank")
def test_a_search_whose_calls_pay_for_no_race_is_refused_and_told_the_least_that_do(tmp_path: Path) -> None:
    # A first question, a look at one example, three times six answers, and the test of one example, which 20 pay for.
    def search(calls: int) -> Config:
        return settings(
            training={"max_steps": 0}, selection={"race_share": None, "num_races": 8}, budget={"max_task_calls": calls}
        )

    for calls in (1, 21):
        with pytest.raises(UserError, match=f"max_task_calls {calls} pays for no race.*give max_task_calls 22 at"):
            refuse_no_race(search(calls), data_for(search(calls)))
    with pytest.raises(UserError, match=r"max_task_calls 30, shared out among 2 stages, pays .* max_task_calls 44 at"):
        refuse_no_race(search(15), data_for(search(15)), stages=2)
    refuse_no_race(search(22), data_for(search(22)))
    trained = settings(budget={"max_task_calls": 1})
    refuse_no_race(trained, data_for(trained))
    for calls, told in ((21, "17 calls are too few"), (22, "then 2 on 6 examples")):
        with FaultServer(a_label) as server:
            _, selection, _ = run_objective(search(calls), tmp_path / str(calls), server.base_url)
        assert told in " ".join(selection.spent["sst2"]), selection.spent


@pytest.mark.usefixtures("lone_rank")
def test_the_plan_is_what_a_run_without_a_race_asks_and_half_of_it_is_a_limit(tmp_path: Path) -> None:
    with FaultServer(a_label) as server:
        config = settings(selection={"num_sampled": 1})
        objective, selection, progress = run_objective(config, tmp_path / "whole", server.base_url)
        wanted, used = parts(config)["together"][0], len(server.bodies)
    assert progress.step == 5
    assert abs(used - wanted) <= 0.2 * wanted, (used, wanted)
    counts = objective.counts()
    assert counts["task_requests"] == used
    assert counts["task_tokens_in"] == 10 * used
    assert counts["policy_tokens_out"] == 3 * (5 * 24 + 4 * 2)  # of rollouts, and of looks, the untrained one too

    for limit in ({"max_task_calls": used // 2}, {"max_task_tokens": 12 * used // 2}):
        with FaultServer(a_label) as server:
            half = settings(selection={"num_sampled": 1}, budget=limit)
            _, selection, progress = run_objective(half, tmp_path / next(iter(limit)), server.base_url)
            assert 0.35 * used < len(server.bodies) <= used // 2
        assert 0 < progress.step < 5
        assert best_of(selection)["instruction"]
        assert best_of(selection)["estimate"] >= best_of(selection)["baseline"]["estimate"]


@pytest.mark.usefixtures("lone_rank")
def test_races_share_their_calls_and_rewrite_what_did_best_before(tmp_path: Path) -> None:
    tokenizer, writer = AutoTokenizer.from_pretrained(MODEL), Writer()
    with FaultServer(a_label) as server:
        config = settings(budget={"max_task_calls": 1500}, selection={"race_share": 0.8, "num_races": 3})
        planned_race = parts(config)["race"]
        objective, selection, _ = run_objective(config, tmp_path, server.base_url, writer)
        assert 1000 < len(server.bodies) <= 1500
    assert 900 < planned_race[0] <= planned_race[1] <= 1500
    assert [told.split(":")[0] for told in selection.spent["sst2"]] == ["race 1", "race 2", "race 3"]
    later = [tokenizer.decode(request) for request in writer.asked if request != [1, 2]]
    assert len(later) > 10
    kept = set(selection.ledger.of(0).candidates)
    assert all(any(text in request for text in kept) for request in later)
    assert objective.counts()["policy_tokens_out"] == 3 * writer.written


@pytest.mark.usefixtures("lone_rank")
def test_an_endpoint_that_needs_retries_is_not_asked_past_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("prewrite.engine.task_endpoint._FIRST_BACKOFF", 0.001)

    def every_first_try_fails(body: dict[str, Any], tried: int) -> Reply:
        return Reply(status=500) if tried == 1 else a_label(body, tried)

    with FaultServer(every_first_try_fails) as server:
        config = settings(budget={"max_task_calls": 1000}, selection={"race_share": 0.3})
        _, selection, progress = run_objective(config, tmp_path, server.base_url)
        assert 700 < len(server.bodies) <= 1000
    # 2 + 20 requests before, 384 of a step. Left are 297 calls of two requests, and another step, a look, three tenths
    # for the race and 40 for the test would take 192 + 10 + 210 + 40; without retries 594 would be left for them.
    assert progress.step == 1
    assert best_of(selection)["instruction"]


@pytest.mark.usefixtures("lone_rank")
def test_answers_of_before_a_resume_are_paid_for_whatever_is_asked_after_it(tmp_path: Path) -> None:
    budget, kept = BudgetSettings(max_task_calls=30), tmp_path / "answers.jsonl"
    with FaultServer() as server:
        with task_model(server.base_url, budget) as model:
            model.keep_answers(kept, rank=0, ranks=1)
            at_the_checkpoint = model.state()
            model.ask(calls(20))
        for wanted, paid in ((calls(25), 25), (calls(60)[30:], 30)):  # the same ones and 5 more; others
            with task_model(server.base_url, budget) as model:
                model.keep_answers(kept, rank=0, ranks=1, state=at_the_checkpoint)
                Budget(budget, model, Progress()).update()
                model.ask(wanted)
                assert len(server.bodies) == model.stats.requests == paid
                assert (model.stats.refused > 0) == (paid == 30)


def test_the_plan_says_where_nothing_is_trained_and_why_there_is_no_test() -> None:
    config = settings(budget={"max_task_calls": 200}, selection={"race_share": None})
    told = outlook(config, data_for(config), 5, 1)
    assert "the calls are too few to train" in told
    assert "the test at the end" in told
    config = settings(budget={"max_task_calls": 12})
    assert "no test at the end: selection.test_size is 0, or the calls or the dev" in outlook(
        config, data_for(config), 5, 1
    )
    config = settings()
    assert "too few" not in outlook(config, data_for(config), 5, 1)


def test_a_dry_run_prints_the_plan_and_asks_nobody(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with FaultServer(a_label) as server:
        own = (f"base_url={server.base_url}", "task_model.model=task", f"output_dir={tmp_path}", "max_task_calls=300")
        assert train_here(*SMALL, "--dry-run", *with_settings(*own)) == 0
        assert server.bodies == []
    stdout = capsys.readouterr().out
    assert "task calls by plan" in stdout
    assert "budget.max_task_calls 300" in stdout
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("folder", ["/proc/none", "README.md"])
def test_a_dry_run_refuses_a_folder_that_cannot_be_written(folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    own = ("base_url=http://127.0.0.1:9/v1", f"output_dir={folder}", "max_task_calls=300")
    assert train_here(*SMALL, "--dry-run", *with_settings(*own)) == 2
    told = capsys.readouterr().err
    assert f"{folder}/quickstart: cannot be written" in told
    assert "set output_dir and run_name" in told


@pytest.mark.slow
def test_a_run_that_may_ask_half_of_what_it_wants_ends_there_with_a_best(tmp_path: Path, talkative_model: str) -> None:
    with FaultServer(a_label) as server:
        own = (
            *(f"base_url={server.base_url}", "task_model.model=task", f"output_dir={tmp_path}", "max_steps=40"),
            *(f"policy.model={talkative_model}", "policy.dtype=float32", f"report_to={json.dumps(INSTALLED)}"),
            *("max_task_calls=120", "max_completion_length=48", "num_sampled=2", "eval_examples=6"),
        )
        program = start_loaded("train.py", *SMALL, *with_settings(*own), WANDB_MODE="offline")
        code, stdout, stderr = finish(program)
        used = len(server.bodies)
    assert code == 0, stdout[-3000:] + stderr[-3000:]
    assert 60 < used <= 120, "40 steps alone want 640"
    assert "task calls by plan" in stdout
    assert "by the 20 calls so far (10 tokens in, 2 out" in stdout
    run = tmp_path / "quickstart"
    best, totals = (json.loads((run / name).read_text()) for name in ("best.json", "totals.json"))
    assert best["sentiment"]["instruction"]
    assert totals["task_requests"] == used
    assert totals["refused_calls"] == 0, "the plan, not the limit, has ended it"
    lines = read_lines(run / "metrics.jsonl")
    assert 0 < totals["steps"] == lines[-1]["step"] < 40
    unexplained = {key for line in lines for key in line if explained(key) is None}
    assert unexplained == set(), "a key of metrics.jsonl without a line in docs/metrics.md"
    for name in ("task_calls", "task_tokens_in", "policy_tokens_out"):
        spent = sum(line.get(name, 0) for line in lines)
        assert 0 < spent <= totals[name], "counts are those of a step"
    assert sum(line["task_tokens_in"] for line in lines) == 10 * sum(line["task_requests"] for line in lines)
    check_tensorboard(run, lines)
    check_wandb(run, lines)

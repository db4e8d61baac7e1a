"""Stages: each its own config, begun where the one before it ended, chosen and tested by itself."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from prewrite.config import BudgetSettings, Config
from prewrite.config.loading import load_config, stage_configs
from prewrite.engine.policy import load_tokenizer
from prewrite.engine.spending import Spending
from prewrite.errors import UserError
from prewrite.reporting.journal import Journal
from prewrite.training.objectives.rewrite_data import RewriteData
from prewrite.training.objectives.selection import Selection
from prewrite.training.progress import Candidate, Progress, Winner
from prewrite.training.stage import Stage, begin, load_stages
from prewrite.types import Example
from tests.test_selection import Scripted, best_of, lines, selection_with

QUICKSTART = Path("configs/quickstart.json")


def with_stages(*entries: dict[str, Any], **top: Any) -> Config:
    settings = [f"{key}={json.dumps(value)}" for key, value in top.items()]
    return load_config(QUICKSTART, [f"stages={json.dumps(entries)}", *settings])


def test_an_entry_takes_the_place_of_settings_and_of_what_belongs_to_them() -> None:
    config = load_config(
        QUICKSTART,
        [
            *('data.instruction="Say it."', 'reward_kwargs={"f1_classification_reward": {}}', "max_task_calls=1000"),
            'stages=[{}, {"data": {"tasks": ["ag_news"]}, "training": {"num_stage_steps": 3, "learning_rate": 0.1}}, '
            '{"reward": {"reward_funcs": ["accuracy_classification_reward"]}, "selection": {"num_parents": 4}}]',
        ],
    )
    first, second, third = stage_configs(config)
    assert (first.data.tasks, first.data.instruction) == (["sentiment"], "Say it.")
    assert (second.data.tasks, second.data.instruction) == (["ag_news"], None), "another task's instruction"
    assert (second.training.max_steps, second.training.learning_rate) == (3, 0.1)
    assert third.reward.reward_kwargs == {}
    assert (third.selection.num_parents, first.selection.num_parents) == (4, 1)
    assert [one.budget.max_task_calls for one in (first, second, third)] == [333] * 3
    assert second.policy == config.policy


def test_steps_of_the_run_are_shared_out_and_a_run_of_one_stage_is_its_config() -> None:
    alike = load_config(QUICKSTART, ["num_stages=3", "max_steps=10", "reset_model=true"])
    assert [one.training.max_steps for one in stage_configs(alike)] == [4, 3, 3]
    each = load_config(QUICKSTART, ["num_stages=3", "max_steps=null", "num_stage_steps=10"])
    assert [one.training.max_steps for one in stage_configs(each)] == [10, 10, 10]
    plain = load_config(QUICKSTART)
    assert stage_configs(plain) == [plain]


@pytest.mark.parametrize(
    ("entry", "told"),
    [
        ({"data": {"dev_size": 9}}, r"stages\.1: a stage cannot set data\.dev_size; of data it may set tasks"),
        ({"policy": {"model": "other"}}, r"stages\.1\.policy: unknown key; it stands at the top of the config"),
        ({"training": {"num_stage_steps": -3}}, r"stages\.1: 1 fault\n  - training\.num_stage_steps: given -3"),
        ({"training": {"max_steps": 3}}, r"training\.max_steps; of training it may set num_stage_steps"),
        ({"training": {"learning_rate": "low"}}, r"stages\.1: 1 fault\n  - training\.learning_rate: given .low"),
        ({"data": {"tasks": []}}, r"stages\.1: 1 fault\n  - data: give `tasks`"),
        ({"training": {"num_stage_steps": 1, "num_train_epochs": 1.0}}, "one of the three"),
    ],
)
def test_a_fault_of_a_stage_is_told_with_its_number(entry: dict[str, Any], told: str) -> None:
    with pytest.raises(UserError, match=told):
        with_stages({}, entry)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        (["reset_model=true"], "resets nothing"),
        (["num_stages=2", "stages=[{}, {}]"], "leave it out"),
        (["num_stage_steps=2"], "one of the three"),
        (["num_stages=3", "max_steps=2"], r"training\.max_steps is 2, shared out among 3 stages"),
    ],
)
def test_settings_of_stages_that_contradict_one_another(settings: list[str], told: str) -> None:
    with pytest.raises(UserError, match=told):
        load_config(QUICKSTART, settings)


class Rank:
    """What `begin` needs of the engines of a run on one rank."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, tokenizer: Any):
        for name, alone in (("gather", lambda value: [value]), ("broadcast", lambda value: value)):
            monkeypatch.setattr(f"prewrite.training.stage.distributed.{name}", alone)
        for name, alone in (("gather", lambda value: [value]), ("broadcast", lambda value: value)):
            monkeypatch.setattr(f"prewrite.training.objectives.budget.distributed.{name}", alone)
        spending = Spending(BudgetSettings())
        spending.stats.requests = spending.stats.calls = 70
        self.task_model = SimpleNamespace(stats=spending.stats, spending=spending)
        self.world, self.journal, self.tokenizer = SimpleNamespace(is_main=True), None, tokenizer


def winner(text: str) -> Winner:
    return Winner({text: Candidate(3, "train")}, {})


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return load_tokenizer(load_config(QUICKSTART).policy)


def starts(stage: Stage) -> list[str]:
    return [row.instruction for row in stage.data.rows]


def test_a_stage_begins_with_the_best_of_each_row_unless_it_brings_instructions(
    monkeypatch: pytest.MonkeyPatch, tokenizer: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    config = with_stages({}, {}, {"data": {"instruction": "My own."}})
    first, second, third = load_stages(config, tokenizer)
    assert second.data is first.data, "the same data is read once"
    progress, rank = Progress(step=4, leftovers=[[]], gaps=[0.1], place=9, draws=5), Rank(monkeypatch, tokenizer)
    assert begin(first, config, rank, progress) is first  # type: ignore[arg-type]  # engines by shape alone
    assert progress == Progress(step=4, leftovers=[[]], gaps=[0.1], place=9, draws=5), "which went on"
    progress.winners = {"sentiment": winner("Good or bad?")}
    begun = begin(second, config, rank, progress)  # type: ignore[arg-type]
    assert (starts(begun), starts(second)) == (["Good or bad?"], starts(first))
    assert begun.data.held_out_rows == begun.data.rows
    assert tokenizer.decode(begun.requests.initial[0]).count("Good or bad?") == 1
    assert begun.held_out_requests == begun.requests.initial
    assert progress.counts_before["task_requests"] == 70
    counts = progress.counts_before
    now = Progress(step=4, draws=5, stage=1, stage_start=4, counts_before=counts, winners=progress.winners)
    assert progress == now, "draws go on, so that a stage meets examples of its own; the rest begins anew"
    assert starts(begin(third, config, rank, progress)) == ["My own."]  # type: ignore[arg-type]
    assert capsys.readouterr().out == "stage 1 of 3\nstage 2 of 3\nstage 3 of 3\n"


def test_a_best_that_is_too_long_to_be_asked_for_stays_what_is_to_be_beaten(
    monkeypatch: pytest.MonkeyPatch, tokenizer: Any
) -> None:
    config = load_config(QUICKSTART, ["num_stages=2", "max_prompt_length=120"])
    _, stage = load_stages(config, tokenizer)
    long = "Is it good or bad? " * 30
    progress = Progress(winners={"sentiment": winner(long)})
    begun = begin(stage, config, Rank(monkeypatch, tokenizer), progress)  # type: ignore[arg-type]
    assert starts(begun) == [long]
    assert begun.requests.initial == stage.requests.initial
    assert begun.requests.draw(0, "1/0").parent == stage.data.rows[0].instruction


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(load_config(QUICKSTART, [f"output_dir={tmp_path}"]))


def next_stage(selection: Selection, task_model: Scripted, progress: Progress, journal: Journal) -> Selection:
    """The selection of a stage like the last one, begun with its winner."""
    progress.next_stage({})
    progress = Progress.from_json(progress.to_json())  # as a resume would have it
    first = progress.winners["sst2"].instruction
    return selection_with(task_model, journal, first, progress=progress, **selection.config.selection.model_dump())


def test_a_stage_that_finds_nothing_better_keeps_the_instruction_and_says_so(journal: Journal) -> None:
    good = {"Best": 0.9, "Ever so much worse": 0.45, "Quite another way": 0.5}
    worth = {"Initial": 0.5, **good} | {f"Late {i}": 0.3 for i in range(16)}
    task_model, progress = Scripted(worth), Progress(step=3)
    selection = selection_with(task_model, journal, "Initial", progress=progress, num_parents=3)
    selection.evaluate_initial(0)
    selection.finish(3, [list(good)], calls=2000)
    assert best_of(journal)["instruction"] == "Best"
    assert best_of(journal)["earlier"] == []
    assert next(iter(progress.winners["sst2"].kept)) == "Best"
    assert len(progress.winners["sst2"].kept) == 3

    later = next_stage(selection, task_model, progress, journal)
    later.evaluate_initial(3)
    assert {line["rewrite"] for line in lines(journal, "kept")} == set(progress.winners["sst2"].kept) - {"Best"}
    assert set(later.parents()[0]) == set(progress.winners["sst2"].kept)
    later.finish(5, [[text for text in worth if text.startswith("Late")]], calls=3000)
    best = best_of(journal)
    assert best["instruction"] == best["baseline"]["instruction"] == "Best"
    assert (best["stage"], best["step"], best["test"]) == (1, 3, None), "written in the first stage"
    (before,) = best["earlier"]
    assert (before["stage"], before["baseline"], before["instruction"]) == (0, "Initial", "Best")
    assert before["test"]["proven"] is True
    assert "the one before the stage: none of 18 rewrites is better by estimate" in later.summary()
    assert "found in stage 1 or before; measure it: python evaluate.py --prompts" in later.summary()
    assert {line["stage"] for line in lines(journal, "race")} == {0, 1}


def test_each_stage_is_tested_once_against_what_it_began_with_on_what_no_race_read(journal: Journal) -> None:
    worth = {"Initial": 0.4, "Better": 0.65} | {f"Poor {i}": 0.3 for i in range(8)} | {"Best": 0.9}
    task_model, progress = Scripted(worth), Progress()
    selection = selection_with(task_model, journal, "Initial", progress=progress)
    selection.evaluate_initial(0)
    selection.finish(2, [["Better", *(text for text in worth if text.startswith("Poor"))]], calls=3000)
    later = next_stage(selection, task_model, progress, journal)
    later.evaluate_initial(2)
    later.finish(4, [["Best", *(text for text in worth if text.startswith("Poor"))]], calls=3000)
    tested = [(line["stage"], line["rewrite"]) for line in lines(journal, "test")]
    assert tested == [(0, "Better"), (0, "Initial"), (1, "Best"), (1, "Better")]
    assert best_of(journal)["test"]["proven"] is True
    assert best_of(journal)["baseline"]["instruction"] == "Better"
    asked = {query.removeprefix("Best\nSentence: ") for query in task_model.queries if query.startswith("Best\n")}
    dev = {f"text {number}" for number in range(200)}
    assert len(asked - dev) == 200, "the test's part of dev, which no race has read"
    races = {q.rpartition(": ")[2] for q in task_model.queries if q.startswith(("Poor", "Late"))}
    assert races <= dev


def test_a_row_that_a_later_stage_does_not_have_stays_in_best(journal: Journal) -> None:
    entry = {"instruction": "Kept.", "stage": 0, "earlier": []}
    progress = Progress(stage=1, winners={"other": Winner({"Kept.": Candidate(1, "train")}, entry)})
    selection = selection_with(Scripted({"Initial": 0.5}), journal, "Initial", progress=progress)
    selection.evaluate_initial(2)
    assert best_of(journal, "other") == entry
    assert best_of(journal)["stage"] == 1
    assert "other" not in selection.summary()


def test_rows_of_another_task_do_not_begin_with_a_winner_of_the_same_name(
    monkeypatch: pytest.MonkeyPatch, tokenizer: Any
) -> None:
    """Rows that are questions by themselves have none."""
    config = load_config(QUICKSTART, ["num_stages=2"])
    _, stage = load_stages(config, tokenizer)
    data = RewriteData(stage.data.rows, stage.data.rows, stage.data.tasks, stage.data.rewards, {}, {})
    question = Stage(1, stage.config, data, stage.requests, stage.held_out_requests, False)
    progress = Progress(winners={"sentiment": winner("Good or bad?")})
    assert begin(question, config, Rank(monkeypatch, tokenizer), progress) is question  # type: ignore[arg-type]


def test_examples_of_dev_are_the_same_in_every_stage(tokenizer: Any) -> None:
    """Else a stage could choose on what a later one is tested on."""
    config = with_stages({}, {"reward": {"examples_per_rewrite": 4}, "selection": {"race_share": 0.5}})
    first, second = (stage.data for stage in load_stages(config, tokenizer))
    assert first is not second
    dev: list[list[Example]] = [list(data.dev["sentiment"]) for data in (first, second)]
    assert dev[0] == dev[1]

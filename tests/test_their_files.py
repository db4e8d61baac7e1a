"""What users of other systems bring, read as it is: their columns, golds, chats, rewards; and what is told of it."""

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from prewrite.config import RolloutSettings
from prewrite.config.data import CustomTaskSettings
from prewrite.config.loading import make_config, validated
from prewrite.errors import UserError
from prewrite.rewards import get_reward
from prewrite.tasks import __main__ as tasks_command
from prewrite.tasks.base import HubSplit, Task
from prewrite.tasks.chats import is_run_folder
from prewrite.tasks.configured import own_tasks
from prewrite.tasks.loading import load_examples
from prewrite.tasks.own import task_from_settings
from prewrite.training.objectives.rewrite_data import load_rewrite_data
from prewrite.training.rollout import request_turn
from prewrite.types import Example, InstructionRow, Sample
from tests.test_rows import SUBJECT_ROWS, config_of, math_folder, write_lines
from tests.their_files import notebook, open_r1, trl_math

TEMPLATE = {"reward_funcs": ["template_accuracy_math_reward"]}
PLAIN = {"reward_funcs": ["accuracy_math_reward"]}


def made(entry: dict[str, Any]) -> Task:
    return task_from_settings(validated(CustomTaskSettings, entry, "here"))


def rows_of(entry: dict[str, Any]) -> list[Example]:
    task = made(entry)
    return [*load_examples(task, "train", dev_size=0), *load_examples(task, "test")]


def score(name: str, rows: list[Example], texts: list[str]) -> list[Any]:
    samples = [Sample((), (1,), (0.0,), text, "stop") for text in texts]
    return get_reward(f"tests.trl_rewards:{name}").score(samples, rows)


def test_a_trl_trainers_rows(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rows = rows_of(trl_math(tmp_path))
    assert len(rows) == 23
    assert "1 of 24 rows are left out: no box in the column 'solution'" in caplog.text
    assert all(str(row.target) in str(row.solution) for row in rows)
    assert {row.level for row in rows} == {f"Level {n}" for n in range(1, 6)}
    golds = [str(row.target) for row in rows]
    assert score("of_their_data", rows, golds) == [1.0] * 23
    assert score("of_their_data", rows, ["?"] * 23) == [0.0] * 23


def test_a_notebooks_rows(tmp_path: Path) -> None:
    rows = rows_of(notebook(tmp_path))
    assert len(rows) == 28
    assert {row.target for row in rows} == {str(n) for n in (*range(900, 924), *range(924, 928))}
    assert next(row.target for row in rows_of(notebook(tmp_path)) if "1900 boxes" in row.fields["question"]) == "900"
    assert str(rows[0].solution).startswith("That is ")
    assert set(rows[0].texts) == {"question"}, "no template shows the worked answer"
    right = f"<reasoning>\nx\n</reasoning>\n<answer>\n{rows[0].target}\n</answer>\n"
    for name, scores in (("correctness", [2.0, 0.0]), ("whole_number", [0.5, 0.0]), ("strict_form", [0.5, 0.0])):
        assert score(name, rows[:2], [right, "no idea"]) == scores


def test_golds_after_hashes(tmp_path: Path) -> None:
    answers = ["1 + 1 = 2\n#### 1,002 ", "a #### b #### -3", "no mark", "####", "####  "]
    rows = [{"question": f"q{i}", "answer": answer} for i, answer in enumerate(answers)]
    entry = notebook(tmp_path) | {"train_file": str(write_lines(tmp_path / "rows.jsonl", rows)), "test_size": 1}
    found = rows_of(entry | {"test_file": None})
    assert {(row.target, row.solution) for row in found} == {("1002", answers[0]), ("-3", answers[1])}


def test_open_r1s_rows_are_problems_and_chats(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    entry = open_r1(tmp_path)
    rows = rows_of(entry)
    assert {row.target for row in rows} == {f"$\\boxed{{{n * n + n}}}$" for n in range(2, 26)}
    assert {row.columns["source"] for row in rows} == {"by_hand"}
    sft = {"method": "sft", "policy": {"model": "a/b"}, "data": {"chats": entry["train_file"]}}
    (tmp_path / "config.json").write_text(json.dumps(sft | {"training": {"max_steps": 1}}))
    assert tasks_command.main(["--check", str(tmp_path / "config.json")]) == 0
    assert "open_r1.jsonl: 24 chats" in capsys.readouterr().out


def test_a_problem_that_is_a_list_of_turns_is_refused(tmp_path: Path) -> None:
    """As TRL's data have a prompt; a query would show it as Python writes it."""
    rows = [{"prompt": [{"role": "user", "content": f"q{i}"}], "answer": "1"} for i in range(4)]
    file = str(write_lines(tmp_path / "rows.jsonl", rows))
    entry = {**trl_math(tmp_path), "fields": {"prompt": "Problem"}, "target": "answer", "target_from": None}
    with pytest.raises(UserError, match="the column 'prompt' holds a list; a query shows texts") as caught:
        load_examples(made(entry | {"train_file": file}), "test")
    assert "(4 rows: row 1, row 2, row 3, row 4)" in str(caught.value)


def test_a_hub_of_ones_own_has_splits_and_the_local_files_that_may_stand_for_them(tmp_path: Path) -> None:
    hub = {"dataset": "me/sums", "config": "plain", "split": "a", "test_split": "b", "revision": "v2"}
    task = made(trl_math(tmp_path) | {"train_file": None, "hub": hub, "test_size": None})
    for source, split, file in ((task.train, "a", "trl_math_train.jsonl"), (task.test, "b", "trl_math_test.jsonl")):
        assert source.hub == (HubSplit("me/sums", split, "plain", "v2"),)
        assert source.files == (file,)


def test_a_task_of_ones_own_is_named_like_no_other(tmp_path: Path) -> None:
    entries = [trl_math(tmp_path) | {"name": name} for name in ("GPQA", "nq", "sums", "Sums")]
    own, faults = own_tasks([validated(CustomTaskSettings, entry, "here") for entry in entries])
    assert "sums" in [task.name for task in own]
    assert [fault.partition(";")[0] for fault in faults] == [
        "custom_tasks: 'GPQA' is the name of the task gpqa-diamond here",
        "custom_tasks: 'nq' is the name of the task nq_open here",
        "custom_tasks: two tasks are named 'Sums'",
    ]


def test_a_text_that_may_be_empty_is_kept_by_name_a_gold_never(tmp_path: Path) -> None:
    rows = [{"problem": "", "solution": "\\boxed{1}"}, {"problem": "p", "solution": "\\boxed{2}"}]
    entry = {**trl_math(tmp_path), "train_file": str(write_lines(tmp_path / "rows.jsonl", rows)), "test_size": 1}
    data = {"tasks": ["trl_math"], "empty": "keep"}
    whole = {"objective": "solve", "policy": {"model": "a/b"}, "data": data, "training": {"max_steps": 1}}
    assert make_config(whole, [], "here").data.empty == "keep"
    task = made(entry)
    kept = [*load_examples(task, "train", empty="keep"), *load_examples(task, "test", empty="keep")]
    assert {row.fields["problem"] for row in kept} == {"", "p"}
    with pytest.raises(UserError, match="leaves such rows out, keep keeps them"):
        load_examples(task, "test")
    write_lines(tmp_path / "rows.jsonl", [{"problem": "p", "answer": ""}, {"problem": "q", "answer": "1"}])
    plain = made(entry | {"target": "answer", "target_from": None})
    with pytest.raises(UserError, match="the gold must not be empty"):
        load_examples(plain, "test", empty="keep")


@pytest.mark.parametrize(
    ("kind", "reward", "tags", "is_told"),
    [
        ("math-500", PLAIN, ["problem"], True),
        ("math-500", TEMPLATE, ["problem"], False),
        ("math-500", {"reward_funcs": ["tests.trl_rewards:long_ones", *PLAIN["reward_funcs"]]}, ["problem"], False),
        ("math-500", PLAIN, [], False),
    ],
)
def test_tags_that_no_reward_reads_are_left_out_and_told(
    kind: str, reward: dict[str, Any], tags: list[str], is_told: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    row = {"instruction": "Solve it.", "dataset_name": kind, "tags": tags}
    data = load_rewrite_data(config_of(math_folder(tmp_path), [row], reward=reward))
    assert ("the tags of 1 of 1 rows do nothing and are left out, as of 'Solve it.'" in caplog.text) == is_told
    assert data.rows[0].tags == (() if is_told else tuple(tags))


def test_rows_of_subjects_and_templates_share_a_run_each_asked_in_its_own_way(tmp_path: Path) -> None:
    rewards = {"reward_funcs": ["template_accuracy_math_reward", "accuracy_math_reward_split"]}
    template = {"instruction": "Do {problem}", "dataset_name": "math-500", "tags": "{problem}"}
    data = load_rewrite_data(config_of(math_folder(tmp_path), [SUBJECT_ROWS[0], template], reward=rewards))
    assert [data.asking_of(row).fills_tags for row in data.rows] == [False, True]
    assert [len(data.asking_of(row).pool(row, data.train["math-500"])) for row in data.rows] == [30, 261]
    assert [len(data.dev_of(row)) for row in data.rows] == [10, 10], "though 19 are held out for the two"


@pytest.mark.parametrize(
    ("reward", "tags", "is_told"),
    [(PLAIN, [], True), (TEMPLATE, ["problem", "level"], False), (PLAIN, ["level"], True)],
)
def test_an_instruction_whose_braces_nothing_fills_is_told(
    reward: dict[str, Any], tags: list[str], is_told: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    row = {"instruction": "Level {level}: {problem}", "dataset_name": "math-500", "tags": tags}
    load_rewrite_data(config_of(math_folder(tmp_path), [row], reward=reward))
    assert ("math-500: its instruction's {level}, {problem} is sent as it is" in caplog.text) == is_told


def test_braces_that_are_no_column_are_an_instructions_own(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    row = {"instruction": "Answer as {value} in \\boxed{problem}.", "dataset_name": "math-500"}
    load_rewrite_data(config_of(math_folder(tmp_path), [row], reward=PLAIN))
    assert "is sent as it is" not in caplog.text


def test_an_instruction_with_a_tag_that_is_none_of_its_row_is_refused(tmp_path: Path) -> None:
    row = {"instruction": "Level {level}: {problem}", "dataset_name": "math-500", "tags": ["problem"]}
    with pytest.raises(UserError, match=r"holds \{level\}, which is none of its tags problem"):
        load_rewrite_data(config_of(math_folder(tmp_path), [row], reward=TEMPLATE))


@pytest.mark.parametrize(
    ("meta", "told"),
    [
        ("Rewrite: {prompt} Keep {problem}.", "rollout.meta_instruction: {prompt} is sent as it is"),
        ("Rewrite it, and keep {problem}: {instruction}", ""),
    ],
)
def test_braces_in_the_meta_instruction_that_nothing_fills_are_told(
    meta: str, told: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    row = {"instruction": "Do {problem}", "dataset_name": "math-500", "tags": ["problem"]}
    load_rewrite_data(config_of(math_folder(tmp_path), [row], reward=TEMPLATE, rollout={"meta_instruction": meta}))
    assert (told in caplog.text) if told else ("meta_instruction" not in caplog.text)


def test_a_data_folder_goes_before_a_hub_of_ones_own_and_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    entry = trl_math(tmp_path) | {"train_file": None, "hub": {"dataset": "me/sums"}}
    Path(tmp_path / "trl.jsonl").rename(tmp_path / "trl_math.jsonl")
    with caplog.at_level(logging.WARNING):
        assert len(load_examples(made(entry), "test", local_dir=tmp_path)) == 4
    assert "trl_math_test is read from trl_math.jsonl in the folder" in caplog.text
    assert "not from the hub's me/sums:train" in caplog.text


def test_a_rows_information_stands_after_its_instruction_in_the_request() -> None:
    row = InstructionRow("Say it.", "sst2", information="Films.")
    assert request_turn(row, RolloutSettings(meta_instruction="Rewrite.")) == "Rewrite.\n\nSay it.\n\nFilms."
    framed = RolloutSettings(meta_instruction="Rewrite: {instruction}\nNew one:")
    assert request_turn(row, framed) == "Rewrite: Say it.\nNew one:\n\nFilms."
    braces = InstructionRow("Say {instruction}.", "sst2")
    assert request_turn(braces, framed) == "Rewrite: Say {instruction}.\nNew one:"


def test_check_speaks_of_a_run_whose_rewrites_are_imitated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / "config.json").write_text("{}")
    write_lines(run / "log.jsonl", [{"instruction": f"i{n % 2}", "rewrite": "r", "reward": 1.0} for n in range(6)])
    sft = {"method": "sft", "policy": {"model": "a/b"}, "data": {"chats": str(run)}, "training": {"max_steps": 1}}
    (tmp_path / "sft.json").write_text(json.dumps(sft))
    assert tasks_command.main(["--check", str(tmp_path / "sft.json")]) == 0
    assert f"{run}: a run of 6 rewrites of 2 instructions" in capsys.readouterr().out
    (run / "config.json").unlink()
    assert not is_run_folder(run)


def test_check_of_problems_wants_no_rewriting_examples_and_says_a_thing_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    solve = {"objective": "solve", "policy": {"model": "a/b"}, "data": {"tasks": ["trl_math"], "dev_size": 10}}
    whole = solve | {"custom_tasks": [trl_math(tmp_path)], "training": {"max_steps": 1}}
    (tmp_path / "solve.json").write_text(json.dumps(whole))
    assert tasks_command.main(["--check", str(tmp_path / "solve.json")]) == 0
    told = capsys.readouterr()
    assert told.out.splitlines() == [
        "trl_math: 9 train, 10 dev, 4 test: trl_math_test (4 rows cut off by seed, no official split)"
    ]
    assert told.err.count("1 of 24 rows are left out") == 1

"""The user's words for labels, and a config's data checked at once."""

import json
from pathlib import Path

import pytest

from prewrite.asking.verdicts import grade
from prewrite.config.loading import load_config
from prewrite.errors import UserError
from prewrite.model_folder import refuse_no_model
from prewrite.tasks import __main__ as tasks_command
from prewrite.tasks import get_task
from prewrite.tasks.configured import ConfiguredTasks, unnamed_labels, with_words
from prewrite.tasks.loading import load_examples
from prewrite.training.objectives.rewrite_data import load_rewrite_data
from prewrite.types import Answer
from tests.launching import ROOT
from tests.test_rows import SUBJECT_ROWS, config_of, math_folder, write_lines


def with_labels(folder: Path, labels: dict[str, dict[str, str]]) -> ConfiguredTasks:
    return ConfiguredTasks(config_of(folder, SUBJECT_ROWS, data={"labels": labels}))


def test_labels_go_by_the_users_words(tmp_path: Path) -> None:
    rows = [{"passage": "p", "question": f"q {i}?", "label": "yes" if i % 2 else "no"} for i in range(1200)]
    write_lines(tmp_path / "boolq_val.jsonl", rows)
    task = with_labels(tmp_path, {"BoolQ": {"yes": "True", "no": "False"}}).get("boolq")
    assert task.labels == ("False", "True")
    test = load_examples(task, "test", local_dir=tmp_path)
    assert {example.target for example in test} == {"False", "True"}
    replies = [Answer("It is true."), Answer("yes")]
    assert [v.prediction for v in grade(task, test[:2], replies)] == ["True", None]
    assert unnamed_labels(task, task.default_instruction) == ["False", "True"]


@pytest.mark.parametrize(
    ("labels", "told"),
    [
        ({"boolq": {"maybe": "x"}}, "data.labels.boolq: 'maybe' is no label that a gold of boolq has"),
        ({"boolq": {"yes": "No"}}, "two must differ by more than case"),
        ({"boolq": {"yes": " "}}, "none may be empty"),
        ({"gsm8k": {"yes": "1"}}, "gsm8k is of the kind math"),
        ({"bolq": {"yes": "1"}}, "Did you mean 'boolq'"),
    ],
)
def test_label_words_that_cannot_be_are_refused(labels: dict[str, dict[str, str]], told: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=told):
        with_labels(tmp_path, labels)


def test_an_instruction_that_names_other_words_than_the_labels_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rows = [{"text": f"text {i}", "label": "positive" if i % 2 else "negative"} for i in range(60)]
    write_lines(tmp_path / "sst2_train.jsonl", rows[:50])
    write_lines(tmp_path / "sst2_dev.jsonl", rows[50:])
    given = [{"instruction": "Say if it is positive or negative.", "dataset_name": "sst2"}]
    for labels, told in (({}, False), ({"sst2": {"positive": "good", "negative": "bad"}}, True)):
        caplog.clear()
        reward = {"reward_funcs": ["accuracy_classification_reward"]}
        load_rewrite_data(config_of(tmp_path, given, data={"labels": labels}, reward=reward))
        assert ("sst2: its instruction does not name bad, good" in caplog.text) == told


def test_a_label_of_one_letter_is_named_by_that_letter_alone() -> None:
    assert unnamed_labels(get_task("gpqa"), "Is it a or B, or (C)? d") == ["A", "D"]
    assert unnamed_labels(get_task("sst2"), "POSITIVE or unnegative?") == ["negative"]


def test_words_keep_the_order_of_the_labels() -> None:
    assert with_words(get_task("cb"), {"neutral": "neu"}).labels == tuple(
        "neu" if label == "neutral" else label for label in get_task("cb").labels
    )


FAULTY = 'text,queue\na b,billing\n"two\nlines",bug\n,bug\nx,Billing\ny,Billing\nz,other\n'


def test_check_tells_every_fault_of_the_data_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = json.loads((ROOT / "configs" / "own_task.json").read_text())
    (task,) = config["custom_tasks"]
    (tmp_path / "train.csv").write_text(FAULTY)
    (tmp_path / "test.csv").write_text("text,queue\nfine,billing\n")
    files = {"train_file": str(tmp_path / "train.csv"), "test_file": str(tmp_path / "test.csv")}
    config["custom_tasks"] = [
        task | files | {"labels": ["billing", "bug"]},
        task | {"name": "sst 2", "train_file": str(tmp_path / "gone.csv")},
    ]
    config["policy"]["model"] = str(tmp_path / "no_model")
    config["task_model"]["model"] = str(tmp_path / "no_task_model")
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    assert tasks_command.main(["--check", str(path)]) == 2
    told = capsys.readouterr().err
    for fault in (
        f"policy.model '{tmp_path / 'no_model'}': no such folder",
        f"task_model.model '{tmp_path / 'no_task_model'}': no such folder",
        "'sst 2' is the name of the task sst2 here",
        "gone.csv: there is no such file",
        "train.csv: row 3 (line 5): the column 'text' is empty",
        "train.csv: row 4 (line 6): the column 'queue' is 'Billing'; it is 'billing' but for case",
        "(2 rows: row 4 (line 6), row 5 (line 7))",
        "row 6 (line 8): the column 'queue' is 'other'; the labels are billing, bug",
    ):
        assert fault in told


def test_check_tells_damaged_lines_together_with_the_faults_of_other_rows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [json.dumps({"text": f"text {i}", "queue": "bug" if i % 2 else "billing"}) for i in range(1, 21)]
    lines[3], lines[5], lines[15] = lines[3][:-9], "[]", "null"
    lines[17] = '{"text": "x", "text": "y", "queue": "bug"}'
    lines[18] = '{"text": "text 19", "queue": "Bug"}'
    content = [line.encode() for line in lines]
    content[9] = content[9].replace(b"text 10", b"caf\xe9")
    (tmp_path / "train.jsonl").write_bytes(b"\n".join(content) + b"\n")
    (tmp_path / "test.csv").write_text("text,queue\nfine,billing\nwell,billing,indeed\nbad,Billing\n")
    config = json.loads((ROOT / "configs" / "own_task.json").read_text())
    (task,) = config["custom_tasks"]
    files = {
        name: str(tmp_path / name.replace("_file", end))
        for name, end in (("train_file", ".jsonl"), ("test_file", ".csv"))
    }
    config["custom_tasks"] = [task | files | {"labels": ["billing", "bug"]}]
    config["policy"]["model"], config["task_model"]["base_url"] = "a/b", "http://host/v1"
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert tasks_command.main(["--check", str(tmp_path / "config.json")]) == 2
    told = capsys.readouterr().err
    for fault in (
        "train.jsonl: line 4 is not JSON",
        "train.jsonl: line 6 is a list",
        "train.jsonl: line 10 is not UTF-8 (its byte 14)",
        "train.jsonl: line 16 is null",
        "train.jsonl: line 18 is not JSON (the column 'text' stands twice)",
        "train.jsonl: row 19: the column 'queue' is 'Bug'",
        "test.csv: row 2 is no CSV (from line 3): it has more cells",
        "test.csv: row 3 (line 4): the column 'queue' is 'Billing'",
    ):
        assert fault in told


def test_check_tells_the_faults_of_every_row_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [
        {"instruction": "x", "dataset_name": "math-500", "subject": "Chess"},
        {"instruction": "{author}: {problem}", "dataset_name": "math-500", "tags": "{problem},{author}"},
    ]
    config = config_of(math_folder(tmp_path), rows, policy={"model": "a/b"}, task_model={"model": "a/b"})
    (tmp_path / "config.json").write_text(config.model_dump_json())
    assert tasks_command.main(["--check", str(tmp_path / "config.json")]) == 2
    told = capsys.readouterr().err
    assert "math-500/Chess: none of the 280 train examples is of it" in told
    assert "math-500: the tags author are no columns of it; they are problem, subject, level" in told


def test_check_counts_golds_that_are_prose(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    golds = ["\\frac{1}{2}", "12", "there are none of them left at all"]
    rows = [{"problem": f"p{i}", "answer": golds[i % 3]} for i in range(90)]
    write_lines(tmp_path / "rows.jsonl", rows)
    config = json.loads((ROOT / "configs" / "own_task.json").read_text())
    (task,) = config["custom_tasks"]
    for key in ("labels", "test_file"):
        del task[key]
    task |= {"kind": "math", "fields": {"problem": "Problem"}, "target": "answer", "test_size": 30}
    task |= {"train_file": str(tmp_path / "rows.jsonl")}
    config["data"]["dev_size"], config["policy"]["model"] = 20, "a/b"
    config["task_model"] |= {"base_url": "http://host/v1"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert tasks_command.main(["--check", str(tmp_path / "config.json")]) == 0
    told = capsys.readouterr().out
    assert "test: of the first 30 golds" in told
    assert "cannot be read as mathematics and give no verdict" in told
    assert "'there are none of them left at all'" in told


def test_check_tells_the_sizes_and_the_labels_of_a_config_that_is_fine(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    assert tasks_command.main(["--check", "configs/own_task.json", "--set", "task_model.base_url=http://host/v1"]) == 0
    told = capsys.readouterr().out
    assert "tickets: 70 train, 50 dev, 60 test" in told
    assert "test: billing 20, technical 20, shipping 20" in told
    setting = ["--set", "dev_size=200", "--set", "task_model.base_url=http://host/v1"]
    assert tasks_command.main(["--check", "configs/own_task.json", *setting]) == 2
    assert "set data.dev_size to 60" in capsys.readouterr().err


def test_a_missing_model_folder_is_told_before_the_hub_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    refuse_no_model("policy.model", "Qwen/Qwen3-4B")
    refuse_no_model("policy.model", "m" * 300)  # longer than a file's name may be: the hub will say so
    (tmp_path / "models" / "small").mkdir(parents=True)
    (tmp_path / "models" / "small" / "config.json").write_text("{}")
    refuse_no_model("policy.model", "models/small")
    with pytest.raises(UserError, match=r"policy.model 'models/smal': no such folder.*In models there are small"):
        refuse_no_model("policy.model", "models/smal")


@pytest.mark.parametrize(
    ("text", "line"), [('{"a": [1,\n 2,\n]}', 2), ('{"seed": 1,\n}', 1), ('{"seed": 1,,}', 0), ('{"seed" 1}', 0)]
)
def test_a_comma_too_many_is_named(text: str, line: int, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(UserError) as caught:
        load_config(tmp_path / "config.json")
    assert (f"take out the comma at the end of line {line}" in str(caught.value)) == bool(line)

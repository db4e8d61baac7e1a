"""`evaluate.py` on files of several rows: each is scored on its own task, subject and level, in its own way."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

import evaluate
from tests.fault_server import FaultServer, Reply, completion, query_of
from tests.test_rows import SUBJECTS, config_of, math_folder, write_lines

ROWS = [
    {"instruction": "Solve.", "dataset_name": "math-500", "subject": "Algebra"},
    {"instruction": "Solve.", "dataset_name": "math-500", "subject": "Geometry"},
    {"instruction": "Q {level}: {problem}", "dataset_name": "math-500", "tags": ["problem", "level"]},
    {"instruction": "True or False?", "dataset_name": "boolq"},
]
NAMES = ["math-500/Algebra", "math-500/Geometry", "math-500", "boolq"]
BETTER = ["Solve carefully.", "Solve carefully it.", "Carefully {problem} of {level}", "Carefully: True or False?"]


def seven_with_care(body: dict[str, Any], tried: int) -> Reply:
    """Right where the query says "carefully": 7, or the word True; else wrong."""
    right = "carefully" in query_of(body).lower()
    if "Passage" in query_of(body) or "structured_outputs" in body:
        return Reply(body=completion("True" if right else "False"))
    return Reply(body=completion("7" if right else "8"))


@pytest.fixture
def run_folder(tmp_path: Path) -> Path:
    """A run of these rows, whose log has a better rewrite of each but the second."""
    math_folder(tmp_path)
    questions = [{"passage": "p", "question": f"q {i}?", "label": "yes"} for i in range(1004)]
    write_lines(tmp_path / "boolq_val.jsonl", questions)
    config = config_of(tmp_path, ROWS, data={"labels": {"boolq": {"yes": "True", "no": "False"}}})
    (tmp_path / "config.json").write_text(config.model_dump_json())
    log = [
        {**row, "row": name, "rewrite": text, "reward": 1.0}
        for row, name, text in zip(ROWS, NAMES, BETTER, strict=True)
    ]
    log[1]["rewrite"] = "Solve."
    write_lines(tmp_path / "log.jsonl", log)
    return tmp_path


def run(folder: Path, server: FaultServer, *arguments: str, prompts: str = "log.jsonl") -> int:
    served = ["--model", "task", "--base-url", server.base_url]
    return evaluate.main(
        ["--prompts", str(folder / prompts), *served, "--config", str(folder / "config.json"), *arguments]
    )


def test_each_row_of_a_log_is_scored_on_its_own(run_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with FaultServer(seven_with_care) as server:
        assert run(run_folder, server) == 0
    asked = [query_of(body) for body in server.bodies[1:]]
    of_subjects = [query for query in asked if query.startswith("Solve")]
    assert {query.partition(" of ")[2].partition(":")[0] for query in of_subjects if "carefully" in query} == {
        "Algebra"
    }
    assert {query.partition(" of ")[2].partition(":")[0] for query in of_subjects} == {"Algebra", "Geometry"}
    templates = [query for query in asked if query.startswith(("Q ", "Carefully test"))]
    assert len(templates) == 2 * 6 * len(SUBJECTS)
    assert all("{" not in query for query in templates)
    assert [body["structured_outputs"] for body in server.bodies if query_of(body).startswith("Carefully: ")] == [
        {"choice": ["False", "True"]}
    ] * 4
    printed = capsys.readouterr().out
    lines = {line.split("  ")[0]: line for line in printed.split("\n")}
    assert re.search(r"math-500/Algebra +6 +0\.0 .* 100\.0 .* 6/0 +0\.0312", lines["math-500/Algebra"]), printed
    assert "mean of 4 rows: initial 0.0, best 75.0; over all examples 52 won, 0 lost" in printed
    written = json.loads((run_folder / "evaluation_math-500_boolq.json").read_text())
    assert [report["row"] for report in written["reports"]] == NAMES
    assert written["mean"]["best"] == 0.75
    assert written["reports"][3]["labels"] == ["False", "True"]


def test_a_row_whose_run_kept_its_initial_instruction_is_measured_with_it(
    run_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    best = {
        name: {"task": row["dataset_name"], "instruction": BETTER[0]} for row, name in zip(ROWS, NAMES, strict=True)
    }
    best["boolq"]["instruction"] = "True or False?"
    (run_folder / "best.json").write_text(json.dumps(best))
    with FaultServer(seven_with_care) as server:
        assert run(run_folder, server) == 0
    assert "mean of 4 rows: initial 0.0, best 50.0" in capsys.readouterr().out


def test_a_task_picks_its_rows(run_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with FaultServer(seven_with_care) as server:
        assert run(run_folder, server, "--task", "boolq") == 0
    assert len(server.bodies) == 1 + 2 * 4
    assert "task: boolq" in capsys.readouterr().out


def test_the_rows_of_a_list_are_scored_on_their_own_dataset_name(
    run_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    listed = [{**row, "instruction": text} for row, text in zip(ROWS, BETTER, strict=True)]
    write_lines(run_folder / "list.jsonl", listed)
    with FaultServer(seven_with_care) as server:
        assert run(run_folder, server, prompts="list.jsonl") == 0
    assert "mean of 4 rows: initial 0.0, best 100.0" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ({"instruction": "x", "dataset_name": "sst3"}, "'sst3' is no task. Did you mean 'sst2'"),
        ({"instruction": "x", "dataset_name": "math-500", "tags": "{author}"}, "the tag 'author' of the row"),
        ({"instruction": "x", "dataset_name": "math-500", "subject": "Chess"}, "subject='Chess'"),
        ({"instruction": "x"}, "it names no task; give one with --task"),
    ],
)
def test_faults_of_rows_are_told_before_anything_is_asked(
    line: dict[str, Any], told: str, run_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_lines(run_folder / "list.jsonl", [line])
    with FaultServer(seven_with_care) as server:
        assert run(run_folder, server, prompts="list.jsonl") == 2
    assert server.bodies == []
    assert told in capsys.readouterr().err


def test_a_task_of_ones_own_needs_its_config(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "list.txt").write_text("Say it.\n")
    arguments = ["--prompts", str(tmp_path / "list.txt"), "--task", "tickets", "--model", "task"]
    assert evaluate.main([*arguments, "--base-url", "http://127.0.0.1:9/v1"]) == 2
    assert "A task of your own needs --config." in capsys.readouterr().err

"""`evaluate.py` from the command line to the exit code, against real servers."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

import evaluate
from tests.fault_server import FaultServer, Reply, completion, query_of
from tests.launching import MODEL, command_lines, descendants, finish, start

INITIAL = "Say what it is."
GOOD = "Look for the word good."


def says_good_where_told(body: dict[str, Any], tried: int) -> Reply:
    """Right on every query that begins with GOOD; "positive" to everything else."""
    query = query_of(body)
    right = "positive" if "good" in query.split("\n")[-1] else "negative"
    return Reply(body=completion(right if query.startswith(GOOD) else "positive"))


def refuses(body: dict[str, Any], tried: int) -> Reply:
    return Reply(status=400, body='{"error": {"message": "no"}}')


def write_jsonl(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.fixture
def run_folder(tmp_path: Path) -> Path:
    """A run on a task of the user's own, with 40 test examples; its config.json names no endpoint that lives."""
    rows = [
        {"text": f"a {'good' if i % 2 else 'bad'} day {i}", "label": ["negative", "positive"][i % 2]} for i in range(60)
    ]
    write_jsonl(tmp_path / "train.jsonl", rows[40:])
    write_jsonl(tmp_path / "test.jsonl", rows[:40])
    task = {
        "name": "days", "kind": "classification", "labels": ["negative", "positive"], "fields": {"text": "Text"},
        "target": "label", "train_file": str(tmp_path / "train.jsonl"), "test_file": str(tmp_path / "test.jsonl"),
        "default_instruction": "Classify.",
    }  # fmt: skip
    config = {
        "policy": {"model": "none"},
        "data": {"tasks": ["days"]},
        "custom_tasks": [task],
        "task_model": {"model": "task", "base_url": "http://127.0.0.1:9/v1", "max_retries": 0, "concurrency": 4},
        "training": {"max_steps": 1},
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    rewrites = [(GOOD, 0.9), (INITIAL, 1.0), ("Poor.", 0.1), ("", 1.0), ("Never.", None)]
    log = [{"dataset_name": "days", "instruction": INITIAL, "rewrite": text, "reward": r} for text, r in rewrites]
    write_jsonl(tmp_path / "log.jsonl", log)
    return tmp_path


def run(folder: Path, *arguments: str, task: str = "days", prompts: str = "log.jsonl") -> int:
    return evaluate.main(["--prompts", str(folder / prompts), "--task", task, *arguments])


def point_config_at(folder: Path, base_url: str) -> None:
    config = json.loads((folder / "config.json").read_text())
    config["task_model"]["base_url"] = base_url
    (folder / "config.json").write_text(json.dumps(config))


def test_a_log_is_evaluated_with_the_task_model_of_its_run(
    run_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with FaultServer(says_good_where_told) as server:
        point_config_at(run_folder, server.base_url)
        assert run(run_folder) == 0
    asked = [query_of(body).split("\n")[0] for body in server.bodies[1:]]  # the first is the probe
    assert (len(asked), set(asked)) == (3 * 40, {INITIAL, GOOD, "Poor."})
    assert server.bodies[1]["structured_outputs"] == {"choice": ["negative", "positive"]}
    printed = capsys.readouterr().out
    assert "all 40 examples" in printed
    assert "ranking: by mean reward on days" in printed
    row = next(line for line in printed.split("\n") if line.startswith("rank 1"))
    assert re.search(r"40 +0 +100\.0 \[91\.2, 100\.0\] .* 100/100 .* <0\.0001 +20/0$", row), row
    written = json.loads((run_folder / "evaluation_days.json").read_text())
    assert [item["role"] for item in written["rows"]] == ["initial", "rank 1", "rank 2"]
    assert written["rows"][0]["instruction"] == INITIAL
    assert written["rows"][0]["summary"]["recall"] == {"negative": 0.0, "positive": 1.0}
    assert len(written["rows"][1]["verdicts"]) == 40
    assert written["rows"][1]["against"]["initial"]["wins"] == 20


def test_a_limit_and_top_k_are_said_aloud(run_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with FaultServer(says_good_where_told, served=("other",)) as server:
        flags = ["--model", "other", "--base-url", server.base_url, "--scoring", "free_text"]
        assert run(run_folder, *flags, "--limit", "8", "--top-k", "1") == 0
    assert {body["model"] for body in server.bodies} == {"other"}
    assert all("structured_outputs" not in body for body in server.bodies)
    printed = capsys.readouterr().out
    assert "ONLY THE FIRST 8 of 40 examples" in printed
    assert "the first 1 of 2 instructions" in printed
    assert "scoring: free_text" in printed
    assert (run_folder / "evaluation_days_first_8.json").exists()
    assert not (run_folder / "evaluation_days.json").exists()


def test_another_task_has_its_own_baseline_too(run_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with FaultServer(says_good_where_told) as server:
        flags = ["--model", "task", "--base-url", server.base_url]
        assert run(run_folder, *flags, "--limit", "4", "--out", str(run_folder / "o.json"), task="sentiment") == 0
    printed = capsys.readouterr().out
    assert "no row of the log is for sentiment" in printed
    assert "p default" in printed
    rows = json.loads((run_folder / "o.json").read_text())["rows"]
    assert [row["role"] for row in rows] == ["initial", "default", "rank 1", "rank 2"]


def test_calls_that_fail_are_counted_and_past_a_share_stop(
    run_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails_on(texts: tuple[str, ...]):
        def behaviour(body: dict[str, Any], tried: int) -> Reply:
            failing = query_of(body).endswith(texts)
            return refuses(body, tried) if failing else says_good_where_told(body, tried)

        return behaviour

    with FaultServer(fails_on((" 0", " 1"))) as server:  # days 0 and 1 with their whole number: 2 of 40
        point_config_at(run_folder, server.base_url)
        assert run(run_folder) == 0
    row = next(line for line in capsys.readouterr().out.split("\n") if line.startswith("rank 1"))
    assert re.match(r"rank 1 +40 +2 +100\.0", row), row
    (run_folder / "evaluation_days.rows.jsonl").unlink()
    with FaultServer(fails_on(tuple("01234"))) as server:  # half of all
        point_config_at(run_folder, server.base_url)
        assert run(run_folder) == 2
    assert "60 of the last 120 calls stayed failed" in capsys.readouterr().err


FAULTS = {
    "unknown task": (["--task", "sst3"], "Did you mean 'sst2'"),
    "missing prompts": (["--prompts", "missing.jsonl"], "no such file"),
    "a name too long": (["--prompts", "x" * 5000], "no such file"),
    "a result's name too long": (["--out", "x" * 5000], "cannot be written"),
    "nothing listens": ([], "nothing answers there"),
    "no model": (["--base-url", "http://127.0.0.1:9/v1"], "say which one too, with --model"),
    "no model folder": (["--model", "./nothing/here"], "no such folder"),
    "no result folder": (["--out", "missing/folder/out.json"], "cannot be written"),
    "missing config": (["--config", "missing.json"], "missing.json"),
}


@pytest.mark.parametrize(("arguments", "message"), FAULTS.values(), ids=FAULTS)
def test_faults_are_one_message_and_exit_2(
    run_folder: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(run_folder, *arguments) == 2
    told = capsys.readouterr().err
    assert message in told
    assert "Traceback" not in told


@pytest.mark.parametrize("empty", ["log.jsonl", "test.jsonl"])
def test_an_empty_log_or_test_split_is_refused(  # system-064
    run_folder: Path, empty: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (run_folder / empty).write_text("")
    assert run(run_folder) == 2
    captured = capsys.readouterr()
    assert "0 rows" in captured.err
    assert captured.out == ""


def test_without_any_task_model_one_message(run_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (run_folder / "config.json").unlink()
    assert run(run_folder, task="sentiment") == 2
    assert "no task model: give --model" in capsys.readouterr().err


def test_an_endpoint_without_one_verdict_is_told(run_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with FaultServer(refuses) as server:
        point_config_at(run_folder, server.base_url)
        assert run(run_folder, "--limit", "2") == 2
    told = capsys.readouterr().err
    assert "none of 2 test examples has a verdict" in told
    assert "(the last call that failed: HTTP 400: " in told


@pytest.mark.slow
def test_the_embedded_task_and_model_beside_an_evaluation_that_ctrl_c_ends(tmp_path: Path) -> None:
    """Two at once, since the start of a server is half a minute's work for one core.

    Ctrl-C while the server starts ends that server, and not the other one, and nothing is written.
    """
    if not MODEL.is_dir():
        pytest.skip(f"{MODEL} is missing: run scripts/fetch_model.py")
    ours, ended = tmp_path / "ours", tmp_path / "ended"
    for folder, instruction in (
        (ended, "Positive or negative?"),
        (
            ours,
            "Is the sentiment of this review good or bad? If the writer is happy answer positive. "
            "If the writer is unhappy answer negative. Answer with one word.",
        ),
    ):
        folder.mkdir()
        (folder / "list.txt").write_text(instruction + "\n")
        (folder / "model").symlink_to(MODEL)  # a path of this test's own, by which its servers are told from others
    running = evaluation(ours)
    try:
        ends_by_ctrl_c_while_the_server_starts(evaluation(ended))
    finally:
        code, _, stderr = finish(running, timeout=500)
    assert sorted(os.listdir(ended)) == ["list.txt", "model"]
    assert code == 0, stderr
    initial, best = json.loads((ours / "evaluation_sentiment_first_32.json").read_text())["rows"]
    assert best["summary"]["accuracy"]["value"] > initial["summary"]["accuracy"]["value"]
    assert best["summary"]["accuracy"]["value"] >= 0.7
    assert best["summary"]["failed"] == initial["summary"]["failed"] == 0
    assert not [line for line in command_lines(list(psutil.process_iter())) if str(tmp_path) in line]


def evaluation(folder: Path) -> subprocess.Popen[str]:
    prompts, model = str(folder / "list.txt"), str(folder / "model")
    arguments = ["--prompts", prompts, "--task", "sentiment", "--model", model, "--limit", "32"]
    return start([sys.executable, "evaluate.py", *arguments])


def ends_by_ctrl_c_while_the_server_starts(process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 300
    family = descendants(process)
    while not any(re.match(r"\S+ -m vllm\.", line) for line in command_lines(family)):
        assert time.monotonic() < deadline, "no server has been started"
        time.sleep(0.1)
        family = descendants(process)
    time.sleep(1)  # it waits for the server by now
    family = descendants(process)
    process.send_signal(signal.SIGINT)
    code, out, err = finish(process, timeout=60)
    assert code == 130, err
    assert "Traceback" not in err
    assert out == ""
    assert command_lines(family) == []

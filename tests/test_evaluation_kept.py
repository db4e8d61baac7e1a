"""What was answered is never asked again: `evaluate.py` killed in the middle and started again."""

import json
import signal
import time
from pathlib import Path
from typing import Any

import pytest

import evaluate
from prewrite.config import TaskModelSettings
from prewrite.engine.task_model import TaskModel
from prewrite.errors import UserError
from prewrite.evaluation.kept import KeptAnswers
from prewrite.types import Call
from tests.fault_server import FaultServer, Reply, completion, echo, query_of
from tests.launching import finish
from tests.loaded import start_light
from tests.test_evaluation_command import (  # noqa: F401  # the fixture
    GOOD,
    INITIAL,
    point_config_at,
    refuses,
    run,
    run_folder,
    says_good_where_told,
)

SETTINGS = TaskModelSettings(model="task", max_retries=0)


def slowly(body: dict[str, Any], tried: int) -> Reply:
    reply = says_good_where_told(body, tried)
    return Reply(body=reply.body, delay=0.05)


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def kept_lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def test_killed_in_the_middle_and_started_again_it_asks_only_what_is_missing(
    run_folder: Path,  # noqa: F811
) -> None:
    """Of three instructions with three samples each; the third start is in this process: nothing is left to ask."""
    with FaultServer(slowly) as server:
        point_config_at(run_folder, server.base_url)
        rows, total = run_folder / "evaluation_days.rows.jsonl", 3 * 3 * 40
        arguments = ["--prompts", str(run_folder / "log.jsonl"), "--set", "task_model.temperature=0.5"]
        arguments += ["--samples", "3", "--task", "days"]
        process = start_light("evaluate.py", *arguments)
        deadline = time.monotonic() + 120
        while kept_lines(rows) < 20:
            assert time.monotonic() < deadline, "no answers"
            assert process.poll() is None, process.communicate()[1]
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        kept, asked = kept_lines(rows), len(server.bodies)
        assert 20 <= kept < total
        with rows.open("a", encoding="utf-8") as file:
            file.write('{"query": "cut in the mid')
        code, out, err = finish(start_light("evaluate.py", *arguments))
        assert code == 0, err
        assert f"{kept} of {total} answers are kept" in err
        assert len(server.bodies) - asked == total - kept + 1  # and the probe
        assert f"{kept} more answers were kept" in out
        whole = lines(rows)
        assert len(whole) == total
        assert all(row["correct"] in (True, False) and row["gold"] and row["query"] and row["answer"] for row in whole)
        before = (run_folder / "evaluation_days.json").read_text()
        assert evaluate.main(arguments) == 0
        assert len(server.bodies) - asked == total - kept + 1  # not even the probe
        first, second = json.loads(before), json.loads((run_folder / "evaluation_days.json").read_text())
        assert first["rows"] == second["rows"]


def test_a_failed_call_is_asked_again_and_the_others_not(
    run_folder: Path,  # noqa: F811
) -> None:
    def fails(body: dict[str, Any], tried: int) -> Reply:
        return refuses(body, tried) if query_of(body).endswith(" 7") else says_good_where_told(body, tried)

    with FaultServer(fails) as server:
        point_config_at(run_folder, server.base_url)
        assert run(run_folder) == 0
        assert len(server.bodies) == 1 + 120
        assert run(run_folder) == 0
        again = [query_of(body) for body in server.bodies[122:]]
    assert sorted(again) == sorted(f"{text}\nText: a good day 7" for text in (INITIAL, GOOD, "Poor."))
    rows = lines(run_folder / "evaluation_days.rows.jsonl")
    assert sum(row["answer"] is None and row["correct"] is None for row in rows) == 3


def test_an_answer_belongs_to_its_model_its_sampling_and_its_sample(tmp_path: Path) -> None:
    path, calls = tmp_path / "rows.jsonl", [Call("a"), Call("a", sample_index=1), Call("b")]
    with FaultServer(echo) as server, TaskModel(SETTINGS, base_url=server.base_url) as task_model:
        answers = KeptAnswers(path, SETTINGS, lambda: task_model).ask(calls)
        assert [answer.text for answer in answers] == ["a", "a", "b"]
        assert len(server.bodies) == len(lines(path)) == 3

        def never() -> TaskModel:
            raise AssertionError("everything is kept")

        kept = KeptAnswers(path, SETTINGS, never)
        assert [answer.text for answer in kept.ask(calls)] == ["a", "a", "b"]
        for changed in ({"model": "other"}, {"temperature": 0.5}, {"max_tokens": 7}):
            assert len(KeptAnswers(path, SETTINGS.model_copy(update=changed), never).missing(calls)) == 3
        assert len(KeptAnswers(path, SETTINGS.model_copy(update={"timeout": 7.0}), never).missing(calls)) == 0


def test_choices_that_are_forced_otherwise_are_another_question(tmp_path: Path) -> None:
    path, labels = tmp_path / "rows.jsonl", ("no", "yes")
    with FaultServer(echo) as server, TaskModel(SETTINGS, base_url=server.base_url) as task_model:
        kept = KeptAnswers(path, SETTINGS, lambda: task_model)
        kept.ask([Call("no", labels)])
        assert (kept.dialect, lines(path)[0]["forced_by"]) == ("structured_outputs", "structured_outputs")
        again = KeptAnswers(path, SETTINGS, lambda: task_model)
        assert (again.dialect, again.missing([Call("no", labels)])) == ("structured_outputs", [])
        assert again.missing([Call("no", ("a", "b")), Call("no")]) == [Call("no", ("a", "b")), Call("no")]
        task_model.dialect = "json_schema"
        with pytest.raises(UserError, match=r"forced by structured_outputs, and .* forces them by json_schema"):
            again.ask([Call("yes", labels)])


def test_ctrl_c_says_that_the_answers_are_kept(tmp_path: Path) -> None:
    def stops(body: dict[str, Any], tried: int) -> Reply:
        return Reply(body=completion("positive"), delay=0.02)

    with FaultServer(stops) as server:
        (tmp_path / "list.txt").write_text("Be brief.\n")
        arguments = ["--prompts", str(tmp_path / "list.txt"), "--task", "sentiment", "--model", "task"]
        process = start_light("evaluate.py", *arguments, "--base-url", server.base_url)
        rows = tmp_path / "evaluation_sentiment.rows.jsonl"
        while kept_lines(rows) < 5 and process.poll() is None:
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        code, out, err = finish(process)
    assert (code, out) == (130, "")
    assert "the same command asks only what has no answer yet" in err
    assert "Traceback" not in err
    assert not (tmp_path / "evaluation_sentiment.json").exists()


def test_a_file_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    path = tmp_path / "no folder" / "rows.jsonl"
    with (
        FaultServer(echo) as server,
        TaskModel(SETTINGS, base_url=server.base_url) as task_model,
        pytest.raises(UserError, match="could not be written"),
    ):
        KeptAnswers(path, SETTINGS, lambda: task_model).ask([Call("a")])


def test_what_another_evaluation_paid_for_stays_in_the_file(
    run_folder: Path,  # noqa: F811
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Only the best, then all again: the first evaluation's answers to the second best are not asked anew."""
    with FaultServer(says_good_where_told) as server:
        point_config_at(run_folder, server.base_url)
        assert run(run_folder) == 0
        assert run(run_folder, "--top-k", "1") == 0
        assert "80 more answers were kept" in capsys.readouterr().out  # of 120 in the file
        rows = lines(run_folder / "evaluation_days.rows.jsonl")
        assert [row.get("role") for row in rows] == ["initial"] * 40 + ["rank 1"] * 40 + [None] * 40
        assert all(row["query"].startswith("Poor.") for row in rows[80:])
        assert run(run_folder) == 0
        assert len(server.bodies) == 1 + 120


@pytest.mark.parametrize("cut", [b'{"query": "cut', '{"query": "é'.encode()[:-1]], ids=["a line", "a letter"])
def test_a_start_that_ended_in_its_first_line_is_no_fault(tmp_path: Path, cut: bytes) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(cut)
    with FaultServer(echo) as server, TaskModel(SETTINGS, base_url=server.base_url) as task_model:
        KeptAnswers(path, SETTINGS, lambda: task_model).ask([Call("a")])
        path.write_bytes(path.read_bytes() + cut)
        assert KeptAnswers(path, SETTINGS, lambda: task_model).missing([Call("a")]) == []
    assert [row["query"] for row in lines(path)] == ["a"]


@pytest.mark.parametrize("place", ["folder", "link", "in a file", "long name"])
def test_a_rows_file_that_cannot_be_written_is_told_before_anything_is_asked(
    run_folder: Path,  # noqa: F811
    capsys: pytest.CaptureFixture[str],
    place: str,
) -> None:
    rows, out = run_folder / "out.rows.jsonl", run_folder / "out.json"
    if place == "folder":
        rows.mkdir()
    elif place == "link":
        rows.symlink_to(run_folder / "missing" / "rows.jsonl")
    else:
        out = run_folder / "config.json" / "out.json" if place == "in a file" else run_folder / f"{'o' * 245}.json"
    with FaultServer(says_good_where_told) as server:
        point_config_at(run_folder, server.base_url)
        assert run(run_folder, "--out", str(out)) == 2
        assert server.bodies == []
    assert "cannot be written; give a file" in capsys.readouterr().err

"""What a person can read of a run: raw completions, the task model's answers, rewrites on the console."""

import json
from pathlib import Path

import pytest

from prewrite.config import TaskModelSettings
from prewrite.config.loading import load_config
from prewrite.engine.answer_log import AnswerLog
from prewrite.engine.task_model import TaskModel
from prewrite.reporting.console import SHOWN_CHARACTERS, Console
from prewrite.reporting.journal import Journal
from prewrite.types import Call, InstructionRow, Rollout, Sample
from tests.fault_server import FaultServer, Reply, echo, query_of

ROW = InstructionRow("Say it.", "sst2")
QUICKSTART = Path(__file__).parent.parent / "configs" / "quickstart.json"


def rollout(text: str, output: str, reward: float | None) -> Rollout:
    return Rollout(Sample((), (), (), text, "stop"), ROW, 0, output, reward, {}, 0.0)


def test_the_log_has_the_raw_completion_where_it_is_more_than_the_rewrite(tmp_path: Path) -> None:
    journal = Journal(load_config(QUICKSTART, [f"output_dir={tmp_path}"]))
    rollouts = [rollout("Sure! Here:\n\n\ud800Say it.", "Say it.", 1.0), rollout("Tell.", "Tell.", 0.0)]
    journal.write_rollouts(rollouts, step=1, stage=0, seed=1, gaps=[None, None])
    first, second = map(json.loads, (journal.folder / "log.jsonl").read_text().splitlines())
    assert (first["rewrite"], first["completion"]) == ("Say it.", "Sure! Here:\n\n\ud800Say it.")
    assert "completion" not in second


def test_answers_over_the_wire_are_written_up_to_the_size(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def behaviour(body, tried):
        return Reply(status=400, body="no") if query_of(body) == "fails" else echo(body, tried)

    path = tmp_path / "answers.jsonl"
    with FaultServer(behaviour) as server:
        settings = TaskModelSettings(model="task", max_retries=0)
        for start in range(2):  # the second goes on with the file of the first
            with TaskModel(settings, base_url=server.base_url) as model:
                model.answer_log = AnswerLog(path, 1000)
                model.ask([Call("q é \ud800", ("q é ?",), task="sst2"), Call("q é \ud800", ("q é ?",), task="sst2")])
                model.ask([Call("fails", sample_index=start)])
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert [line["answer"] for line in lines] == ["q é ?", None] * 2
    assert lines[0] == {
        "task": "sst2", "query": "q é \ud800", "choices": ["q é ?"], "sample": 0,
        "answer": "q é ?", "finish_reason": "stop", "error": None,
    }  # fmt: skip
    assert "HTTP 400" in lines[1]["error"]
    assert not caplog.text
    with FaultServer() as server, TaskModel(TaskModelSettings(model="task"), base_url=server.base_url) as model:
        model.answer_log = AnswerLog(path, 1000)
        assert [a.text for a in model.ask([Call("x" * 120), Call("y" * 120)])] == ["x" * 120, "y" * 120]
    assert len(path.read_bytes()) <= 1000
    assert len(path.read_text(encoding="utf-8").splitlines()) == 5, "one more has room beside what was there"
    assert caplog.text.count("no more answers") == 1


def test_rewrites_are_shown_from_the_best_to_the_worst(capsys: pytest.CaptureFixture[str]) -> None:
    rewards = [0.25, None, 1.0, 0.5, 0.0, 0.75]
    rollouts = [rollout(f"text {reward}", f"text {reward}", reward) for reward in rewards] * 2
    console = Console(1, is_main=True)
    console.rewrites(rollouts, 3)
    shown = capsys.readouterr().out.splitlines()
    assert [line.split("'")[1] for line in shown] == ["text 1.0", "text 0.5", "text None"]
    assert shown[0].split()[0] == "1.000"
    assert shown[2].split()[0] == "-"
    console.rewrites([rollout("thoughts\x1b[2J\n" * 200, "", 0.0)], 9)
    (line,) = capsys.readouterr().out.splitlines()
    assert line.split("  ")[-1].startswith("no rewrite in 'thoughts\\x1b[2J\\n")
    assert len(line) < 2 * SHOWN_CHARACTERS
    console.rewrites(rollouts, 0)
    console.rewrites([], 3)
    Console(1, is_main=False).rewrites(rollouts, 3)
    assert capsys.readouterr().out == ""

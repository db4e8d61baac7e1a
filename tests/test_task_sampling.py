"""How the task model's answers are sampled: the fields sent, what differs by task, several answers averaged."""

import json
import re
from pathlib import Path

import pytest

from prewrite.asking import MINI_BATCH
from prewrite.asking.questions import Question, evaluate
from prewrite.asking.verdicts import averaged
from prewrite.config import TaskModelSettings
from prewrite.config.loading import load_config, validated
from prewrite.engine.task_model import TaskModel
from prewrite.errors import UserError
from prewrite.evaluation.summary import summarise
from prewrite.rewards import get_reward
from prewrite.tasks import check_by_task, get_task
from prewrite.training.objectives.call_plan import LOOK_SHARE, TEST_SHARE, look_calls, look_examples, race_calls
from prewrite.training.objectives.call_plan import test_rows as rows_of_test
from prewrite.training.objectives.rewrite_data import load_rewrite_data
from prewrite.types import Call, Example, InstructionRow, Sample, Verdict
from tests.fault_server import FaultServer, Reply, completion, query_of
from tests.test_evaluation_command import run, run_folder  # noqa: F401  # a fixture


def test_a_tasks_own_sampling_is_sent_and_is_part_of_the_key():
    by_task = {"gsm8k": {"temperature": 0.6, "max_tokens": 99, "top_k": 20, "min_p": 0.1}}
    with FaultServer() as server:
        given = {"model": "task", "presence_penalty": 1.5, "repetition_penalty": 1.1, "by_task": by_task}
        settings = validated(TaskModelSettings, given, "here")
        with TaskModel(settings, base_url=server.base_url) as model:
            model.ask([Call("q", task="gsm8k"), Call("q", task="sst2"), Call("q", task="copa")])
    bodies = sorted(server.bodies, key=lambda body: body["max_tokens"])
    names = ("temperature", "max_tokens", "top_k", "min_p", "presence_penalty", "repetition_penalty")
    assert [[body[name] for name in names] for body in bodies] == [
        [0.6, 99, 20, 0.1, 1.5, 1.1],
        [0.0, 512, -1, 0.0, 1.5, 1.1],
    ]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"samples_per_query": 4}, "would all be the same; set it above 0"),
        ({"samples_per_query": 4, "temperature": 1.0, "by_task": {"sst2": {"temperature": 0.0}}}, "of 'sst2'"),
        ({"vllm_fields": False, "top_k": 20}, "`vllm_fields` alone"),
        ({"vllm_fields": False, "by_task": {"sst2": {"repetition_penalty": 1.2}}}, "of 'sst2' are sent"),
        ({"by_task": {"sst2": {"tokens": 3}}}, "by_task.sst2.tokens: unknown key"),
        ({"presence_penalty": 3.0}, "less than or equal to 2"),
    ],
)
def test_sampling_that_cannot_be_is_refused(given, told):
    with pytest.raises(UserError, match=re.escape(told)):
        validated(TaskModelSettings, {"model": "task", **given}, "here")


def test_by_task_names_tasks_as_they_are_called():
    check_by_task(["math-500"], [])
    with pytest.raises(UserError, match="another spelling of 'math-500'"):
        check_by_task(["MATH 500"], [])
    with pytest.raises(UserError, match=r"task_model\.by_task: 'mth' is no task"):
        check_by_task(["mth"], [])


def verdict(correct, prediction="a", f1=None):
    return Verdict("1", "a", prediction, correct, well_formed=prediction is not None, f1=f1)


def test_answers_to_one_query_are_averaged_and_failed_ones_left_out():
    (one,) = averaged(
        [[verdict(True, f1=1.0)], [verdict(False, "b", f1=0.0)], [verdict(True, f1=0.5)], [verdict(None)]]
    )
    assert (one.correct, one.prediction, one.well_formed, one.f1) == (True, "a", True, 0.5)
    assert one.score == pytest.approx(2 / 3)
    (half,) = averaged([[verdict(True)], [verdict(False, "b")]])
    assert (half.correct, half.score) == (False, 0.5), "half of the answers is not most of them"
    (failed,) = averaged([[verdict(None)], [verdict(None)]])
    assert failed.correct is failed.score is None
    (single,) = averaged([[verdict(True)]])
    assert (single.share, single.score) == (None, 1.0)


def test_a_budget_of_calls_counts_every_sample():
    once, four = (
        load_config("configs/quickstart.json", ["max_task_calls=4000", "task_model.temperature=1.0", sampled])
        for sampled in ("samples_per_query=1", "samples_per_query=4")
    )
    data = load_rewrite_data(once)
    (row,) = data.rows
    few, many = rows_of_test(four, data, row, 4000), rows_of_test(once, data, row, 4000)
    assert few <= TEST_SHARE * 4000 / 2 / 4 < many
    assert race_calls(four, data, 4000, 100) == 4000 - 100 - 2 * few * 4
    assert len(look_examples(four, data, row)) * 4 <= LOOK_SHARE * 4000
    looked = (1 + four.selection.num_sampled) * len(look_examples(four, data, row))
    assert look_calls(four, data) == 4 * looked


def test_every_sample_is_asked_and_rewards_and_scores_are_means():
    def behaviour(body, tried):
        return Reply(body=completion("positive" if tried == 1 else "negative"))

    examples = [Example(str(i), {"text": f"text {i}"}, "positive") for i in range(8)]
    task = get_task("sst2")
    with FaultServer(behaviour) as server:
        settings = TaskModelSettings(model="task", temperature=1.0)
        with TaskModel(settings, base_url=server.base_url) as model:
            questions = [Question(MINI_BATCH, task, InstructionRow("", task.name), "Say it.", examples)]
            (evaluation,) = evaluate(questions, model, scoring="free_text", samples=4)
            assert (len(server.bodies), model.stats.calls) == (32, 32)
            (again,) = evaluate(questions, model, scoring="free_text", samples=4)
            assert (len(server.bodies), again) == (32, evaluation)
    assert [v.score for v in evaluation.verdicts] == [0.25] * 8
    reward = get_reward("accuracy_classification_reward")
    scores = reward.score(
        [Sample((), (), (), "Say it.", "stop")],
        [InstructionRow("Say it.", "sst2")],
        evaluations=[evaluation],
        tasks=[task],
        examples=[examples],
        rewrites=["Say it."],
        parameters={},
    )
    assert scores == [0.25]
    summary = summarise(task, evaluation)
    assert summary.accuracy is not None
    assert summary.accuracy.value == 0.25


def test_evaluate_takes_every_setting_and_averages_samples(
    run_folder: Path,  # noqa: F811
    capsys: pytest.CaptureFixture[str],
) -> None:
    def behaviour(body, tried):
        gold = "positive" if "good" in query_of(body).split("\n")[-1] else "negative"
        other = "positive" if gold == "negative" else "negative"
        return Reply(body=completion(gold if tried <= 3 else other))

    with FaultServer(behaviour) as server:
        sets = [f"base_url={server.base_url}", "task_model.temperature=0.7", "samples_per_query=4", "max_tokens=5"]
        assert run(run_folder, "--limit", "10", *(part for one in sets for part in ("--set", one))) == 0
    assert {(body["temperature"], body["max_tokens"]) for body in server.bodies[1:]} == {(0.7, 5)}
    assert len(server.bodies[1:]) == 3 * 10 * 4
    written = json.loads((run_folder / "evaluation_days_first_10.json").read_text())
    assert [row["summary"]["accuracy"]["value"] for row in written["rows"]] == [0.75] * 3
    assert "forced_choice (structured_outputs)" in capsys.readouterr().out
    with FaultServer(behaviour) as server:
        flags = ["--model", "other", "--base-url", server.base_url, "--set", 'by_task={"sentiment": {"max_tokens": 3}}']
        (run_folder / "list.txt").write_text("Say it.\n")
        (run_folder / "config.json").unlink()
        assert run(run_folder, *flags, "--limit", "1", task="sentiment", prompts="list.txt") == 0
    assert server.bodies[1]["max_tokens"] == 3
    assert run(run_folder, "--model", "m", "--set", "max_token=3", task="sentiment", prompts="list.txt") == 2
    assert "did you mean task_model.max_tokens" in capsys.readouterr().err

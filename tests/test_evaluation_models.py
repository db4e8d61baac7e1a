"""`evaluate.py` without --prompts scores a model; with several files, tasks and samples it compares as it says."""

import csv
import json
import random
import re
from pathlib import Path
from typing import Any

import pytest

import evaluate
from prewrite.evaluation.kept import without_cut_thoughts
from prewrite.evaluation.planning import outlook
from prewrite.evaluation.summary import compare, summarise
from prewrite.tasks import get_task
from prewrite.types import Answer, Evaluation, Verdict
from tests.fault_server import FaultServer, Reply, completion, query_of
from tests.test_evaluation_command import (  # noqa: F401  # the fixture
    GOOD,
    INITIAL,
    point_config_at,
    run_folder,
    says_good_where_told,
    write_jsonl,
)

AIME = get_task("aime24")


@pytest.fixture
def problems(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Files of aime24 and gsm8k: 30 and 20 problems whose answer is their number."""
    folder = tmp_path / "data"
    folder.mkdir()
    aime = [{"problem": f"What is {i}?", "answer": str(i), "id": i} for i in range(30)]
    write_jsonl(folder / "aime2024_test.jsonl", aime)
    write_jsonl(folder / "gsm8k_test.jsonl", [{"problem": f"How many? {i}", "answer": str(i)} for i in range(20)])
    monkeypatch.setenv("PREWRITE_DATA", str(folder))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def thinks(body: dict[str, Any], tried: int) -> Reply:
    """Right on half of the problems every time, on the others once in a while; it thinks as thinking models do."""
    number = int("".join(c for c in query_of(body).split("\n")[-1] if c.isdigit()) or 0)
    luck = random.Random(f"{number}/{tried}").random() < 0.2
    said = number if number % 2 == 0 or luck else number + 1
    return Reply(body=completion(f"<think>\nPerhaps \\boxed{{{number + 5}}}?\n</think>\n\\boxed{{{said}}}"))


def model(server: FaultServer, *arguments: str) -> int:
    return evaluate.main(["--model", "m", "--base-url", server.base_url, *arguments])


def test_a_model_is_scored_under_the_tasks_default_instruction(
    problems: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    with FaultServer(thinks, served=("m",)) as server:
        assert model(server, "--task", "aime24", "--task", "gsm8k") == 0
    assert len(server.bodies) == 1 + 30 + 20
    assert all("max_tokens" not in body for body in server.bodies)  # as long as the model writes
    assert query_of(server.bodies[1]).startswith(AIME.default_instruction)
    told = capsys.readouterr()
    assert "30 examples know a share near one half to about ±18.7 points" in caplog.text
    assert "all 30 examples" in told.out
    assert "cost: 30 calls" in told.out
    assert "300 tokens in, 60 out" in told.out
    assert "won/lost" not in told.out
    results = problems / "evaluations" / "m"
    made = json.loads((results / "evaluation_aime24.json").read_text())
    assert made["rows"][0]["role"] == "default"
    assert 0.5 <= made["rows"][0]["summary"]["accuracy"]["value"] < 0.8
    rows = [json.loads(line) for line in (results / "evaluation_aime24.rows.jsonl").read_text().splitlines()]
    assert len(rows) == 30
    assert {"query", "answer", "gold", "correct", "prediction", "example_id", "sample"} <= rows[0].keys()
    assert rows[3]["query"].endswith("Problem: What is 3?")
    assert "<think>" in rows[3]["answer"]
    assert (results / "evaluation_gsm8k.json").exists()


def test_samples_give_a_mean_and_pass_at_k(problems: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with FaultServer(thinks, served=("m",)) as server:
        assert model(server, "--task", "aime24", "--samples", "6") == 0
    assert len(server.bodies) == 1 + 30 * 6
    assert {body["temperature"] for body in server.bodies} == {0.6}
    made = json.loads(Path("evaluations/m/evaluation_aime24.json").read_text())
    summary = made["rows"][0]["summary"]
    rows = [json.loads(line) for line in Path("evaluations/m/evaluation_aime24.rows.jsonl").read_text().splitlines()]
    right = {row["example_id"]: 0 for row in rows}
    for row in rows:
        right[row["example_id"]] += row["correct"]
    assert summary["accuracy"]["value"] == pytest.approx(sum(right.values()) / 180)
    assert summary["pass_at"]["6"]["value"] == pytest.approx(sum(count > 0 for count in right.values()) / 30)
    assert summary["pass_at"]["2"]["value"] == pytest.approx(
        sum(1 - (6 - c) * (5 - c) / 30 for c in right.values()) / 30
    )
    out = capsys.readouterr().out
    assert "accuracy, mean of 6" in out
    assert "pass@2" in out
    assert "pass@4" in out


def test_all_beside_another_task_is_all(problems: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with FaultServer(thinks, served=("m",)) as server:
        assert model(server, "--task", "aime24", "--task", "all") == 2
    assert "'all' is no task" not in capsys.readouterr().err


def test_samples_of_a_greedy_model_are_refused(
    run_folder: Path,  # noqa: F811
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert evaluate.main(["--config", str(run_folder / "config.json"), "--task", "days", "--samples", "4"]) == 2
    assert "would all be the same; set it above 0" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--model", "m"], "no task: say which, with --task NAME"),
        (["--task", "aime24"], "no task model: give --model"),
        (["--model", "m", "--task", "aime24", "--rewriter", "x"], "--rewriter rewrites the instructions of one list"),
        (["--model", "m", "--task", "aime25"], "has no aime2025_I_test.jsonl"),
        (["--model", "m", "--task", "aime24", "--task", "gsm8k", "--out", "one.json"], "there are 2 results"),
    ],
)
def test_faults_of_a_models_evaluation(
    problems: Path, arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert evaluate.main(arguments) == 2
    assert said in capsys.readouterr().err


def samples_of(right: list[list[bool | None]]) -> list[Evaluation]:
    """right: by example, then by sample."""
    return [
        Evaluation("x", "aime24", tuple(Verdict(str(i), "1", "1", own[k], True) for i, own in enumerate(right)))
        for k in range(len(right[0]))
    ]


def test_the_interval_of_samples_is_that_of_problems_and_fails_leave_out() -> None:
    alike = samples_of([[True] * 8] * 10 + [[False] * 8] * 10)
    summary, one = summarise(AIME, *alike), summarise(AIME, alike[0])
    assert summary.accuracy is not None
    assert one.accuracy is not None
    # 160 answers, but 20 problems: no narrower than one answer each
    assert summary.accuracy.interval.low < one.accuracy.interval.low + 0.01
    failed = summarise(AIME, *samples_of([[True, None], [None, None], [False, True]]))
    assert (failed.n, failed.failed) == (3, 1)
    assert failed.accuracy is not None
    assert failed.accuracy.value == pytest.approx((1 + 0.5) / 2)
    assert failed.pass_at is not None
    assert failed.pass_at[2].value == 1  # of the one problem that has both


def test_several_samples_are_compared_by_problem() -> None:
    better = samples_of([[True, True]] * 6 + [[True, False]] * 2)
    worse = samples_of([[True, False]] * 8)  # the first samples of both are alike
    test = compare(better, worse)
    assert (test.wins, test.losses, test.ties) == (6, 0, 2)
    assert test.p_value == pytest.approx(2 / 2**6)  # all six signs alike


def test_before_asking_it_says_what_the_examples_can_show(
    run_folder: Path,  # noqa: F811
    caplog: pytest.LogCaptureFixture,
) -> None:
    with FaultServer(says_good_where_told) as server:
        point_config_at(run_folder, server.base_url)
        assert evaluate.main(["--prompts", str(run_folder)]) == 0  # the task is the log's own
    err = caplog.text
    assert "days: 3 instructions x 40 test examples" in err
    assert "the test on 40 examples finds a true gain of 5 points with a chance of" in err
    assert "with 2 tested together" in err
    needed = re.search(r"5 points (\d+),", outlook(700, 1))
    assert needed is not None
    assert 850 <= int(needed[1]) <= 950  # (1.96 sqrt(0.27) + 0.84 sqrt(0.2675))^2 / 0.05^2 = 844, and steps


def test_a_folder_of_runs_compares_what_each_chose(
    run_folder: Path,  # noqa: F811
    capsys: pytest.CaptureFixture[str],
) -> None:
    with FaultServer(says_good_where_told) as server:
        point_config_at(run_folder, server.base_url)
        for name, best in (("one", GOOD), ("two", "Poor.")):
            (run_folder / name).mkdir()
            log = [
                {"dataset_name": "days", "instruction": INITIAL, "rewrite": text, "reward": float(text == best)}
                for text in (best, f"Not the best of {name}.")
            ]
            write_jsonl(run_folder / name / "log.jsonl", log)
            (run_folder / name / "config.json").write_text((run_folder / "config.json").read_text())
        (run_folder / "log.jsonl").unlink()
        assert evaluate.main(["--prompts", str(run_folder)]) == 0
    made = json.loads((run_folder / "evaluation_days.json").read_text())
    assert [row["instruction"] for row in made["rows"]] == [INITIAL, GOOD, "Poor."]
    assert made["rows"][1]["provenance"].startswith("one: mean reward 1.000")
    # 20 wins of 20 with p = 2^-19, corrected for two tests; Poor. is as good as the initial one
    against = made["rows"][1]["against"]["initial"]
    assert against["adjusted"] == pytest.approx(2 * against["p_value"])
    assert "p is corrected for 2 tests (Holm)" in capsys.readouterr().out


def test_best_json_csv_and_a_text_with_comments(
    run_folder: Path,  # noqa: F811
    capsys: pytest.CaptureFixture[str],
) -> None:
    best = {"days": {"instruction": GOOD, "baseline": {"instruction": INITIAL}, "task": "days"}}
    (run_folder / "best.json").write_text(json.dumps(best))
    with (run_folder / "mine.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["instruction", "dataset_name"], ["Poor.", "days"], ["Other, task.", "sst2"]])
    (run_folder / "mine.txt").write_text("# ours\nMine.\n")
    with FaultServer(says_good_where_told) as server:
        point_config_at(run_folder, server.base_url)
        names = [str(run_folder / name) for name in ("best.json", "mine.csv", "mine.txt")]
        assert evaluate.main(["--prompts", *names, "--task", "days", "--limit", "8"]) == 0
    made = json.loads((run_folder / "evaluation_days_first_8.json").read_text())
    assert [row["instruction"] for row in made["rows"]] == [INITIAL, GOOD, "Poor.", "Mine."]
    out = capsys.readouterr().out
    assert "1 lines begin with # and are taken as comments" in out
    assert "best.json" in made["prompts"]


def test_wins_and_losses_are_told_with_their_texts(
    run_folder: Path,  # noqa: F811
    capsys: pytest.CaptureFixture[str],
) -> None:
    with FaultServer(says_good_where_told) as server:
        point_config_at(run_folder, server.base_url)
        assert evaluate.main(["--prompts", str(run_folder / "log.jsonl"), "--task", "days"]) == 0
    duel = json.loads((run_folder / "evaluation_days.json").read_text())["duel"]
    assert (duel["num_won"], duel["num_lost"], len(duel["won"])) == (20, 0, 20)
    assert duel["won"][0]["text"] == "a bad day 0"
    assert (duel["won"][0]["gold"], duel["won"][0]["initial"], duel["won"][0]["best"]) == (
        "negative",
        "positive",
        "negative",
    )
    assert duel["won"][0]["others_right"] == 0  # "Poor." has it wrong
    out = capsys.readouterr().out
    assert "won by rank 1 against the initial instruction: 20, 3 of them" in out
    assert "a bad day 0" in out


def test_rewrites_of_several_instructions_are_compared_each_with_its_own(
    run_folder: Path,  # noqa: F811
) -> None:
    rows = [
        {"instruction": GOOD, "rewrite_of": INITIAL, "dataset_name": "days"},
        {"instruction": "Mine.", "rewrite_of": "Poor.", "dataset_name": "days"},
    ]
    write_jsonl(run_folder / "rewrites.jsonl", rows)
    with FaultServer(says_good_where_told) as server:
        point_config_at(run_folder, server.base_url)
        assert evaluate.main(["--prompts", str(run_folder / "rewrites.jsonl"), "--limit", "4"]) == 0
    written = json.loads((run_folder / "evaluation_days_first_4.json").read_text())
    first, second = written["reports"]
    assert [first["row"], second["row"]] == ["days#1", "days#2"]
    assert [row["instruction"] for row in first["rows"]] == [INITIAL, GOOD]
    assert [row["instruction"] for row in second["rows"]] == ["Poor.", "Mine."]


def test_what_was_still_thought_at_the_limit_is_no_answer() -> None:
    """The template opened the thinking: neither answer opens it, and one was cut before it closed it."""
    done = Answer("6 times 7 is 42.\n</think>\n\\boxed{42}", finish_reason="stop")
    cut = Answer("Perhaps \\boxed{42}. Wait", finish_reason="length")
    assert without_cut_thoughts([done, cut]) == [done, Answer("", finish_reason="length")]
    assert without_cut_thoughts([cut, Answer("<think>x</think>5")]) == [cut, Answer("<think>x</think>5")]
    failed = Answer(None, error="gone")
    assert without_cut_thoughts([done, failed]) == [done, failed]

"""The head-to-head: its arithmetic, and the whole of it at toy size against a real server, peers where installed."""

import argparse
import importlib.util
import json
import re
import urllib.request
import warnings
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from prewrite.config import TaskModelSettings
from prewrite.config.loading import load_config
from prewrite.engine.task_server import TaskServer
from prewrite.errors import UserError
from prewrite.tasks import get_task
from prewrite.tasks.loading import load_examples
from scripts.benchmarks.asking import Bench
from scripts.benchmarks.label_bias import _probability, fit_bias
from scripts.benchmarks.optimizers import PEERS, main
from scripts.benchmarks.optimizers_own import run_command
from scripts.benchmarks.optimizers_peers import mipro_trials
from scripts.benchmarks.optimizers_table import crossed_gain, print_table
from tests.fault_server import FaultServer, Reply, completion
from tests.launching import with_settings


def test_an_interval_over_rows_and_seeds_by_hand() -> None:
    # Two seeds, two rows: means of the seeds 0.5 and 0, of the rows 0 and 0.5; what is left is +-0.25 everywhere.
    gain = crossed_gain(np.array([[0.0, 1.0], [0.0, 0.0]]))
    assert gain.mean == 0.25
    # Rows: variance 0.125 / 2. Seeds: 0.125 / 2 less the rest's mean square 0.25 / 4: nothing. t of one degree: 12.706.
    assert gain.error == pytest.approx(12.706 * 0.0625**0.5, rel=1e-4)


def test_the_interval_holds_the_truth_where_seeds_and_rows_are_both_drawn() -> None:
    rng = np.random.default_rng(0)
    held = {"crossed": 0, "rows alone": 0}
    for _ in range(600):
        gain_SN = rng.normal(0, 0.02, (3, 1)) + rng.normal(0, 0.3, (1, 400)) + rng.normal(0, 0.3, (3, 400))
        gain, rows = crossed_gain(gain_SN), crossed_gain(gain_SN.mean(axis=0)[None])
        held["crossed"] += abs(gain.mean) < gain.error
        held["rows alone"] += abs(rows.mean) < rows.error
    assert held["crossed"] / 600 == pytest.approx(0.95, abs=0.025)
    assert held["rows alone"] / 600 < 0.93


def test_a_fitted_label_bias_takes_out_the_one_that_was_put_in() -> None:
    rng = np.random.default_rng(0)
    target_N = rng.integers(0, 3, 900)
    score_NL = rng.normal(0, 1, (900, 3)) + 1.5 * np.eye(3)[target_N]
    best = (score_NL.argmax(1) == target_N).mean()
    skewed_NL = 3 * (score_NL + np.array([2.0, 0.0, -1.0]))  # and surer than it is right
    bias_L = fit_bias(skewed_NL, target_N)
    assert (skewed_NL.argmax(1) == target_N).mean() < best - 0.1
    assert ((skewed_NL + bias_L).argmax(1) == target_N).mean() == pytest.approx(best, abs=0.01)
    np.testing.assert_allclose(bias_L, 3 * (np.mean([2, 0, -1]) - np.array([2.0, 0.0, -1.0])), atol=0.5)


def test_a_piece_counts_for_a_label_where_it_begins_that_one_alone() -> None:
    pieces = {"S": np.log(0.3), "Sp": np.log(0.1), "Sports": np.log(0.2), "Sci": np.log(0.4), "no": -9999.0}
    labels = ("Sports", "Sci/Tech")
    assert [_probability(pieces, label, labels) for label in labels] == pytest.approx([0.3, 0.4])


def test_miprov2_has_as_many_trials_as_the_budget_pays() -> None:
    # 18 trials: looks at 200 rows before, after 5, 10, 15 and last; 18 batches of 35; 12 sets of demonstrations of 8.
    assert 5 * 200 + 18 * 35 + 12 * 8 == 1726
    trials = mipro_trials(2000, 200)
    looks = 1 + trials // 5 + (trials % 5 > 0)
    assert looks * 200 + trials * 35 + trials * 2 // 3 * 8 <= 2000
    assert trials >= 18
    with pytest.raises(UserError, match="lower --dev-size"):
        mipro_trials(300, 200)


def test_a_run_of_ours_gets_what_all_methods_share(tmp_path: Path) -> None:
    task = get_task("sentiment")
    arguments = argparse.Namespace(
        base_urls=["http://127.0.0.1:1/v1"], model="served", max_tokens=64, min_words=2, config=None,
        scoring="free_text", set=["training.max_steps=3", "seed=99"],
    )  # fmt: skip
    bench = Bench(task, [], [None] * 30, None, arguments, seed=7)  # type: ignore[arg-type]  # none of it is asked
    arguments.config = Path("configs/quickstart.json")
    command = run_command(bench, 500, tmp_path / "name", {"training.max_steps": 2})
    config = load_config("configs/quickstart.json", [b for a, b in pairwise(command) if a == "--set"])
    assert (config.seed, config.run_name, config.output_dir) == (7, "name", str(tmp_path))
    assert (config.data.dev_size, config.data.min_words, config.training.max_steps) == (30, 2, 2)
    assert (config.task_model.base_url, config.task_model.model) == ("http://127.0.0.1:1/v1", "served")
    assert (config.task_model.scoring, config.budget.max_task_calls) == ("free_text", 500)


def test_the_table_says_what_a_label_bias_explains(capsys: pytest.CaptureFixture[str]) -> None:
    task = get_task("sentiment")
    run = {"wire_calls": 100, "seconds": 5.0}
    records = [
        {"tested": task.default_instruction, "marks": "0" * 50 + "1" * 50},
        {"tested": "new", "marks": "1" * 100},
    ]
    records += [{"method": "prewrite@100", "seed": seed, "instruction": "new"} | run for seed in (1, 2)]
    biased = {"method": "label_bias@100", "instruction": task.default_instruction} | run
    print_table(task, [*records, *({**biased, "seed": seed, "marks": "1" * 100} for seed in (1, 2))])
    told = capsys.readouterr().out
    assert "| prewrite@100 | mean of 2 | 100.0 | +50.0 ± 10.0, over rows and seeds |" in told
    assert re.search(r"prewrite@100 against .* label bias, 2 seeds: \+0\.0 ± 0\.0: its gain.*may be a label bias", told)
    print_table(task, [*records, *({**biased, "seed": seed, "marks": "01" * 50} for seed in (1, 2))])
    assert ": more than a label bias" in capsys.readouterr().out
    with pytest.raises(UserError, match="these records are of 4 and 100"):
        print_table(task, [*records, {**biased, "marks": "0101"}])


def test_the_table_of_a_file_needs_no_server_and_other_rows_do_not_come_into_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["--task", "sentiment", "--out", str(tmp_path / "new")]
    with pytest.raises(UserError, match="is not there, or has nothing in it"):
        main([*flags, "--table"])
    assert not (tmp_path / "new").exists()
    initial = get_task("sentiment").default_instruction
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "optimizers-sentiment.jsonl").write_text(
        json.dumps({"tested": initial, "rows": 4, "marks": "0101"}) + "\n"
    )
    main([*flags, "--table"])
    assert "| initial |  | 50.0 |" in capsys.readouterr().out
    with (tmp_path / "new" / "optimizers-sentiment.jsonl").open("a") as file:
        file.write(json.dumps({"tested": "One\u2028two", "rows": 4, "marks": "0101"}, ensure_ascii=False) + "\n")
    main([*flags, "--table"])
    assert "| initial |  | 50.0 |" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(flags)
    assert "--base-urls and --model are needed" in capsys.readouterr().err
    nobody = [*flags, "--base-urls", "http://127.0.0.1:1/v1", "--model", "m"]
    for given, told in (
        (["--test-rows", "5"], "has runs of the rows 4, and this is 5"),
        (["--test-rows", "1"], "1 test rows have no interval"),
        (["--methods", "best_of_k@0"], "20 calls at least"),
        (
            ["--scoring", "free_text", "--test-rows", "4"],
            "has runs of the scoring forced_choice, and this is free_text",
        ),
        (["--scoring", "free_text", "--methods", "label_bias@40"], "a label bias is one of a forced choice"),
    ):
        with pytest.raises(UserError, match=told):
            main([*nobody, *given])


def test_free_text_is_asked_for_without_choices_and_has_no_label_bias(tmp_path: Path) -> None:
    def in_a_sentence(body: dict[str, Any], tried: int) -> Reply:
        return Reply(body=completion("It is positive."))

    with FaultServer(in_a_sentence) as server:
        flags = ("--task", "sentiment", "--base-urls", server.base_url, "--model", "m", "--out", str(tmp_path))
        main([*flags, "--scoring", "free_text", "--methods", "best_of_k@20", "--seeds", "1", "--test-rows", "4"])
    assert server.bodies
    assert not [body for body in server.bodies if "structured_outputs" in body]
    records = [json.loads(line) for line in (tmp_path / "optimizers-sentiment.jsonl").read_text().splitlines()]
    assert {record["scoring"] for record in records} == {"free_text"}
    assert {record["method"] for record in records if "method" in record} == {"best_of_k@20"}
    golds = [example.target for example in load_examples(get_task("sentiment"), "test")[:4]]
    marks = {record["marks"] for record in records if "tested" in record}
    assert marks == {"".join(str(int(gold == "positive")) for gold in golds)}


@pytest.mark.parametrize("answered", [0, 60])
def test_a_dead_endpoint_is_no_result(tmp_path: Path, answered: int) -> None:
    """Neither from the start nor after so many calls, the initial instruction's test among them."""

    def dies(body: dict[str, Any], tried: int) -> Reply:
        return Reply(body=completion("positive")) if len(server.bodies) <= answered else Reply(status=400, body="no")

    flags = ["--task", "sentiment", "--model", "m", "--scoring", "free_text", "--test-rows", "40", "--seeds", "1"]
    with FaultServer(dies) as server, pytest.raises(UserError, match="400"):
        main([*flags, "--base-urls", server.base_url, "--methods", "best_of_k@20", "--out", str(tmp_path / "new")])
    path = tmp_path / "new" / "optimizers-sentiment.jsonl"
    tested = [json.loads(line)["tested"] for line in path.read_text().splitlines()] if answered else []
    assert tested == ([get_task("sentiment").default_instruction] if answered else [])
    assert path.exists() == bool(answered)


def test_what_cannot_run_is_told_before_anything_is_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "torn").mkdir()
    (tmp_path / "torn" / "optimizers-sentiment.jsonl").write_text('{"broken\n{"rows": 1}\n')
    with FaultServer(lambda body, tried: Reply(body=completion("positive"))) as server:
        flags = ["--task", "sentiment", "--model", "m", "--test-rows", "4", "--base-urls", server.base_url]
        for given, told in (
            (["--methods", "prewrite@40", "--set", "max_stepz=1"], "max_stepz: unknown key; did you mean"),
            (["--methods", "prewrite@40", "--config", "nowhere.json"], "config nowhere.json: cannot be read"),
            (["--base-urls", "127.0.0.1:9"], "no plain address"),
            (["--out", str(tmp_path / "file")], "file is a file; give a folder"),
            (["--out", str(tmp_path / "torn")], r"sentiment.jsonl, line 1: no record .*take the line out"),
        ):
            with pytest.raises(UserError, match=told):
                main([*flags, "--config", "configs/quickstart.json", "--out", str(tmp_path / "new"), *given])
    assert not server.bodies
    assert not (tmp_path / "new").exists()


def test_the_table_counts_failed_calls(capsys: pytest.CaptureFixture[str]) -> None:
    task = get_task("sentiment")
    print_table(task, [{"tested": task.default_instruction, "marks": "01-1"}])
    told = capsys.readouterr().out
    assert "| initial |  | 50.0 |" in told
    assert "1 of 4 calls stayed failed, and count as wrong" in told


@pytest.mark.parametrize("logprobs", [{}, {"logprobs": None}, {"logprobs": {"content": []}}])
def test_without_log_probabilities_a_label_bias_is_left_out_or_where_it_was_asked_for_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], logprobs: dict[str, Any]
) -> None:
    def right_label(body: dict[str, Any], tried: int) -> Reply:
        return Reply(body=completion("positive", **logprobs))

    flags = ["--task", "sentiment", "--model", "task", "--seeds", "1", "2", "--test-rows", "4", "--dev-size", "8"]
    with FaultServer(right_label) as server:
        flags += ["--base-urls", server.base_url, "--methods"]
        main([*flags, "best_of_k@20", "best_of_k@40", "--out", str(tmp_path / "not")])
        told = capsys.readouterr().out
        assert told.count("label bias") == told.count("the label bias, which was not asked for, is left out") == 1
        assert "gives no log-probabilities" in told
        assert "| best_of_k@40 | 2 |" in told
        with pytest.raises(UserError, match=r"(?s)2 of 4 runs failed:\nlabel_bias@20 seed 1: .*no log-probabilities"):
            main([*flags, "best_of_k@20", "label_bias@20", "--out", str(tmp_path / "asked")])
        assert "| best_of_k@20 | 2 |" in capsys.readouterr().out


def requests_served(base_url: str) -> float:
    """Chat completions that the server has answered, by its own count."""
    with urllib.request.urlopen(base_url.removesuffix("/v1") + "/metrics") as reply:
        counts = re.findall(
            r'^http_requests_total\{handler="/v1/chat/completions".* ([\d.e+]+)$', reply.read().decode(), re.M
        )
    return sum(map(float, counts))


@pytest.mark.slow
def test_the_head_to_head_at_toy_size(tmp_path: Path, shallow_model: str, capsys: pytest.CaptureFixture[str]) -> None:
    peers = [peer for peer, needed in PEERS.items() if all(map(importlib.util.find_spec, needed))]
    for peer in sorted(set(PEERS) - set(peers)):
        warnings.warn(f"{peer} is not in the head-to-head: {', '.join(PEERS[peer])} not installed", stacklevel=1)
    methods = [f"{name}@40" for name in ("prewrite", "best_of_k", *peers)]
    settings = TaskModelSettings(model=shallow_model, max_model_len=2048, startup_timeout=400.0)
    with TaskServer(settings, log_path=tmp_path / "server.log") as server:
        flags = (
            *("--task", "sentiment", "--base-urls", server.base_url, "--model", shallow_model, "--out", str(tmp_path)),
            *("--seeds", "1", "--dev-size", "8", "--test-rows", "16", "--max-tokens", "8", "--proposal-tokens", "16"),
            *("--config", "configs/quickstart.json", "--methods"),
        )
        small = (
            *with_settings(f"policy.model={shallow_model}", "max_steps=1", "eval_steps=0"),
            *with_settings("num_generations=4", "per_device_train_batch_size=4", "max_completion_length=16"),
            *with_settings("examples_per_rewrite=4"),
        )
        main([*flags, *methods, *small])
        served = requests_served(server.base_url)
        capsys.readouterr()
        main([*flags, *methods, *small])
        assert requests_served(server.base_url) == served, "what is there was asked again"
    table = capsys.readouterr().out
    records = [json.loads(line) for line in (tmp_path / "optimizers-sentiment.jsonl").read_text().splitlines()]
    runs = {record["method"]: record for record in records if "method" in record}
    assert runs.keys() == {*methods, "label_bias@40"}
    tests = [record for record in records if "tested" in record]
    assert len({record["tested"] for record in tests}) == len(tests)
    assert {len(record["marks"]) for record in [*tests, runs["label_bias@40"]]} == {16}
    for method, record in runs.items():
        assert 0 < record["wire_calls"] <= 60, method  # GEPA ends the round that it is in
        assert f"| {method} | 1 |" in table
    # The server's own count: the first question, a run's own, what runs paid and proposed, test passes, the bias' own.
    paid = sum(record["wire_calls"] + record.get("rewriter_calls", 0) for record in runs.values())
    assert served == 1 + 1 + paid + 16 * len(tests) + 16

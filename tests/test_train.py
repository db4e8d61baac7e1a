"""train.py as a user starts it, on real parts: vLLM, DeepSpeed, a task server, SmolLM2."""

import json
import os
import signal
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.fault_server import FaultServer, Reply
from tests.launching import LAUNCHER, descendants, finish, start

SMALL = (
    *("--config", "configs/quickstart.json", "--set", "max_steps=2", "--set", "eval_steps=0"),
    *("--set", "dev_size=12", "--set", "num_candidates=1", "--set", "examples_per_rewrite=4"),
    *("--set", "num_generations=4", "--set", "per_device_train_batch_size=4", "--set", "max_completion_length=24"),
)
LOGGED_EVERY_STEP = (
    *("loss", "reward_mean", "reward_std", "reward/f1_classification_reward_mean", "flat_groups", "refills"),
    *("advantage_std", "entropy", "clip_low", "clip_high", "ratio_mean", "ratio_max", "sampler_gap", "sampler_gap_max"),
    *("sampler_weight_mean", "sampler_weight_min", "sampler_cut", "completion_length_mean", "completion_length_max"),
    *("truncated", "grad_norm", "learning_rate", "tokens_per_second/rollout", "tokens_per_second/training"),
    *("rewrites_per_second/scoring", "seconds/rollout", "seconds/scoring", "seconds/training", "seconds/push"),
    *("task_calls", "failed_calls"),
)


def read_lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.mark.slow
def test_the_quickstart_at_two_steps_on_two_ranks(tmp_path: Path) -> None:
    command = [LAUNCHER, "--num_accelerators", "2", "train.py", *SMALL, "--set", f"output_dir={tmp_path}"]
    code, stdout, stderr = finish(start(command, ranks=2))
    assert code == 0, stdout[-3000:] + stderr[-3000:]
    run = tmp_path / "quickstart"
    steps = read_lines(run / "metrics.jsonl")
    assert [step["step"] for step in steps] == [1, 2]
    for step in steps:
        assert not set(LOGGED_EVERY_STEP) - set(step)
        assert step["sampler_gap"] < 0.2  # bfloat16; stale weights are far above
    rollouts = read_lines(run / "log.jsonl")
    assert [row["step"] for row in rollouts] == [1] * 8 + [2] * 8  # 2 ranks x 4 rollouts
    assert {row["dataset_name"] for row in rollouts} == {"sentiment"}
    best = json.loads((run / "best.json").read_text())["sentiment"]
    assert best["score"] >= best["baseline"]["score"]
    looks = read_lines(run / "dev.jsonl")
    assert {look["role"] for look in looks} >= {"initial", "greedy"}
    assert all(len(look["verdicts"]) in (0, 12) for look in looks)
    assert (run / "checkpoints" / "step_000002" / "model.safetensors").is_file()
    assert json.loads((run / "config.json").read_text())["training"]["max_steps"] == 2
    assert "step 2/2" in stdout
    assert best["baseline"]["instruction"] in stdout


@pytest.mark.slow
def test_every_extra_of_the_algorithm_runs_together(tmp_path: Path) -> None:
    """Reference with EMA sync, several passes, several steps a generation, refills, packing, entropy mask and bonus."""
    settings = (
        *("beta=0.04", "sync_ref_model=true", "ref_model_sync_steps=2", "num_iterations=2", "steps_per_generation=2"),
        *("dynamic_sampling_refills=1", "max_tokens_per_micro_batch=400", "top_entropy_quantile=0.5"),
        *("entropy_coef=0.01", "max_steps=4", "learning_rate=1e-4", "mask_truncated_completions=true"),
        'reward_funcs=["f1_classification_reward", "length_penalty"]',
    )
    overrides = [part for setting in settings for part in ("--set", setting)]
    command = [sys.executable, "train.py", *SMALL, "--set", f"output_dir={tmp_path}", *overrides]
    code, stdout, stderr = finish(start(command))
    assert code == 0, stdout[-3000:] + stderr[-3000:]
    first, second, third, fourth = read_lines(tmp_path / "quickstart" / "metrics.jsonl")
    assert first["kl"] == pytest.approx(0, abs=1e-3), "before the first step the policy is its reference"
    assert fourth["kl"] > first["kl"]
    assert first["ratio_max"] == pytest.approx(1, abs=0.2)
    assert third["ratio_max"] > 1.0, "the second pass is off policy"
    assert {"reward/length_penalty_mean", "refills", "sampler_weight_min"} <= set(second)
    steps = [row["step"] for row in read_lines(tmp_path / "quickstart" / "log.jsonl")]
    assert set(steps) == {1}, "one generation served all four steps"


@pytest.mark.slow
def test_ctrl_c_leaves_no_server_and_a_readable_run_folder(tmp_path: Path) -> None:
    command = [LAUNCHER, "--num_accelerators", "1", "train.py", *SMALL, "--set", f"output_dir={tmp_path}"]
    process = start([*command, "--set", "max_steps=200"])
    metrics = tmp_path / "quickstart" / "metrics.jsonl"
    deadline = time.monotonic() + 400
    while not metrics.exists() and time.monotonic() < deadline and process.poll() is None:
        time.sleep(1)
    family = descendants(process)
    assert any("api_server" in " ".join(member.cmdline()) for member in family), "the server should be up by now"
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    code, _, stderr = finish(process, timeout=120)
    assert code != 0
    assert "train.py: stopped" in stderr
    _, alive = psutil.wait_procs(family, timeout=60)
    assert not [member for member in alive if member.status() != psutil.STATUS_ZOMBIE]
    assert read_lines(metrics)[0]["step"] == 1
    assert read_lines(tmp_path / "quickstart" / "log.jsonl")


def refused(*arguments: str, **environment: str) -> str:
    code, stdout, stderr = finish(start([sys.executable, "train.py", *arguments], **environment), timeout=300)
    assert code == 2, stdout + stderr
    assert "Traceback" not in stderr
    assert stderr.count("train.py: ") == 1
    return stderr


def test_a_bad_config_is_told_before_a_model_loads(tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    config.write_text('{"learning_rat": 1e-6, "training": {"max_steps": "4"}}')
    message = refused("--config", str(config))
    assert "did you mean training.learning_rate?" in message
    assert "training.max_steps" in message
    assert "policy: missing" in message


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (['data.tasks=["sst3"]'], ["sst3", "sst2"]),
        (['reward_funcs=["accuracy"]'], ["accuracy"]),
        (["instruction=<|im_start|>system"], ["control token"]),
        (["max_prompt_length=8"], ["max_prompt_length"]),
        (["policy.model=README.md"], ["policy.model", "README.md"]),
        (["num_generations=5"], ["num_generations", "whole number of groups"]),
        (["base_url=http://127.0.0.1:9/v1", "max_retries=0"], ["nothing answers", "127.0.0.1:9"]),
        (["task_model.model=configs"], ["task_model.model", "no config.json"]),
    ],
)
def test_bad_input_is_one_message(tmp_path: Path, settings: list[str], words: list[str]) -> None:
    overrides = [part for setting in settings for part in ("--set", setting)]
    message = refused(*SMALL, "--set", f"output_dir={tmp_path}", *overrides)
    for word in words:
        assert word in message


@pytest.mark.slow
@pytest.mark.parametrize("reply", [Reply(status=500, body="broken"), Reply(body="<html>nonsense</html>")])
def test_an_endpoint_without_a_usable_answer_is_refused(tmp_path: Path, reply: Reply) -> None:
    with FaultServer(lambda body, tried: reply) as server:
        overrides = ["--set", f"base_url={server.base_url}", "--set", "task_model.model=task", "--set", "max_retries=1"]
        message = refused(*SMALL, "--set", f"output_dir={tmp_path}", *overrides)
    assert "no usable answer" in message


@pytest.mark.slow
def test_a_run_is_never_written_over(tmp_path: Path) -> None:
    (tmp_path / "quickstart").mkdir()
    (tmp_path / "quickstart" / "config.json").write_text("{}")
    assert "already holds a run" in refused(*SMALL, "--set", f"output_dir={tmp_path}")

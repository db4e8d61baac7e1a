"""The benchmark scripts at a size for the CPU, and the arithmetic behind their figures."""

import json
import time
from pathlib import Path

import pytest

from scripts.benchmarks.common import PhaseMeter, TrainingFlops, parity
from scripts.benchmarks.partial import simulate
from scripts.benchmarks.step import Measured, slowest_rollouts, summary
from scripts.benchmarks.step import main as step
from tests.launching import MODEL, Running, finish
from tests.loaded import start_loaded

TINY = ("--dummy", "tiny", "--tokenizer", str(MODEL), "--kv-cache-gib", "1")
WORKLOAD = ("--prompts", "2", "--generations", "8", "--completion", "16")


def start_script(out: Path, data: Path, module: str, *options: str, ranks: int = 1) -> Running:
    arguments = ("-m", module, *options, *TINY, *WORKLOAD, "--out", str(out))
    return start_loaded(*arguments, ranks=ranks, PREWRITE_DATA=str(data))


def finish_script(out: Path, process: Running) -> tuple[dict, str]:
    code, stdout, stderr = finish(process)
    assert code == 0, stdout[-3000:] + stderr[-3000:]
    return json.loads(out.read_text()), stdout


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data folder with a small GSM8K and SST-2."""
    folder = tmp_path / "data"
    folder.mkdir()
    for task, split, first in (("gsm8k", "train", 0), ("gsm8k", "test", 40), ("sst2", "train", 0), ("sst2", "dev", 40)):
        rows = [
            {"problem": f"What is {n} and {n + 1}?", "answer": str(2 * n + 1), "solution": f"That makes {2 * n + 1}."}
            if task == "gsm8k"
            else {"text": f"film number {n} was dull", "label": "negative"}
            for n in range(first, first + 40)
        ]
        (folder / f"{task}_{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def test_flops_of_a_step_by_hand(tmp_path: Path) -> None:
    config = {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "hidden_size": 8, "intermediate_size": 16,
              "num_hidden_layers": 3, "num_attention_heads": 2, "num_key_value_heads": 1, "vocab_size": 50,
              "tie_word_embeddings": True}  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config))
    flops = TrainingFlops.of(str(tmp_path))
    # A layer: q and o 8 x 8, k and v 8 x 4, gate, up and down 8 x 16: 2 x 64 + 2 x 32 + 3 x 128 = 576.
    # Each weight: 2 operations a position forward, 4 backward.
    assert flops.per_position == 6 * 3 * 576
    assert flops.per_completion_token == 6 * 8 * 50
    # Scores and values: 2 x 2 x 8 a pair of positions, half of the pairs, forward and twice backward.
    assert flops.per_squared_position == 3 * 6 * 8
    # Sequences of 3 + 2 and 1 + 4 tokens: 4 positions each.
    assert flops.total([(3, 2), (1, 4)]) == 8 * 6 * 3 * 576 + 6 * 6 * 400 + 2 * 16 * 144


def test_summary_of_two_steps_by_hand() -> None:
    steps = [{"rollout": 2.0, "training": 1.0, "push": 0.5, "scoring": 0.25, "rest": 0.25},
             {"rollout": 3.0, "training": 3.0, "push": 0.5, "rest": 1.5}]  # fmt: skip
    gib = 2**30
    measured = Measured(steps, [[(5, 30)], [(5, 10), (5, 20)]], {"rollout": 30 * gib, "training": 20 * gib}, True)
    flops = TrainingFlops(per_position=0, per_completion_token=10, per_squared_position=0)
    figures = summary(measured, flops, bf16_rate=100.0, kv_cache_gib=8.0, world_size=2)
    assert figures["step, s"] == 6.0  # steps of 4 and 8 s
    assert (figures["rollout, s"], figures["training, s"], figures["push, s"]) == (2.5, 2.0, 0.5)
    assert figures["rest, s"] == 1.0  # 0.5 and 1.5
    assert figures["completion tokens/s"] == 5.0  # 60 in 12 s
    assert figures["training: share of the bf16 matmul rate"] == 0.75  # 600 in 4 s, of 100 a second on each of 2
    assert (figures["peak, GiB"], figures["training's peak, GiB"]) == (30.0, 20.0)
    assert figures["training's peak without KV cache, GiB"] == 12.0


def test_a_sleeping_engine_holds_no_kv_cache() -> None:
    measured = Measured([{"training": 1.0}], [[(5, 30)]], {"training": 2**30}, kv_cache_is_resident=False)
    figures = summary(measured, TrainingFlops(0, 10, 0), bf16_rate=100.0, kv_cache_gib=8.0, world_size=1)
    assert figures["training's peak without KV cache, GiB"] == 1.0


def test_a_rollout_is_as_long_as_that_of_the_slowest_rank() -> None:
    first = [{"rollout": 2.0, "scoring": 0.5, "push": 0.1}, {"rollout": 3.0, "scoring": 0.25, "push": 0.1}]
    second = [{"rollout": 2.25, "scoring": 0.25, "push": 0.1}, {"rollout": 1.0, "scoring": 2.25, "push": 0.1}]
    waited = {"rollout": 2.25, "scoring": 0.25, "push": 0.1}
    assert slowest_rollouts([first, second]) == [waited, first[1]]
    assert slowest_rollouts([first]) == first


@pytest.mark.parametrize(
    ("flag", "told"),
    [
        (("--warmup", "0"), "--warmup: at least 1"),
        (("--set", "policy.gradient_checkpointing=true"), "is for one side: give --gradient-checkpointing"),
    ],
)
def test_what_would_compare_unlike_sides_is_refused(
    flag: tuple[str, str], told: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["step", *TINY, *flag])
    with pytest.raises(SystemExit, match="2"):
        step()
    assert told in capsys.readouterr().err


def test_where_steps_roll_nothing_out_means_are_told() -> None:
    """As partial rollouts do: a median would be a step with a rollout or one without."""
    steps = slowest_rollouts(
        [[{"rollout": 8.0, "training": 1.0}, {"training": 1.0}, {"rollout": 9.0, "training": 1.0}]]
    )
    measured = Measured(steps, [[(5, 30)]] * 3, {}, kv_cache_is_resident=True)
    figures = summary(measured, TrainingFlops(0, 10, 0), bf16_rate=100.0, kv_cache_gib=8.0, world_size=1)
    assert figures["step, s"] == pytest.approx(20 / 3)
    assert figures["rollout, s"] == pytest.approx(17 / 3)


def test_an_inner_phase_does_not_count_for_the_outer_one() -> None:
    with PhaseMeter() as meter:
        with meter.phase("outer"):
            time.sleep(0.02)
            with meter.phase("inner"):
                time.sleep(0.2)
        seconds = meter.take()
    assert seconds["inner"] >= 0.2
    assert 0.02 <= seconds["outer"] < 0.2
    assert meter.take().keys() == {"rest"}


def test_truncated_completions_of_one_length_still_differ_in_reward() -> None:
    assert [parity([1, 2, 3]), parity([1, 2, 4]), parity([1, 4]), parity([])] == [0.0, 1.0, 0.0, 0.0]


def test_turns_with_partial_rollouts_by_hand() -> None:
    # Batches of 2 groups, 1 more under way: (5 3 4) ends at 4; (1 left, 6 2) at 2; (4 left, 4 4) at 4 with all three
    # complete, so that the last batch lacks one: (7 9) ends at 7. Pushes: 0 0, 1 0, 1 0, and 1 0.
    turns, pushes = simulate(iter([5, 3, 4, 6, 2, 4, 4, 7, 9]), 2, 1, share=0.5, steps=4)
    assert (turns, pushes) == ((4 + 2 + 4 + 7) / 4, 3 / 8)
    assert simulate(iter([5, 3, 4, 6]), 2, 1, share=0.0, steps=2) == ((5 + 6) / 2, 0.0)
    # Two engines, dealt in turn: each waits for its own.
    assert simulate(iter([5, 3, 4, 6]), 2, 2, share=1.0, steps=1) == (4.0, 0.0)


@pytest.mark.slow
def test_bench_step_on_two_ranks(tmp_path: Path, data: Path) -> None:
    command = ("scripts.benchmarks.step", "--steps", "1", "--warmup", "1", "--set", "rollout.partial_rollouts=0.5")
    out = tmp_path / "result.json"
    result, stdout = finish_script(out, start_script(out, data, *command, ranks=2))
    ours = result["step"]["PRewrite"]
    assert result["ranks"] == 2
    assert all(ours[f"{phase}, s"] > 0 for phase in ("step", "rollout", "training", "push"))
    # 2 ranks x 2 prompts x 8 completions, nearly all of 16 tokens, since the weights are random
    assert ours["completion tokens/s"] * ours["step, s"] == pytest.approx(512, rel=0.1)
    assert ours["training: share of the bf16 matmul rate"] > 0  # on a busy machine it may pass 1
    assert "| completion tokens/s |" in stdout


@pytest.mark.slow
def test_bench_training(tmp_path: Path, data: Path) -> None:
    """Two at once; the second has settings side by side."""
    out, beside = tmp_path / "result.json", tmp_path / "beside.json"
    command = ("scripts.benchmarks.training", "--request", "24", "--repeats", "1", "--micro-batch-tokens", "200")
    bench = start_script(out, data, *command, "--set", "policy.dtype=float32")
    in_bfloat16 = start_script(beside, data, *command, "--versus", "policy.grad_accum_dtype=bfloat16")
    result, stdout = finish_script(out, bench)
    shared, alone = result["training"]["shared"], result["training"]["nothing shared"]
    assert alone["positions computed"] == 16 * (24 + 16 - 1)
    assert shared["positions computed"] == 2 * (23 + 8 * 16), "two requests but for their last token, 16 completions"
    assert (shared["micro-batches"], alone["micro-batches"]) == (2, 4)
    assert shared["gradient norm"] == pytest.approx(alone["gradient norm"], rel=1e-4)
    held = result["held"]["as set"]
    assert held["masters"] == held["weights"] == pytest.approx(held["moments"] / 2)
    assert "| positions computed |" in stdout
    result, _ = finish_script(beside, in_bfloat16)
    in_float32, rounded = result["training"].values()
    assert rounded["gradient norm"] == pytest.approx(in_float32["gradient norm"], rel=0.01)
    in_float32, rounded = result["held"].values()
    assert in_float32["gradients"] == in_float32["masters"] == rounded["masters"], "4 bytes a weight"
    assert rounded["gradients"] == 0, "they go with the step"


@pytest.mark.slow
def test_bench_rounding(tmp_path: Path, data: Path) -> None:
    out = tmp_path / "result.json"
    result, stdout = finish_script(out, start_script(out, data, "scripts.benchmarks.rounding"))
    assert set(result["rounding"]) == {"text", "noise"}
    for ways in result["rounding"].values():
        whole, *rounded = ways.values()
        assert (whole["relative error"], len(rounded)) == (0, 2)
        for way in rounded:
            assert 1e-4 < way["relative error"] < 0.05, "8 bits of a fraction, through three layers"
            assert way["norm"] == pytest.approx(whole["norm"], rel=0.05)
    assert "| relative error |" in stdout


@pytest.mark.slow
def test_bench_push_and_bench_rollout(tmp_path: Path, data: Path) -> None:
    """At once: what they measure does not matter here, and each is mostly starts that keep one core busy."""
    pushed, rolled_out = tmp_path / "push.json", tmp_path / "rollout.json"
    bench_push = start_script(pushed, data, "scripts.benchmarks.push", "--repeats", "1")
    options = ("--calls", "8", "--concurrency", "4", "--repeats", "1")
    bench_rollout = start_script(rolled_out, data, "scripts.benchmarks.rollout", *options)
    try:
        result, _ = finish_script(pushed, bench_push)
    finally:
        other, stdout = finish_script(rolled_out, bench_rollout)
    # embedding 49,152 x 128; a layer: q, o 128 x 128, k, v 128 x 64, mlp 3 x 128 x 256, biases 256, norms 2 x 128;
    # the last norm 128; 2 bytes each
    layer = 2 * 128**2 + 2 * 128 * 64 + 3 * 128 * 256 + 256 + 2 * 128
    assert result["bytes"] == 2 * (49_152 * 128 + 2 * layer + 128)
    assert result["push"]["push"]["GB/s"] == pytest.approx(result["bytes"] / result["push"]["push"]["seconds"] / 1e9)
    assert len(other["rollout"]["tokens/s"]) == 4
    assert other["rollout"]["ours / this"]["Sampler.sample"] == 1
    assert set(other["scoring"]["4"]["calls/s"]) == {"TaskModel.ask", "aiohttp loop", "vllm bench serve (streams)"}
    assert "Scoring, 8 calls, 4 at once" in stdout

"""Seconds, tokens and memory of a training step: our trainer, and the peer (TRL with colocated vLLM) in the same run.

    python -m scripts.benchmarks.step --model FOLDER               32 GSM8K prompts x 8 completions x 512 tokens
    python -m scripts.benchmarks.step --dummy 1.5b --tokenizer FOLDER --gradient-checkpointing
    deepspeed --num_accelerators 2 --module scripts.benchmarks.step --model FOLDER      the same work on each of 2 GPUs
    python -m scripts.benchmarks.step --model FOLDER --completion 2048 --no-peer --set rollout.partial_rollouts=1

    python -m scripts.benchmarks.step --dummy 7b --tokenizer FOLDER --gradient-checkpointing --set policy.lora.r=16

--peer-default: beside the peer with bf16 weights also TRL as it comes, with float32 weights under bf16 autocast.

Both sides: loss dapo, beta 0, AdamW, bf16, temperature 1, a reward that costs nothing, the same prompts and the same
bytes of KV cache; with policy.lora the same adapter, peft's on both. The peer runs first, in a process of its own, on
one GPU, where `pip install trl` was run.
"""

import argparse
import contextlib
import functools
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from prewrite.config import Config, LoraSettings
from prewrite.engine import distributed
from prewrite.engine.policy import Policy, load_tokenizer, quiet_libraries
from prewrite.engine.sampler import Sampler
from prewrite.engine.task_model import TaskModel
from prewrite.engine.weight_sync import push
from prewrite.errors import UserError
from prewrite.reporting.journal import Journal
from prewrite.rewards.base import Reward
from prewrite.tasks import get_task
from prewrite.training.engines import Engines
from prewrite.training.objectives.base import WeightedReward
from prewrite.training.objectives.solve import Solve
from prewrite.training.objectives.solve_data import Problem, SolveData
from prewrite.training.progress import Progress
from prewrite.training.trainer import Trainer
from prewrite.types import Example, Rollout, Sample
from scripts.benchmarks.asking import exit_code
from scripts.benchmarks.common import (
    MAX_PROMPT_LENGTH,
    NOWHERE,
    Length,
    PhaseMeter,
    TrainingFlops,
    add_model_arguments,
    bench_config,
    chat_request,
    gsm8k_problems,
    matmul_flops_per_second,
    model_folder,
    parity,
    parse,
    show_heading,
    show_table,
    write_result,
)

ROOT = Path(__file__).resolve().parents[2]
PHASES = ("rollout", "training", "push")
# TRL 1.16 with vLLM 0.26 on one H100, 2026-11-27; memory is its allocator's peak, KV cache included.
PUBLISHED = {
    "smollm2-135m-instruct": {"step, s": 10.05, "completion tokens/s": 8_700, "peak, GiB": 47.0},
    "1.5b": {"step, s": 17.2, "completion tokens/s": 7_500, "peak, GiB": 41.9},
}


@dataclass(frozen=True)
class Measured:
    """One side's timed steps: seconds by phase and the sequences of each, over all ranks; bytes of rank 0's device.

    A rollout takes as long as its slowest rank; what the first rank waits for it is no part of its "rest".
    """

    seconds: list[dict[str, float]]
    lengths: list[list[Length]]
    peaks: dict[str, int]
    kv_cache_is_resident: bool
    """whether the KV cache is held while the policy trains (the engine does not sleep)"""
    parts: dict[str, int] = field(default_factory=dict)
    """bytes of rank 0's device that each part of ours takes, before the first step; none on the CPU"""


class Parts:
    """What of the device's memory each part takes that is made one after the other (bytes of all that is not free)."""

    def __init__(self) -> None:
        self.in_use = 0
        self.taken: dict[str, int] = {}

    def book(self, part: str) -> None:
        """What is in use now beyond what was is the part's; what the allocator keeps for nobody is nobody's."""
        if not torch.cuda.is_available():
            return
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        free, total = torch.cuda.mem_get_info()
        self.taken[part], self.in_use = total - free - self.in_use, total - free


class Recorder(Journal):
    """The trainer's journal, which also keeps the lengths of what each step trained on."""

    def __init__(self, config: Config):
        super().__init__(config)
        self.lengths: list[list[Length]] = []

    def write_rollouts(self, rollouts: Iterable[Rollout], **about: Any) -> None:
        rollouts = list(rollouts)
        super().write_rollouts(rollouts, **about)
        self.lengths.append([(len(one.sample.prompt_ids), len(one.sample.completion_ids)) for one in rollouts])

    def write_step(self, metrics: Mapping[str, Any]) -> None:
        super().write_step(metrics)
        if metrics["skipped"]:
            raise UserError("a step had no group with different rewards, so nothing was trained: raise --generations")


class MeasuredTrainer(Trainer):
    """The trainer; the phases of its clock are the meter's too, and what each step took is kept."""

    def __init__(self, meter: PhaseMeter, *arguments: Any):
        super().__init__(*arguments)
        self.meter = meter
        self.taken: list[dict[str, float]] = []

    def _write_down(self, *arguments: Any) -> None:
        super()._write_down(*arguments)
        self.taken.append(self.meter.take())

    @contextlib.contextmanager
    def _clock(self, phase: str) -> Iterator[None]:
        with self.meter.phase(phase), super()._clock(phase):
            yield


def parity_reward(samples: Sequence[Sample], rows: Sequence[Example]) -> list[float]:
    return [parity(sample.completion_ids) for sample in samples]


def measure_ours(config: Config, world: distributed.World, problems: Sequence[str], warmup: int) -> Measured | None:
    """Our side, on every rank; None on all but the first. The last step is not counted: it saves the checkpoint."""
    tokenizer, task = load_tokenizer(config.policy), get_task("gsm8k")
    # As the peer asks them: one user turn, with no words of ours around it.
    train = [
        Problem(task, Example(str(number), {"problem": problem}, ""), chat_request(problem, tokenizer))
        for number, problem in enumerate(problems)
    ]
    parts = Parts()
    with contextlib.ExitStack() as stack:
        parts.book("CUDA and libraries")
        policy = Policy(config.policy, config.training, world, temperature=config.rollout.temperature)
        parts.book("policy: weights, masters, moments, sums")
        sampler = Sampler(config.policy, config.rollout, tokenizer, world, seed=config.seed)
        stack.callback(sampler.close)
        parts.book("engine awake: weights, KV cache, graphs")
        if config.rollout.sleep_level:
            awake = parts.in_use
            sampler.sleep()
            parts.book("of it given back asleep")
            push(policy, sampler)
            parts.in_use = awake
        task_model = stack.enter_context(TaskModel(config.task_model, base_url=NOWHERE))
        reward = WeightedReward(Reward("parity", parity_reward), 1.0, {})
        progress = Progress()
        objective = Solve(config, SolveData(train, [], [reward]), world, None, progress)
        meter = stack.enter_context(PhaseMeter())
        recorder = Recorder(config) if world.is_main else None
        engines = Engines(world, tokenizer, policy, None, sampler, task_model, recorder)
        trainer = MeasuredTrainer(meter, config, engines, objective, progress)
        trainer.run()
        ranks = distributed.gather(trainer.taken)
    if recorder is None:
        return None
    counted = slice(warmup, -1)
    stays_awake = config.rollout.sleep_level == 0
    seconds = slowest_rollouts(ranks)[counted]
    return Measured(seconds, recorder.lengths[counted], meter.peaks, stays_awake, parts.taken)


def slowest_rollouts(ranks: Sequence[Sequence[dict[str, float]]]) -> list[dict[str, float]]:
    """Rank 0's seconds by phase, step by step, each rollout being as long as that of the slowest rank.

    ranks: each rank's steps, rank 0 first. What rank 0 waits for the others, it waits while scoring. A step that trains
    on what partial rollouts have left it rolls nothing out.
    """
    steps = []
    for step, *others in zip(*ranks, strict=True):
        own = step.get("rollout", 0.0)
        wait = max(0.0, max([other.get("rollout", 0.0) for other in others], default=0.0) - own)
        steps.append(step | {"rollout": own + wait, "scoring": step.get("scoring", 0.0) - wait})
    return steps


def measure_peer(
    arguments: argparse.Namespace, config: Config, problems: Sequence[str], folder: Path, weights: str
) -> Measured:
    """The peer's side, in a process of its own, so that each side has the device for itself. config: of our side.
    weights: their type; it computes in bfloat16 either way."""
    workload, result = folder / "peer_workload.json", folder / "peer_result.json"
    names = ("prompts", "generations", "completion", "steps", "warmup", "gradient_checkpointing", "peer_micro_batch")
    chosen = {name: getattr(arguments, name) for name in names}
    workload.write_text(json.dumps({
        **chosen, "model": config.policy.model, "problems": list(problems), "output_dir": str(folder / "peer"),
        "max_model_len": MAX_PROMPT_LENGTH + arguments.completion,
        "kv_cache_bytes": int(arguments.kv_cache_gib * 2**30),
        "lora": config.policy.lora.model_dump() if config.policy.lora else None, "weights": weights,
    }), encoding="utf-8")  # fmt: skip
    command = [sys.executable, "-m", "scripts.benchmarks.step_peer", str(workload), str(result)]
    subprocess.run(command, cwd=ROOT, check=True)
    return Measured(**json.loads(result.read_text("utf-8")))


def summary(
    measured: Measured, flops: TrainingFlops, bf16_rate: float, kv_cache_gib: float, world_size: int
) -> dict[str, float | None]:
    """The figures of one side: medians, or means where some steps roll nothing out (partial rollouts).

    Utilisation: needed operations a second of the training phase / what the cards reach.
    """
    middle = statistics.median if all(phases.get("rollout") for phases in measured.seconds) else statistics.fmean
    step = [sum(phases.values()) for phases in measured.seconds]
    named = {phase: [phases.get(phase, 0.0) for phases in measured.seconds] for phase in PHASES}
    named["rest"] = [whole - sum(parts) for whole, *parts in zip(step, *named.values(), strict=True)]
    tokens = sum(completion for lengths in measured.lengths for _, completion in lengths)
    needed = sum(flops.total(lengths) for lengths in measured.lengths)
    gib = {phase: peak / 2**30 for phase, peak in measured.peaks.items()}
    training_peak = gib.get("training")
    own = None if training_peak is None else training_peak - kv_cache_gib * measured.kv_cache_is_resident
    return {
        "step, s": middle(step),
        **{f"{phase}, s": middle(seconds) for phase, seconds in named.items()},
        "completion tokens/s": tokens / sum(step),
        "training: share of the bf16 matmul rate": needed / sum(named["training"]) / (bf16_rate * world_size),
        "peak, GiB": max(gib.values(), default=None),
        "KV cache, GiB": kv_cache_gib,
        "training's peak, GiB": training_peak,
        "training's peak without KV cache, GiB": own,
    }


def report(
    arguments: argparse.Namespace,
    ours: dict,
    peer: dict | None,
    bf16_rate: float,
    ranks: int,
    lora: LoraSettings | None,
    default: dict | None,
    parts: Mapping[str, float],
) -> None:
    show_heading(arguments, ranks)
    print(f"{arguments.prompts} prompts x {arguments.generations} completions x {arguments.completion} tokens a rank; "
          f"bf16 matmul {bf16_rate / 1e12:,.4g} TFLOP/s a device"
          + (f"; adapter: {lora}" if lora else ""))  # fmt: skip
    columns = {"PRewrite": ours}
    if peer is not None:
        ratios = {name: ours[name] / peer[name] for name in ours if ours[name] is not None and peer[name]}
        columns |= {f"TRL{' with peft' if lora else ''}, this run": peer, "ratio": ratios}
    elif ranks == 1 and not arguments.no_peer:
        print("The peer did not run: it is not installed (pip install trl), or there is no GPU.")
        published = PUBLISHED.get(arguments.dummy or Path(arguments.model).name)
        if published is not None:
            print("Its column holds figures published for 32 prompts x 8 completions x 512 tokens (TRL 1.16, one H100, "
                  "2026-11-27; the peak is the allocator's): not of this run.")  # fmt: skip
            columns["TRL, published"] = published
    if default is not None:
        ratios = {name: ours[name] / default[name] for name in ours if ours[name] is not None and default[name]}
        columns |= {"TRL, float32 weights": default, "ratio to it": ratios}
    show_table("Training step", columns)
    if parts:
        show_table("Ours before the first step", {"GiB": parts})
    write_result(arguments, ranks, bf16_flops_per_second=bf16_rate, step=columns, parts=parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_model_arguments(parser)
    parser.add_argument("--steps", type=int, default=6, help="timed steps (default 6)")
    parser.add_argument("--warmup", type=int, default=2, help="steps before them (default 2, at least 1)")
    parser.add_argument("--micro-batch-tokens", type=int, default=32_768, help="tokens of a micro-batch at most")
    parser.add_argument("--gradient-checkpointing", action="store_true", help="on both sides")
    parser.add_argument("--peer-micro-batch", type=int, default=32, help="the peer's sequences a forward (default 32)")
    parser.add_argument("--peer-default", action="store_true", help="TRL's default too: float32 weights, bf16 autocast")
    parser.add_argument("--no-peer", action="store_true", help="our side alone")
    arguments = parse(parser)
    if arguments.warmup < 1:
        parser.error("--warmup: at least 1, since the first step also holds the first push")
    if any(given.partition("=")[0].endswith("gradient_checkpointing") for given in arguments.set):
        parser.error("--set gradient_checkpointing is for one side: give --gradient-checkpointing, or leave it out")
    # TRL's push fails in vLLM's CPU build, whose weights are packed.
    has_peer = bool(importlib.util.find_spec("trl")) and torch.cuda.is_available() and not arguments.no_peer
    if has_peer and arguments.prompts * arguments.generations % arguments.peer_micro_batch:
        parser.error("--peer-micro-batch must divide --prompts x --generations")
    is_main, world_size = os.environ.get("RANK", "0") == "0", int(os.environ.get("WORLD_SIZE", "1"))
    counted = arguments.warmup + arguments.steps
    problems = gsm8k_problems(arguments.prompts * world_size * (counted + 1))
    quiet_libraries()
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        # Before this process touches a device: what it holds there would count for the peer.
        model = model_folder(arguments, folder) if is_main else None
        make = functools.partial(
            bench_config, arguments, folder=folder, gradient_checkpointing=arguments.gradient_checkpointing,
            max_steps=counted + 1, max_tokens_per_micro_batch=arguments.micro_batch_tokens,
        )  # fmt: skip
        peers: dict[str, Measured] = {}
        of_peer = ["bfloat16", *(["float32"] if arguments.peer_default else [])]
        for weights in of_peer if world_size == 1 and has_peer else ():
            of_run = make(model=str(model)), problems[: arguments.prompts * counted], folder, weights
            peers[weights] = peer = measure_peer(arguments, *of_run)
            told = [f"{sum(phases.values()):.3f}" for phases in peer.seconds]
            print(f"TRL's steps, {weights} weights: {' '.join(told)} s", file=sys.stderr, flush=True)
        world = distributed.start()
        stack.callback(distributed.stop)
        config = make(model=distributed.broadcast(model))
        bf16_rate = matmul_flops_per_second()
        torch.cuda.empty_cache()
        ours = measure_ours(config, world, problems, arguments.warmup)
        if ours is None:
            return
        flops = TrainingFlops.of(config.policy.model, is_frozen=config.policy.lora is not None)
        mine, theirs, default = (
            None if side is None else summary(side, flops, bf16_rate, arguments.kv_cache_gib, world_size)
            for side in (ours, peers.get("bfloat16"), peers.get("float32"))
        )
        parts = {part: taken / 2**30 for part, taken in ours.parts.items()}
        report(arguments, mine, theirs, bf16_rate, world_size, config.policy.lora, default, parts)


if __name__ == "__main__":
    sys.exit(exit_code(main))

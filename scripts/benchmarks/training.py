"""Seconds and memory of the training phase alone, with what rollouts share computed once and with nothing shared.

    python -m scripts.benchmarks.training --model FOLDER --prompts 64 --generations 16 --request 150 --completion 60
    python -m scripts.benchmarks.training --dummy 1.5b --tokenizer FOLDER --prompts 64 --generations 16

    python -m scripts.benchmarks.training --dummy 1.5b --tokenizer FOLDER \
        --versus training.optim=adamw_8bit --versus training.optim=adamw_8bit policy.grad_accum_dtype=bfloat16

An optimizer step on random tokens: --prompts requests of --request tokens, --generations completions each of
--completion tokens. The two ways take turns on one policy, whose weights stay as they are; the gradient's norm is told
for each. Memory: the allocator's peak, what the policy holds between steps, and on a GPU what a step takes beside it.
--versus: settings beside those of --set, one policy after the other, each with what rollouts share computed once.
"""

import argparse
import contextlib
import gc
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from prewrite.algorithm.batching import Batch, collate
from prewrite.config import Config
from prewrite.engine import distributed
from prewrite.engine.adapter import refuse_adapter
from prewrite.engine.deepspeed_config import refuse_no_bitsandbytes
from prewrite.engine.policy import Policy, load_tokenizer, quiet_libraries
from prewrite.errors import UserError
from prewrite.training.engines import full_memory_told
from prewrite.training.update import Updater
from prewrite.types import Sample
from scripts.benchmarks.asking import exit_code
from scripts.benchmarks.common import (
    add_model_arguments,
    bench_config,
    model_folder,
    parse,
    show_heading,
    show_table,
    write_result,
)

GIB = 2**30


def workload(arguments: argparse.Namespace, vocabulary: int, world_size: int, seed: int = 0) -> Batch:
    """Groups of random tokens, their advantages random too."""
    rng = random.Random(seed)
    samples = []
    for _ in range(arguments.prompts * world_size):
        request = tuple(rng.choices(range(vocabulary), k=arguments.request))
        for _ in range(arguments.generations):
            completion = tuple(rng.choices(range(vocabulary), k=arguments.completion))
            samples.append(Sample(request, completion, (-10.0,) * arguments.completion, "", "stop"))
    return collate(samples, [rng.gauss(0, 1) for _ in samples], pad_token_id=0)


def take_turns(policy: Policy, config: Config, ways: Mapping[str, Batch], repeats: int) -> dict[str, dict[str, float]]:
    """By way: median seconds of a step, the spread of them, the peak of memory, and the gradient's norm."""
    on_gpu = policy.world.device.type == "cuda"
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    found: dict[str, dict[str, float]] = {}
    for turn in range(repeats + 1):
        for name, batch in ways.items():
            updater = Updater(
                policy, None, config.loss, config.training,
                max_completion_length=config.rollout.max_completion_length, rollouts_per_step=len(batch.length_B),
            )  # fmt: skip
            if on_gpu:
                torch.cuda.reset_peak_memory_stats()
            start = time.perf_counter()
            (update,) = updater.updates(batch, lambda: 0.0, 1)
            if on_gpu:
                torch.cuda.synchronize()
            if turn:  # the first one warms up
                seconds[name].append(time.perf_counter() - start)
            plan = updater.plan(batch, range(len(batch.length_B)))
            found[name] = {
                "gradient norm": update.metrics["grad_norm"],
                "micro-batches": len(plan.micro_batches),
                "positions computed": sum(micro.batch.num_computed for micro in plan.micro_batches),
                **(_peaks() if on_gpu else {}),
            }
    return {name: _times(seconds[name]) | found[name] for name in ways}


def _peaks() -> dict[str, float]:
    kept = {"peak, GiB": torch.cuda.max_memory_allocated(), "the allocator's, GiB": torch.cuda.max_memory_reserved()}
    return {name: size / GIB for name, size in kept.items()}


def held_by_part(policy: Policy) -> dict[str, float]:
    """GiB of the tensors that this rank's policy holds between steps, wherever they are."""
    states = policy.optimizer_state()
    # Of ZeRO-1 with bfloat16 weights and float32 sums, which stay; all others come and go with a step.
    gradients = [
        *getattr(policy.engine.optimizer, "fp32_groups_gradients_flat", []),
        *(weight.grad for weight in policy.trained.values() if weight.grad is not None),
    ]
    parts = {
        "weights": [getattr(weight, "ds_tensor", weight) for weight in policy.lm.parameters()],
        "gradients": gradients,
        "masters": [state["master"] for state in states],
        "moments": [part for state in states for name, part in state.items() if name != "master"],
    }
    return {
        name: sum(one.numel() * one.element_size() for one in tensors if torch.is_tensor(one)) / GIB
        for name, tensors in parts.items()
    }


def taken_by_moment(policy: Policy, config: Config, batch: Batch) -> dict[str, float]:
    """GiB on the GPU beyond what is held between steps, moment by moment of a step of the largest micro-batch alone."""
    training, longest = config.training, config.rollout.max_completion_length
    updater = Updater(policy, None, config.loss, training, max_completion_length=longest, rollouts_per_step=1)
    plan = updater.plan(batch, range(len(batch.length_B)))
    largest = max(plan.micro_batches, key=lambda micro: micro.batch.num_computed)
    on_device = largest.batch.to(policy.world.device)
    found: dict[str, float] = {}
    held = torch.cuda.memory_allocated()

    def note(what: str, size: Callable[[], int]) -> None:
        torch.cuda.synchronize()
        found[what] = (size() - held) / GIB
        torch.cuda.reset_peak_memory_stats()

    def after_layers(_module: object, _inputs: object, output: Any) -> None:
        note("layers' forward: peak", torch.cuda.max_memory_allocated)
        note("activations kept for the backward pass", torch.cuda.memory_allocated)
        if output.last_hidden_state.requires_grad:
            output.last_hidden_state.register_hook(
                lambda _: note("head's backward: peak", torch.cuda.max_memory_allocated)
            )

    torch.cuda.reset_peak_memory_stats()
    hook = policy.lm.get_decoder().register_forward_hook(after_layers)
    logprob_BT, _ = policy.logprobs(on_device, largest.num_chunks)
    hook.remove()
    note("head's forward, logits in chunks: peak", torch.cuda.max_memory_allocated)
    note("kept for the backward pass, the head's too", torch.cuda.memory_allocated)
    loss = logprob_BT.sum()
    del logprob_BT
    policy.backward(loss, last=True)
    del loss
    note("layers' backward: peak", torch.cuda.max_memory_allocated)
    note("gradients after it", torch.cuda.memory_allocated)
    policy.step(0.0)
    note("optimizer step: peak", torch.cuda.max_memory_allocated)
    note("after the step", torch.cuda.memory_allocated)
    return {"positions computed": largest.batch.num_computed, **found}


def _times(seconds: Sequence[float]) -> dict[str, float]:
    return {"step, s": statistics.median(seconds), "fastest, s": min(seconds), "slowest, s": max(seconds)}


def measured(
    arguments: argparse.Namespace, config: Config, world: distributed.World
) -> tuple[dict[str, dict[str, float]], dict[str, float], dict[str, float]]:
    """By way of taking the step, seconds and the rest; what the policy holds; and what a step takes beside it."""
    policy = Policy(config.policy, config.training, world, temperature=config.rollout.temperature)
    ways = {"shared": workload(arguments, len(load_tokenizer(config.policy)), world.size)}
    if not arguments.versus:
        (shared,) = ways.values()
        alone = {"lead_B": torch.arange(len(shared.lead_B)), "num_computed": shared.num_positions}
        ways["nothing shared"] = replace(shared, **alone)
    found = take_turns(policy, config, ways, arguments.repeats), held_by_part(policy)
    taken = taken_by_moment(policy, config, ways["shared"]) if world.device.type == "cuda" else {}
    policy.engine.destroy()
    for weight in policy.lm.parameters():  # DeepSpeed's methods in a weight's own dict keep it, and its master, alive
        vars(weight).clear()
    return *found, taken


def settings_by_name(arguments: argparse.Namespace, model: str, folder: Path) -> dict[str, Config]:
    """The run of --set, and those of each --versus. UserError for settings that are none, or that lack a package."""
    configs: dict[str, Config] = {}
    for versus in [[], *arguments.versus]:
        changed = argparse.Namespace(**vars(arguments) | {"set": [*arguments.set, *versus]})
        name = " ".join(versus) or "as set"
        try:
            config = bench_config(changed, model, folder, max_tokens_per_micro_batch=arguments.micro_batch_tokens)
            refuse_no_bitsandbytes(config.policy, config.training)
            refuse_adapter(config.policy)
        except UserError as error:
            raise (UserError(f"--versus {name}: {error}") if versus else error) from error
        times = 1 + sum(other.partition(" (")[0] == name for other in configs)
        configs[name if times == 1 else f"{name} ({times})"] = config
    return configs


def report(
    arguments: argparse.Namespace,
    ranks: int,
    columns: dict[str, dict[str, float]],
    held: dict[str, dict[str, float]],
    taken: dict[str, dict[str, float]],
) -> None:
    """The tables, and the JSON of --out."""
    if not arguments.versus:
        ours, theirs = columns.values()
        columns = columns | {"ratio": {name: value / theirs[name] for name, value in ours.items()}}
    show_heading(arguments, ranks)
    show_table("Training phase", columns)
    show_table("Held between steps, GiB", held)
    if any(taken.values()):
        show_table("Taken beside it by the largest micro-batch, GiB", taken)
    write_result(arguments, ranks, training=columns, held=held, taken=taken)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_model_arguments(parser)
    parser.set_defaults(prompts=64, generations=16, completion=60)
    parser.add_argument("--request", type=int, default=150, help="tokens of a request (default 150)")
    parser.add_argument("--micro-batch-tokens", type=int, default=32_768, help="tokens of a micro-batch at most")
    parser.add_argument("--repeats", type=int, default=5, help="timed steps of each way (default 5)")
    parser.add_argument(
        "--versus",
        action="append",
        nargs="+",
        default=[],
        metavar="key=value",
        help="one more column: settings beside --set, each a word of its own; may be repeated",
    )
    arguments = parse(parser)
    quiet_libraries()
    world = distributed.start()
    with contextlib.ExitStack() as stack:
        stack.callback(distributed.stop)
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        model = distributed.broadcast(model_folder(arguments, folder) if world.is_main else None)
        configs = settings_by_name(arguments, model, folder)  # all of them, before the first is measured
        columns: dict[str, dict[str, float]] = {}
        held: dict[str, dict[str, float]] = {}
        taken: dict[str, dict[str, float]] = {}
        try:
            for name, config in configs.items():
                with full_memory_told():
                    ways, held[name], taken[name] = measured(arguments, config, world)
                gc.collect()  # a policy and its engine know each other
                torch.cuda.empty_cache()
                columns |= ways if not arguments.versus else {name: ways["shared"]}
        finally:  # what was measured before a fault is shown
            if world.is_main and columns:
                report(arguments, world.size, columns, held, taken)


if __name__ == "__main__":
    sys.exit(exit_code(main))

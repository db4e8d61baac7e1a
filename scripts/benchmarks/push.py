"""Pushing the policy's weights into vLLM, against a plain copy of the same bytes from device memory to device memory.

    python -m scripts.benchmarks.push --model FOLDER
    python -m scripts.benchmarks.push --dummy 1.5b --tokenizer FOLDER
    deepspeed --num_accelerators 2 --module scripts.benchmarks.push --model FOLDER

A push gathers the shards where ranks share out the weights (ZeRO-3), loads every weight into the engine and drops its
prefix cache; the copy writes the same tensors into fresh ones. The aim: at most 5 copies and 20 ms.
"""

import argparse
import contextlib
import sys
import tempfile
from pathlib import Path

import torch

from prewrite.engine import distributed
from prewrite.engine.policy import Policy, load_tokenizer, quiet_libraries
from prewrite.engine.sampler import Sampler
from prewrite.engine.weight_sync import full_weights, push
from scripts.benchmarks.asking import exit_code
from scripts.benchmarks.common import (
    add_model_arguments,
    bench_config,
    model_folder,
    parse,
    show_heading,
    show_table,
    time_call,
    write_result,
)


def measure_copy(policy: Policy, repeats: int) -> float:
    """Median seconds of copying every weight, whole, within the device."""
    sources = [weight.detach().clone() for _, weight in full_weights(policy.lm)]
    targets = [torch.empty_like(weight) for weight in sources]

    def copy() -> None:
        for target, source in zip(targets, sources, strict=True):
            target.copy_(source)

    return time_call(copy, repeats=repeats)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_model_arguments(parser)
    parser.add_argument("--repeats", type=int, default=9)
    arguments = parse(parser)
    quiet_libraries()
    world = distributed.start()
    with contextlib.ExitStack() as stack:
        stack.callback(distributed.stop)
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        model = distributed.broadcast(model_folder(arguments, folder) if world.is_main else None)
        config = bench_config(arguments, model, folder)
        policy = Policy(config.policy, config.training, world, temperature=config.rollout.temperature)
        sampler = Sampler(config.policy, config.rollout, load_tokenizer(config.policy), world, seed=config.seed)
        stack.callback(sampler.close)
        pushed = push(policy, sampler)
        push_seconds = time_call(lambda: push(policy, sampler), repeats=arguments.repeats)
        copy_seconds = measure_copy(policy, arguments.repeats)
        if not world.is_main:
            return
        columns = {
            name: {"seconds": seconds, "GB/s": pushed.num_bytes / seconds / 1e9}
            for name, seconds in (("push", push_seconds), ("device copy", copy_seconds))
        }
        show_heading(arguments, world.size)
        show_table(f"Weight push, {pushed.num_bytes:,} bytes, median of {arguments.repeats}", columns)
        print(f"\n5 copies and 20 ms are {5 * copy_seconds + 0.02:.4g} s")
        write_result(arguments, world.size, bytes=pushed.num_bytes, push=columns)


if __name__ == "__main__":
    sys.exit(exit_code(main))

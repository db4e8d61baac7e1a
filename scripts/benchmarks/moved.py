"""What share of the weights ten optimizer steps move, by learning rate: ours, and AdamW on weights as TRL holds them.

    python -m scripts.benchmarks.moved --model FOLDER
    python -m scripts.benchmarks.moved --dummy tiny --tokenizer FOLDER --prompts 2 --completion 8       on a CPU

Ours has bfloat16 weights with float32 masters. Beside it stand bfloat16 weights with AdamW on them, and float32 weights
under bfloat16 autocast, TRL's default: its numbers, in plain torch, not TRL itself. All take the same steps on the same
random tokens with random advantages: Adam's first steps are as long as the learning rate, whatever the gradient.
"""

import argparse
import contextlib
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from prewrite.algorithm.batching import Batch
from prewrite.config import Config, PolicySettings
from prewrite.engine import distributed
from prewrite.engine.distributed import World
from prewrite.engine.policy import LogprobModel, Policy, load_lm, load_tokenizer, quiet_libraries
from prewrite.training.update import Updater
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
from scripts.benchmarks.training import workload

LEARNING_RATES = (1e-6, 1e-5, 1e-4)


class TorchPolicy:
    """A policy's part in an update, by torch alone: AdamW on the weights themselves."""

    computes_padding = False

    def __init__(self, config: Config, dtype: Any, world: World):
        settings: PolicySettings = config.policy.model_copy(update={"dtype": dtype})
        self.lm, self.world = load_lm(settings).to(world.device).train(), world
        self.lm.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        self.model = LogprobModel(self.lm, config.rollout.temperature, config.training.logprob_chunk_tokens)
        betas = (config.training.adam_beta1, config.training.adam_beta2)
        self.optimizer = torch.optim.AdamW(self.lm.parameters(), betas=betas, weight_decay=0.0, fused=True)
        self.max_grad_norm = config.training.max_grad_norm

    def weights(self) -> list[Tensor]:
        return list(self.lm.parameters())

    def logprobs(self, batch: Batch, num_chunks: int, *, entropy_grad: bool = False) -> tuple[Tensor, Tensor]:
        with torch.autocast(self.world.device.type, torch.bfloat16):
            return self.model(batch, num_chunks, entropy_grad)

    def backward(self, loss: Tensor, *, last: bool) -> None:
        loss.backward()

    def step(self, learning_rate: float) -> float:
        norm = nn.utils.clip_grad_norm_(self.lm.parameters(), self.max_grad_norm)
        self.optimizer.param_groups[0]["lr"] = learning_rate
        self.optimizer.step()
        self.optimizer.zero_grad()
        return float(norm)


def moved_shares(
    policy: Any, config: Config, batches: Sequence[Batch], learning_rate: float, weights: Callable[[], list[Tensor]]
) -> float:
    """The share of `weights` that differ after a step on each batch."""
    before = [weight.detach().clone() for weight in weights()]
    for number, batch in enumerate(batches):
        updater = Updater(
            policy, None, config.loss, config.training,
            max_completion_length=config.rollout.max_completion_length, rollouts_per_step=len(batch.length_B),
        )  # fmt: skip
        list(updater.updates(batch, lambda: learning_rate, number))
    moved = sum(int((weight != old).sum()) for weight, old in zip(weights(), before, strict=True))
    return moved / sum(old.numel() for old in before)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_model_arguments(parser)
    parser.set_defaults(prompts=8, completion=64)
    parser.add_argument("--request", type=int, default=64, help="tokens of a request (default 64)")
    parser.add_argument("--steps", type=int, default=10, help="optimizer steps (default 10)")
    arguments = parse(parser)
    quiet_libraries()
    world = distributed.start()
    with contextlib.ExitStack() as stack:
        stack.callback(distributed.stop)
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        model = model_folder(arguments, folder)
        config = bench_config(arguments, model, folder, gradient_checkpointing=True, max_tokens_per_micro_batch=16_384)
        vocabulary = len(load_tokenizer(config.policy))
        batches = [workload(arguments, vocabulary, 1, seed=seed) for seed in range(arguments.steps)]
        columns: dict[str, dict[str, float]] = {}
        ours = Policy(config.policy, config.training, world, temperature=config.rollout.temperature)
        held = {
            "ours: bfloat16 weights": lambda: list(ours.lm.parameters()),
            "ours: float32 masters": lambda: [state["master"] for state in ours.optimizer_state()],
        }
        for name, weights in held.items():
            columns[name] = {}
            for learning_rate in LEARNING_RATES:
                ours.reset(config.policy)
                columns[name][f"{learning_rate:g}"] = moved_shares(ours, config, batches, learning_rate, weights)
        for dtype, name in (("bfloat16", "AdamW on bfloat16 weights"), ("float32", "AdamW on float32 weights")):
            columns[name] = {}
            for learning_rate in LEARNING_RATES:
                peer = TorchPolicy(config, dtype, world)
                columns[name][f"{learning_rate:g}"] = moved_shares(peer, config, batches, learning_rate, peer.weights)
                del peer
        show_heading(arguments, world.size)
        show_table(f"Share of the weights that {arguments.steps} steps move, by learning rate", columns)
        write_result(arguments, world.size, moved=columns)


if __name__ == "__main__":
    sys.exit(exit_code(main))

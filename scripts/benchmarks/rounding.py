"""How far from float32's gradient bfloat16 is, with the policy's layers as they are and compiled, on text and on noise.

    python -m scripts.benchmarks.rounding --model FOLDER
    python -m scripts.benchmarks.rounding --dummy tiny --tokenizer FOLDER --prompts 1 --generations 2       on a CPU

The gradient of the mean of advantage x log-prob over all tokens, advantages drawn at random. *text*: --prompts GSM8K
problems and the solutions of their rows, --generations beginnings of each; *noise*: as long, of random tokens. A way at
a time, each with a model of its own: of a 1.5B they take 20 GiB on a CPU.
"""

import argparse
import contextlib
import random
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from prewrite.algorithm.batching import Batch, collate
from prewrite.algorithm.logprobs import count_chunks
from prewrite.config import PolicySettings
from prewrite.engine import distributed
from prewrite.engine.compiling import compile_layers, refuse_compiling_without_compiler
from prewrite.engine.policy import LogprobModel, load_lm, load_tokenizer, quiet_libraries
from prewrite.tasks import get_task
from prewrite.tasks.loading import load_examples
from prewrite.types import Sample
from scripts.benchmarks.asking import exit_code
from scripts.benchmarks.common import (
    add_model_arguments,
    chat_request,
    model_folder,
    parse,
    show_heading,
    show_table,
    write_result,
)

CHUNK_TOKENS = 1024
WAYS = {"float32": ("float32", False), "bfloat16": ("bfloat16", False), "bfloat16, compiled": ("bfloat16", True)}


def batches(arguments: argparse.Namespace, tokenizer: Any) -> dict[str, Batch]:
    """Of text and of noise, the same lengths and advantages."""
    rng, texts, noises = random.Random(0), [], []
    for example in load_examples(get_task("gsm8k"), "train")[: arguments.prompts]:
        request = tuple(chat_request(example.fields["problem"], tokenizer))
        solution = tokenizer(example.solution or "", add_special_tokens=False)["input_ids"][: arguments.completion]
        unread = tuple(rng.choices(range(len(tokenizer)), k=len(request)))
        for part in range(arguments.generations):
            ids = tuple(solution[: max(1, len(solution) * (part + 1) // arguments.generations)])
            silent = (0.0,) * len(ids)
            texts.append(Sample(request, ids, silent, "", "stop"))
            noises.append(Sample(unread, tuple(rng.choices(range(len(tokenizer)), k=len(ids))), silent, "", "stop"))
    advantages = [rng.gauss(0, 1) for _ in texts]
    both = {"text": texts, "noise": noises}
    return {name: collate(samples, advantages, pad_token_id=0) for name, samples in both.items()}


def gradient(settings: PolicySettings, batch: Batch, device: torch.device) -> list[Tensor]:
    """Of every weight, in the weights' dtype, on the CPU."""
    lm = load_lm(settings).to(device).train()
    lm.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    if settings.torch_compile:
        compile_layers(lm)
    model, batch = LogprobModel(lm, 1.0, CHUNK_TOKENS), batch.to(device)
    logprob_BT, _ = model(batch, count_chunks(batch.num_tokens, CHUNK_TOKENS), False)
    ((logprob_BT.sum(1) * batch.advantage_B).sum() / batch.num_tokens).backward()
    return [weight.grad.cpu() for weight in lm.parameters()]


def compare(found: list[Tensor], expected: list[Tensor] | None) -> dict[str, float]:
    """The norm, and |found - expected| / |expected|."""

    def norm(tensors: Iterable[Tensor]) -> float:
        return sum(float(tensor.double().square().sum()) for tensor in tensors) ** 0.5

    if expected is None:
        return {"norm": norm(found), "relative error": 0.0}
    apart = norm(one.float() - other for one, other in zip(found, expected, strict=True))
    return {"norm": norm(found), "relative error": apart / norm(expected)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_model_arguments(parser)
    parser.set_defaults(prompts=3, generations=4, completion=60)
    arguments = parse(parser)
    quiet_libraries()
    world = distributed.start()
    with contextlib.ExitStack() as stack:
        stack.callback(distributed.stop)
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        settings = PolicySettings(model=model_folder(arguments, folder), torch_compile=True)
        refuse_compiling_without_compiler(settings)
        show_heading(arguments, world.size)
        found: dict[str, dict[str, dict[str, float]]] = {}
        for kind, batch in batches(arguments, load_tokenizer(settings)).items():
            expected, found[kind] = None, {}
            for way, (dtype, is_compiled) in WAYS.items():
                of_way = settings.model_copy(update={"dtype": dtype, "torch_compile": is_compiled})
                given = gradient(of_way, batch, world.device)
                found[kind][way] = compare(given, expected)
                expected = given if expected is None else expected
                del given  # before the next model is loaded
            show_table(f"Gradient on {kind}, {batch.num_tokens} completion tokens", found[kind])
        write_result(arguments, world.size, rounding=found)


if __name__ == "__main__":
    sys.exit(exit_code(main))

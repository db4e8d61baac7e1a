"""Pushing the policy's weights into the sampler: the only path by which a step changes what is sampled next."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import deepspeed
import torch
from torch import Tensor, nn

from prewrite.engine.adapter import Whole, alone, whole_weights
from prewrite.engine.policy import Policy
from prewrite.engine.sampler import Sampler

BUCKET_NUMEL = 100_000_000  # parameters gathered at once: 200 MB in bfloat16


@dataclass(frozen=True)
class Push:
    """What a push moved. checksum: sum of |w| over the stream in float64, None where it was not asked for."""

    seconds: float
    num_bytes: int
    checksum: float | None


def push(policy: Policy, sampler: Sampler, *, checksum: bool = False) -> Push:
    """Hands every weight, whole, to this rank's engine, then forgets what its prefix cache computed. A collective."""
    start = time.perf_counter()
    moved = {"bytes": 0, "checksum": 0.0}

    def counted() -> Iterator[tuple[str, Tensor]]:
        for name, weight in full_weights(policy.lm):
            moved["bytes"] += weight.numel() * weight.element_size()
            if checksum:
                moved["checksum"] += float(weight.double().abs().sum())
            yield name, weight

    sampler.load_weights(counted())
    if policy.world.device.type == "cuda":
        torch.cuda.synchronize()
    return Push(time.perf_counter() - start, int(moved["bytes"]), moved["checksum"] if checksum else None)


def full_weights(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """(name, whole tensor) of every weight, an adapter merged into those it is on; tied ones once. See `gathered`."""
    return gathered(whole_weights(module))


def trained_weights(policy: Policy) -> Iterator[tuple[str, Tensor]]:
    """(name, whole tensor) of every weight that training moves, an adapter's by peft's names. See `gathered`."""
    return gathered([alone(name, parameter) for name, parameter in policy.trained.items()])


def gathered(weights: Sequence[Whole]) -> Iterator[tuple[str, Tensor]]:
    """(name, whole tensor) of the weights. A collective: exhaust it on each rank.

    Gathered in buckets sized by `ds_numel`, since a collective for each parameter costs more than the bytes it moves.
    Below ZeRO-3 every rank holds them whole. A yielded tensor must be copied or released before the iterator is gone.
    """
    for bucket in _buckets(weights):
        with deepspeed.zero.GatheredParameters([part for weight in bucket for part in weight.parts]):
            for weight in bucket:
                yield weight.name, weight.value()


def _buckets(weights: Sequence[Whole]) -> Iterator[list[Whole]]:
    bucket: list[Whole] = []
    size = 0
    for weight in weights:
        numel = sum(getattr(part, "ds_numel", part.numel()) for part in weight.parts)
        if bucket and size + numel > BUCKET_NUMEL:
            yield bucket
            bucket, size = [], 0
        bucket.append(weight)
        size += numel
    if bucket:
        yield bucket

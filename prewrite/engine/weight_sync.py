"""Pushing the policy's weights into the sampler: the only path by which a step changes what is sampled next."""

import time
from collections.abc import Iterator
from dataclasses import dataclass

import deepspeed
import torch
from torch import Tensor, nn

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


def full_weights(module: nn.Module, bucket_numel: int = BUCKET_NUMEL) -> Iterator[tuple[str, Tensor]]:
    """(name, whole tensor) of every parameter; tied weights once. A collective: exhaust it on each rank.

    Gathered in buckets sized by `ds_numel`, since a collective for each parameter costs more than the bytes it moves.
    Below ZeRO-3 every rank holds them whole and there is nothing to gather. A yielded tensor must be copied or released
    before the iterator is gone.
    """
    for bucket in _buckets(list(module.named_parameters()), bucket_numel):
        with deepspeed.zero.GatheredParameters([parameter for _, parameter in bucket]):
            for name, parameter in bucket:
                yield name, parameter.data


def _buckets(named: list[tuple[str, nn.Parameter]], limit: int) -> Iterator[list[tuple[str, nn.Parameter]]]:
    bucket: list[tuple[str, nn.Parameter]] = []
    size = 0
    for name, parameter in named:
        numel = getattr(parameter, "ds_numel", parameter.numel())
        if bucket and size + numel > limit:
            yield bucket
            bucket, size = [], 0
        bucket.append((name, parameter))
        size += numel
    if bucket:
        yield bucket

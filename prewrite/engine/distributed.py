"""Ranks: starting them, sharing objects, and failing together. The home of torch.distributed."""

import contextlib
import os
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from prewrite.engine.processes import end_with_launcher
from prewrite.errors import RankFailure, UserError


@dataclass(frozen=True)
class World:
    """This process among the ranks of the run."""

    rank: int
    size: int
    device: torch.device

    @property
    def is_main(self) -> bool:
        return self.rank == 0


def free_port() -> int:
    """A TCP port on the loopback interface that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def start(timeout_seconds: int = 1800) -> World:
    """Joins the ranks that `deepspeed` or `torchrun` started, or makes a world of one under plain `python`.

    A launcher that dies takes its ranks along (`end_with_launcher`).
    timeout_seconds: how long a rank waits for the others in a collective before it fails.
    """
    import deepspeed

    end_with_launcher()
    alone = {"RANK": 0, "WORLD_SIZE": 1, "LOCAL_RANK": 0, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}
    for name, value in alone.items():
        os.environ.setdefault(name, str(value))
    if torch.cuda.is_available():
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
    else:
        device = torch.device("cpu")
    # On the CPU DeepSpeed would first compile a C++ extension for shared-memory collectives: a minute, and a compiler
    # that a laptop may lack. Gloo does the same work.
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    backend = "nccl" if device.type == "cuda" else "gloo"
    deepspeed.init_distributed(backend, verbose=False, timeout=timedelta(seconds=timeout_seconds))
    return World(dist.get_rank(), dist.get_world_size(), device)


def stop() -> None:
    """Leaves the world; safe to call twice."""
    if dist.is_initialized():
        dist.destroy_process_group()


def gather(value: Any) -> list[Any]:
    """Every rank's (picklable) value, in rank order, on every rank."""
    if dist.get_world_size() == 1:
        return [value]
    values: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(values, value)
    return values


def broadcast(value: Any) -> Any:
    """Rank 0's (picklable) value, on every rank."""
    if dist.get_world_size() == 1:
        return value
    box = [value]
    dist.broadcast_object_list(box, src=0)
    return box[0]


@contextlib.contextmanager
def together(phase: str) -> Iterator[None]:
    """Runs a phase without collectives, then lets the ranks agree on how it went.

    Where a rank raised, it raises its own error and every other rank raises `RankFailure`: nobody is left waiting in
    the next collective. Raises: the error of the phase, or RankFailure.
    """
    error: Exception | None = None
    try:
        yield
    except Exception as raised:  # noqa: BLE001  # not swallowed: raised again below, once every rank knows
        error = raised
    told = None if error is None else str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error}"
    everyone = gather((told, error is None or isinstance(error, UserError), _machine()))
    failed = [(rank, words, machine) for rank, (words, _, machine) in enumerate(everyone) if words is not None]
    if isinstance(error, UserError):
        error.on_every_rank = len(failed) == len(everyone)
    if error is not None:
        raise error
    if failed:
        rank, words, _ = failed[0]
        exit_code = 2 if all(by_user for _, by_user, _ in everyone) else 1
        elsewhere = _machine() not in [machine for _, _, machine in failed]
        raise RankFailure(f"rank {rank} failed while {phase}: {words}", exit_code, elsewhere=elsewhere)


def _machine() -> str:
    """The number of this rank's machine among those of the run, as torchrun or `deepspeed` gives it."""
    return os.environ.get("GROUP_RANK") or os.environ.get("CROSS_RANK") or "0"

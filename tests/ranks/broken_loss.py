"""Losses of a user's own with a bug that shows on the last rank."""

import os

from torch import Tensor

from prewrite.algorithm.losses import LossTensors
from prewrite.config import LossSettings

rounds = 0


def is_last_rank() -> bool:
    return int(os.environ["RANK"]) == int(os.environ["WORLD_SIZE"]) - 1


def reinforce(tensors: LossTensors, settings: LossSettings) -> Tensor:
    return -tensors.advantage_B[:, None] * tensors.logprob_BT


def nan(tensors: LossTensors, settings: LossSettings) -> Tensor:
    return reinforce(tensors, settings) * (float("nan") if is_last_rank() else 1.0)


def nan_in_the_second_step(tensors: LossTensors, settings: LossSettings) -> Tensor:
    global rounds
    rounds += 1
    return nan(tensors, settings) if rounds > 1 else reinforce(tensors, settings)


def steep(tensors: LossTensors, settings: LossSettings) -> Tensor:
    """Finite, with an infinite gradient."""
    zero_BT = tensors.logprob_BT - tensors.logprob_BT.detach()
    return reinforce(tensors, settings) + (zero_BT.sqrt() if is_last_rank() else zero_BT)

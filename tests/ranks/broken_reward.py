"""Rewards of a user's own: one that is sound, and one with a bug that shows on the second rank, in the second step."""

import os
from collections.abc import Sequence

from prewrite.types import InstructionRow, Sample

rounds = 0


def length(samples: Sequence[Sample], rows: Sequence[InstructionRow]) -> list[float]:
    return [float(len(sample.text)) for sample in samples]


def breaks_on_rank_1(samples: Sequence[Sample], rows: Sequence[InstructionRow]) -> list[float]:
    global rounds
    rounds += bool(samples)  # the settings are checked with no sample at all
    if rounds > 1 and os.environ["RANK"] == "1":
        raise ZeroDivisionError("the reward broke")
    return length(samples, rows)

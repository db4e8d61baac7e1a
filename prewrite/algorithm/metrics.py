"""What a loss reports, in a form that adds up over micro-batches and ranks."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class LossMetrics:
    """Detached scalars of one micro-batch, one rank, or one step.

    sums: added up; "tokens" is the count that means are taken over.
    maxima: the largest is kept; of a minimum its negative.
    The keys depend on the settings alone, never on the data, so that all ranks hold the same.
    """

    sums: Mapping[str, Tensor]
    maxima: Mapping[str, Tensor]


def merge_metrics(parts: Iterable[LossMetrics]) -> LossMetrics:
    """The metrics of several micro-batches (at least one) as those of one."""
    first, *rest = parts
    sums, maxima = dict(first.sums), dict(first.maxima)
    for part in rest:
        sums = {key: total + part.sums[key] for key, total in sums.items()}
        maxima = {key: torch.maximum(largest, part.maxima[key]) for key, largest in maxima.items()}
    return LossMetrics(sums, maxima)


def metric_values(metrics: LossMetrics) -> dict[str, float]:
    """The numbers to log for a step: `loss` as it is, the rest as means over tokens, extremes as `_max` and `_min`.

    A step without a token has only `loss` and `tokens`: a mean over nothing is not written down.
    """
    tokens = float(metrics.sums["tokens"])
    values = {"loss": float(metrics.sums["loss"]), "tokens": tokens}
    if tokens == 0:
        return values
    values |= {key: float(total) / tokens for key, total in metrics.sums.items() if key not in values}
    for key, largest in metrics.maxima.items():
        values[key] = -float(largest) if key.endswith("_min") else float(largest)
    return values

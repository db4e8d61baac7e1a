"""What a run has spent over all ranks, and what its limits still allow."""

import math
from collections.abc import Iterable, Mapping

from prewrite.config import BudgetSettings
from prewrite.engine import distributed
from prewrite.engine.task_model import TaskModel
from prewrite.training.progress import Progress
from prewrite.types import Sample


class Budget:
    """most: calls that the limits allow in all, by what calls have taken so far; None = no limit, or none known yet.
    spent: requests so far. Both are a stage's own, the same on every rank, and as of the last `update`.
    """

    def __init__(self, settings: BudgetSettings, task_model: TaskModel, progress: Progress):
        self.settings, self.task_model, self.progress = settings, task_model, progress
        self.most: int | None = settings.max_task_calls
        self.spent = 0
        self._prompt_tokens = self._completion_tokens = 0  # of this rank's samples, since the last update

    def add(self, samples: Iterable[Sample]) -> None:
        """Counts what this rank's policy has read and written."""
        for sample in samples:
            self._prompt_tokens += len(sample.prompt_ids)
            self._completion_tokens += len(sample.completion_ids)

    def update(self, *, alone: bool = False) -> dict[str, float]:
        """Counts what all ranks have spent, and gives each its share of the rest; alone: rank 0 all of it.

        A collective. Returns the counts since the start, by the name of the metric.
        """
        stats = self.task_model.stats
        mine = {
            "task_calls": stats.calls,
            "cached_calls": stats.cached,
            "retried_calls": stats.retries,
            "failed_calls": stats.failed,
            "refused_calls": stats.refused,
            "task_requests": stats.requests,
            "task_tokens_in": stats.prompt_tokens,
            "task_tokens_out": stats.completion_tokens,
            "policy_tokens_in": self._prompt_tokens,
            "policy_tokens_out": self._completion_tokens,
        }
        gathered = distributed.gather((mine, self.task_model.spending.kept_used()))
        parts = [part for part, _ in gathered]
        counts = {name: float(sum(part[name] for part in parts)) for name in mine}
        self._prompt_tokens = self._completion_tokens = 0
        for name, before in zip(("policy_tokens_in", "policy_tokens_out"), self.progress.policy_tokens, strict=True):
            counts[name] += before
        self.progress.policy_tokens = (int(counts["policy_tokens_in"]), int(counts["policy_tokens_out"]))
        if self.settings.has_price:
            counts["cost"] = self.settings.task_cost(counts["task_tokens_in"], counts["task_tokens_out"])
            counts["cost"] += self.settings.policy_cost(counts["policy_tokens_in"], counts["policy_tokens_out"])
        kept = {name: sum(own[name] for _, own in gathered) for name in gathered[0][1]}
        self._share_out(counts, kept, len(parts), alone=alone)
        return counts

    def _share_out(self, counts: dict[str, float], kept: Mapping[str, float], num_ranks: int, *, alone: bool) -> None:
        """kept: paid for before a resume and not wanted again yet; planned with, but not to be spent a second time."""
        whole, before = _used(counts), _used(self.progress.counts_before)
        used = {name: whole[name] - before[name] for name in whole}
        limits = {
            "requests": self.settings.max_task_calls,
            "tokens": self.settings.max_task_tokens,
            "cost": self.settings.max_cost,
        }
        left = {name: math.inf if limit is None else limit - used[name] - kept[name] for name, limit in limits.items()}
        self.task_model.spending.allow({name: rest if alone else rest / num_ranks for name, rest in left.items()})
        requests = used["requests"]
        allowed = [limit * requests / used[name] for name, limit in limits.items() if limit is not None and used[name]]
        if not requests and self.settings.max_task_calls is not None:
            allowed = [self.settings.max_task_calls]
        retried = 1 + counts["retried_calls"] / max(1.0, counts["task_calls"])
        self.spent = int(requests)
        self.most = int(requests + (min(allowed) - requests) / retried) if allowed else None


def _used(counts: Mapping[str, float]) -> dict[str, float]:
    """What counts against the limits, by limit."""
    return {
        "requests": counts.get("task_requests", 0.0),
        "tokens": counts.get("task_tokens_in", 0.0) + counts.get("task_tokens_out", 0.0),
        "cost": counts.get("cost", 0.0),
    }

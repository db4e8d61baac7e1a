"""What a batch of rollouts says about a step, before the optimizer has seen it."""

import statistics
from collections.abc import Mapping, Sequence

import torch

from prewrite.algorithm.advantages import flat_groups
from prewrite.types import Rollout


def rollout_metrics(rollouts: Sequence[Rollout], num_generations: int) -> dict[str, float]:
    """Rewards (all and by function; mean and std over those with a verdict), flat groups, advantages, lengths.

    Shares are in [0, 1], lengths in tokens. A mean over nothing is not written down.
    """
    rewards = [rollout.reward for rollout in rollouts]
    reward_B = torch.tensor([float("nan") if reward is None else reward for reward in rewards], dtype=torch.float64)
    lengths = [len(rollout.sample.completion_ids) for rollout in rollouts]
    names = dict.fromkeys(name for rollout in rollouts for name in rollout.reward_parts)
    metrics = _spread("reward", rewards)
    for name in names:
        metrics |= _spread(f"reward/{name}", [rollout.reward_parts.get(name) for rollout in rollouts])
    return metrics | {
        "no_verdict": _share(reward is None for reward in rewards),
        "flat_groups": float(flat_groups(reward_B, num_generations).double().mean()),
        "advantage_std": statistics.pstdev(rollout.advantage for rollout in rollouts),
        "advantage_max": max(abs(rollout.advantage) for rollout in rollouts),
        "completion_length_mean": statistics.fmean(lengths),
        "completion_length_max": float(max(lengths)),
        "truncated": _share(rollout.sample.finish_reason == "length" for rollout in rollouts),
        "distinct_rewrites": len({(rollout.group, rollout.output) for rollout in rollouts}) / len(rollouts),
    }


def throughput(rollouts: Sequence[Rollout], batch_tokens: int, seconds: Mapping[str, float]) -> dict[str, float]:
    """Tokens and rewrites a second by phase, and the GPU's peak. batch_tokens: requests and completions."""
    written = sum(len(rollout.sample.completion_ids) for rollout in rollouts)
    rollout, scoring, training = (seconds.get(phase, 0.0) for phase in ("rollout", "scoring", "training"))
    return {
        "tokens_per_second/rollout": written / max(rollout, 1e-9),
        "tokens_per_second/training": batch_tokens / max(training, 1e-9),
        # Scoring begins while rewrites are still being written; its own seconds are what is left afterwards.
        "rewrites_per_second": len(rollouts) / max(rollout + scoring, 1e-9),
    } | gpu_memory_peak()


def gpu_memory_peak() -> dict[str, float]:
    """The most GPU memory held so far; nothing on a CPU."""
    return {"gpu_memory_peak_gib": torch.cuda.max_memory_allocated() / 2**30} if torch.cuda.is_available() else {}


def _spread(name: str, values: Sequence[float | None]) -> dict[str, float]:
    known = [value for value in values if value is not None]
    if not known:
        return {}
    return {f"{name}_mean": statistics.fmean(known), f"{name}_std": statistics.pstdev(known), f"{name}_max": max(known)}


def _share(flags) -> float:
    flags = list(flags)
    return sum(flags) / len(flags)

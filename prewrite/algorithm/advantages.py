"""From rewards to advantages.

Legend: B rollouts, F reward functions, G generations of one request, N groups (B = N x G, a group's rows adjacent).
NaN stands for "no verdict" throughout.
"""

import torch
from torch import Tensor

from prewrite.config.loss import Aggregation, ScaleRewards

# Rewards of a group closer together than this, relative to their size (at least 1), differ by float noise only.
FLAT_SPREAD = 1e-6


def group_advantages(
    reward_B: Tensor,
    num_generations: int,
    *,
    scale_rewards: ScaleRewards = "group",
    eps: float = 1e-4,
    leave_one_out: bool = False,
) -> Tensor:
    """How much better each rollout did than its group, as advantage_B.

        advantage_i = (reward_i - mean(group)) / (std + eps)

    std (n - 1 below) is over the rollout's group, over the whole `batch` of verdicts, or, with "none", the division
    is left out (Dr. GRPO, arXiv 2503.20783: dividing by the group's std favours requests that are nearly solved or
    nearly hopeless). Group form: DeepSeekMath, arXiv 2402.03300, section 4.1.

    leave_one_out: the baseline is the mean of the *other* verdicts of the group (RLOO, arXiv 2402.14740).

    reward_B: a rollout each; NaN = no verdict: left out of mean and std, its own advantage is 0.
    Groups are counted by position, never by text: a request drawn twice makes two groups.

    The surprise: a flat group, or one with fewer than 2 verdicts, is exactly 0 even where float noise of 1e-7 separates
    its rewards; dividing by the std would blow that noise up.

    ValueError: an infinite reward, B no multiple of num_generations, an unknown scale_rewards.
    """
    reward_NG = _groups(reward_B, num_generations)
    mean_N1, std_N1, count_N1 = _statistics(reward_NG, 1)
    centered_NG = reward_NG - mean_N1
    if scale_rewards not in ("group", "batch", "none"):
        raise ValueError(f"scale_rewards={scale_rewards!r}: group, batch or none")
    std = std_N1 if scale_rewards == "group" else _statistics(reward_NG, (0, 1))[1]
    scale = 1.0 if scale_rewards == "none" else std + eps
    if leave_one_out:
        centered_NG = centered_NG * count_N1 / (count_N1 - 1)
    teaches_nothing_NG = flat_groups(reward_B, num_generations)[:, None] | reward_NG.isnan()
    advantage_NG = (centered_NG / scale).masked_fill(teaches_nothing_NG, 0.0)
    return advantage_NG.flatten().to(_result_dtype(reward_B))


def flat_groups(reward_B: Tensor, num_generations: int) -> Tensor:
    """flat_N (bool): groups that teach nothing, because fewer than 2 rollouts have a verdict or all verdicts agree.

    Dynamic sampling (DAPO, arXiv 2503.14476, section 3.2) replaces these; for continuous rewards too.
    """
    reward_NG = _groups(reward_B, num_generations)
    verdict_NG = ~reward_NG.isnan()
    highest_N = reward_NG.masked_fill(~verdict_NG, -torch.inf).amax(1)
    lowest_N = reward_NG.masked_fill(~verdict_NG, torch.inf).amin(1)
    magnitude_N = lowest_N.abs().clamp(min=1.0)
    # Without a verdict the range is -inf, flat as well.
    return (verdict_NG.sum(1) < 2) | (highest_N - lowest_N <= FLAT_SPREAD * magnitude_N)


def combine_rewards(
    value_FB: Tensor,
    applies_FB: Tensor,
    weight_F: Tensor,
    *,
    aggregation: Aggregation = "sum_then_normalize",
    num_generations: int | None = None,
) -> Tensor:
    """One reward a rollout, reward_B, from several reward functions.

        reward_b = sum over the functions f that apply to b of weight_f x value_fb

    Two kinds of nothing are told apart: `applies_FB` False = not this function's row, skipped in the sum (value_FB is
    not read there); applies_FB True with value_FB NaN = no verdict, which makes the rollout's total NaN, since a sum
    that lacks one part cannot be held against sums that have it. No function at all that applies: NaN too.
    A function of weight 0 is only looked at (logged), so that its missing verdicts cost nothing.

    aggregation: "sum_then_normalize" sums the rewards as they are; "normalize_then_sum" first turns each function's
    rewards into advantages of their group of num_generations, so that a function with a wide range does not drown the
    others (GDPO, arXiv 2601.05242). Either way the sum still goes through `group_advantages`.
    """
    counts_FB = applies_FB & (weight_F != 0)[:, None]
    part_FB = value_FB.double()
    if aggregation == "normalize_then_sum":
        if num_generations is None:
            raise ValueError("aggregation='normalize_then_sum' needs num_generations")
        judged_FB = torch.where(counts_FB, part_FB, torch.nan)
        normalized_FB = torch.stack([group_advantages(value_B, num_generations) for value_B in judged_FB])
        part_FB = torch.where(judged_FB.isnan(), torch.nan, normalized_FB)
    elif aggregation != "sum_then_normalize":
        raise ValueError(f"aggregation={aggregation!r}: sum_then_normalize or normalize_then_sum")
    total_B = torch.where(counts_FB, weight_F[:, None] * part_FB, 0.0).sum(0)
    return torch.where(counts_FB.any(0), total_B, torch.nan).to(_result_dtype(value_FB))


def _groups(reward_B: Tensor, num_generations: int) -> Tensor:
    if reward_B.numel() % num_generations:
        raise ValueError(f"{reward_B.numel()} rewards are no whole number of groups of {num_generations}")
    if reward_B.isinf().any():
        raise ValueError("an infinite reward has no advantage; rewards are finite, or NaN for no verdict")
    return reward_B.double().view(-1, num_generations)


def _statistics(reward_NG: Tensor, dim: int | tuple[int, int]) -> tuple[Tensor, Tensor, Tensor]:
    """(mean, std, count) of the verdicts along dim, which is kept; mean or std are NaN where verdicts are too few."""
    count = (~reward_NG.isnan()).sum(dim, keepdim=True)
    mean = reward_NG.nansum(dim, keepdim=True) / count
    std = ((reward_NG - mean).square().nansum(dim, keepdim=True) / (count - 1)).sqrt()
    return mean, std, count


def _result_dtype(given: Tensor) -> torch.dtype:
    return torch.float64 if given.dtype == torch.float64 else torch.float32

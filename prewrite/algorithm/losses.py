"""The policy loss: GRPO and its family, as one pure function made of the terms of its formula.

Legend: B rollouts of a micro-batch, T target positions; a trailing 1 is a dimension of size 1.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from prewrite.algorithm.metrics import LossMetrics

LossType = Literal["grpo", "dapo", "bnpo", "dr_grpo", "cispo", "sapo"]
Level = Literal["token", "sequence"]
KLEstimator = Literal["k1", "k2", "k3"]
SamplerCorrection = Literal["none", "token_truncate", "token_mask", "sequence_truncate", "sequence_mask"]

LOSS_TYPES = ("grpo", "dapo", "bnpo", "dr_grpo", "cispo", "sapo")
# exp(20) = 4.9e8 is far outside every clip, and small enough that sums and products of it stay finite in float32.
LARGEST_LOG_RATIO = 20.0


@dataclass(frozen=True)
class PolicyLoss:
    """value: a scalar with a graph, this micro-batch's share of the step's loss. metrics: detached."""

    value: Tensor
    metrics: LossMetrics


def policy_loss(
    logprob_BT: Tensor,
    old_logprob_BT: Tensor | None,
    advantage_B: Tensor,
    mask_BT: Tensor,
    *,
    num_tokens: int,
    num_sequences: int,
    max_completion_length: int,
    num_micro_batches: int = 1,
    loss_type: LossType = "dapo",
    epsilon: float = 0.2,
    epsilon_high: float = 0.28,
    delta: float | None = None,
    cispo_cap: float = 5.0,
    sapo_temperature_pos: float = 1.0,
    sapo_temperature_neg: float = 1.05,
    importance_sampling_level: Level = "token",
    beta: float = 0.0,
    kl_estimator: KLEstimator = "k3",
    ref_logprob_BT: Tensor | None = None,
    sampler_correction: SamplerCorrection = "none",
    sampler_bounds: tuple[float, float] = (0.0, 2.0),
    sampler_logprob_BT: Tensor | None = None,
    entropy_BT: Tensor | None = None,
    entropy_threshold: float | None = None,
    entropy_coef: float = 0.0,
) -> PolicyLoss:
    """One micro-batch's share of the loss of an optimizer step.

        token_loss = -surrogate(ratio, advantage) * sampler_weight * (entropy >= entropy_threshold)
                     + beta * kl - entropy_coef * entropy
        ratio      = exp(logprob - old_logprob), of the token, or of the sequence (the mean log-ratio's exp; GSPO)

    and token_loss becomes one number by `loss_type`; a sum is over this micro-batch, a denominator over what it says:

        grpo     sum over rows of (sum over tokens / tokens of the row) / num_sequences      arXiv 2402.03300
        sapo     the same, with the soft gate in place of the clip                            arXiv 2511.20347
        dapo     sum over tokens / num_tokens                                                 arXiv 2503.14476
        cispo    the same, with the capped, detached ratio in place of the clip               arXiv 2506.13585
        dr_grpo  sum over tokens / (num_sequences * max_completion_length)                    arXiv 2503.20783
        bnpo     sum over tokens / active tokens of this micro-batch / num_micro_batches

    num_tokens, num_sequences: active tokens, and rows with at least one, of the whole optimizer step, over all
    micro-batches and ranks. So the shares *sum* to the step's loss, however it is cut, and nothing may average them
    again. bnpo alone depends on the cut; num_micro_batches (of the step, over all ranks, with an active token) is
    read by it alone.

    The surprise: in a first pass over fresh rollouts every ratio is 1 and grpo's value is about 0, since advantages
    of a group sum to 0. The gradient is not 0: it is REINFORCE's, advantage * grad logprob.

    Args, the tensors float32 or float64; what stands outside the mask is never read, NaN included:
        logprob_BT: of the chosen tokens under the policy now, with gradient.
        old_logprob_BT: under the policy at rollout, without gradient; None = the policy has not moved since, ratio 1.
        advantage_B: from `group_advantages`; 0 for rollouts without verdict, whose rows are masked.
        mask_BT: bool, completion tokens up to and including the first EOS.
        epsilon, epsilon_high: the ratio is clipped to [1 - epsilon, 1 + epsilon_high]; DAPO takes the upper one wider.
        delta: bounds the ratio from above where the advantage is negative (dual clip, arXiv 1912.09729).
        cispo_cap: upper bound of the detached ratio. sapo_temperature_pos, _neg: sharpness of the gate by A's sign.
        beta, kl_estimator, ref_logprob_BT: see `kl_divergence`. The KL term is not weighted by the sampler correction.
        sampler_correction, sampler_bounds, sampler_logprob_BT: see `sampler_weight`.
        entropy_BT: nats; with gradient where entropy_coef is not 0.
        entropy_threshold: only tokens with at least this entropy carry the surrogate (arXiv 2506.01939); a number of
            the whole step (`entropy_quantile`), so that it does not depend on the cut. Denominators count all tokens.

    ValueError: settings that contradict one another (see `_refuse_contradictions`).
    """
    _refuse_contradictions(
        loss_type, epsilon, epsilon_high, delta, importance_sampling_level, sampler_correction, sampler_bounds
    )
    assert logprob_BT.dtype in (torch.float32, torch.float64), "half precision rounds away the ratio: pass float32"
    mask_BT = mask_BT.bool()
    logprob_BT = _masked(logprob_BT, mask_BT)
    old_logprob_BT = logprob_BT.detach() if old_logprob_BT is None else _masked(old_logprob_BT, mask_BT)
    advantage_B1 = advantage_B.to(logprob_BT.dtype)[:, None]

    ratio_BT = importance_ratio(logprob_BT - old_logprob_BT, mask_BT, importance_sampling_level)
    if loss_type == "cispo":
        token_loss_BT = -capped_surrogate(ratio_BT, logprob_BT, advantage_B1, cispo_cap)
        is_low_BT, is_high_BT = torch.zeros_like(mask_BT), ratio_BT > cispo_cap
    elif loss_type == "sapo":
        token_loss_BT = -gated_surrogate(ratio_BT, advantage_B1, sapo_temperature_pos, sapo_temperature_neg)
        is_low_BT = is_high_BT = torch.zeros_like(mask_BT)
    else:
        token_loss_BT = -clipped_surrogate(ratio_BT, advantage_B1, epsilon, epsilon_high, delta)
        is_low_BT = (advantage_B1 < 0) & (ratio_BT < 1 - epsilon)
        is_high_BT = (advantage_B1 > 0) & (ratio_BT > 1 + epsilon_high)
    token_metrics = {"clip_low": is_low_BT, "clip_high": is_high_BT, "ratio_mean": ratio_BT}
    extremes = {"ratio_max": ratio_BT}

    if sampler_correction != "none":
        assert sampler_logprob_BT is not None, f"sampler_correction={sampler_correction} needs sampler_logprob_BT"
    if sampler_logprob_BT is not None:
        gap_BT = old_logprob_BT - _masked(sampler_logprob_BT, mask_BT)
        token_metrics["sampler_gap"] = gap_BT.abs()
        extremes["sampler_gap_max"] = gap_BT.abs()
        if sampler_correction != "none":
            weight_BT, is_cut_BT = sampler_weight(gap_BT, sampler_correction, sampler_bounds)
            token_loss_BT = token_loss_BT * weight_BT
            token_metrics |= {"sampler_weight_mean": weight_BT, "sampler_cut": is_cut_BT}
            extremes["sampler_weight_min"] = -weight_BT
    if entropy_BT is not None:
        token_metrics["entropy"] = entropy_BT
    if entropy_threshold is not None:
        assert entropy_BT is not None, "entropy_threshold needs entropy_BT"
        token_loss_BT = token_loss_BT * (entropy_BT >= entropy_threshold)
    if beta != 0:
        assert ref_logprob_BT is not None, f"beta={beta} needs ref_logprob_BT"
        kl_BT = kl_divergence(logprob_BT, ref_logprob_BT, kl_estimator)
        token_loss_BT = token_loss_BT + beta * kl_BT
        token_metrics["kl"] = kl_BT
    if entropy_coef != 0:
        assert entropy_BT is not None, "entropy_coef needs entropy_BT"
        token_loss_BT = token_loss_BT - entropy_coef * entropy_BT

    value = aggregate(
        token_loss_BT, mask_BT, loss_type, num_tokens, num_sequences, max_completion_length, num_micro_batches
    )
    return PolicyLoss(value, _metrics(value, mask_BT, token_metrics, extremes))


def importance_ratio(log_ratio_BT: Tensor, mask_BT: Tensor, level: Level) -> Tensor:
    """exp(log_ratio) a token, or GSPO's exp(mean log_ratio over the row's tokens) on each token (arXiv 2507.18071)."""
    if level == "sequence":
        log_ratio_BT = _row_mean(log_ratio_BT, mask_BT).expand_as(log_ratio_BT)
    return _bounded_exp(log_ratio_BT)


def clipped_surrogate(
    ratio_BT: Tensor, advantage_B1: Tensor, epsilon: float, epsilon_high: float, delta: float | None
) -> Tensor:
    """min(ratio A, clip(ratio) A): PPO's pessimistic bound, with the ratio at most delta where A < 0."""
    clipped_BT = ratio_BT.clamp(1 - epsilon, 1 + epsilon_high)
    if delta is not None:
        ratio_BT = ratio_BT.clamp(max=delta)
    return torch.minimum(ratio_BT * advantage_B1, clipped_BT * advantage_B1)


def capped_surrogate(ratio_BT: Tensor, logprob_BT: Tensor, advantage_B1: Tensor, cap: float) -> Tensor:
    """CISPO: stopgrad(min(ratio, cap)) A logprob; no token loses its gradient, whatever its ratio."""
    return ratio_BT.detach().clamp(max=cap) * advantage_B1 * logprob_BT


def gated_surrogate(ratio_BT: Tensor, advantage_B1: Tensor, temperature_pos: float, temperature_neg: float) -> Tensor:
    """SAPO: 4 / tau * sigmoid(tau (ratio - 1)) A, whose slope at ratio 1 is A and fades away from it."""
    tau_B1 = torch.full_like(advantage_B1, temperature_neg).masked_fill(advantage_B1 > 0, temperature_pos)
    return 4 / tau_B1 * torch.sigmoid(tau_B1 * (ratio_BT - 1)) * advantage_B1


def sampler_weight(gap_BT: Tensor, correction: SamplerCorrection, bounds: tuple[float, float]) -> tuple[Tensor, Tensor]:
    """(weight_BT, is_cut_BT): exp(old_logprob - sampler_logprob), a constant, and where it met a bound.

    Corrects for tokens that vLLM drew from probabilities a little different from the trainer's. `token_`: each
    token's own; `sequence_`: the product over the row, where gap_BT is 0 outside the mask. `_truncate`: brought to
    the nearer bound; `_mask`: 0 outside.
    """
    if correction.startswith("sequence"):
        gap_BT = gap_BT.sum(1, keepdim=True).expand_as(gap_BT)
    weight_BT = _bounded_exp(gap_BT)
    is_cut_BT = (weight_BT < bounds[0]) | (weight_BT > bounds[1])
    if correction.endswith("mask"):
        return weight_BT.masked_fill(is_cut_BT, 0.0), is_cut_BT
    return weight_BT.clamp(*bounds), is_cut_BT


def kl_divergence(logprob_BT: Tensor, ref_logprob_BT: Tensor, estimator: KLEstimator) -> Tensor:
    """A token's estimate of KL(policy || reference), with d = ref_logprob - logprob.

    k1 = -d (unbiased, any sign), k2 = d^2 / 2 (never negative), k3 = exp(d) - d - 1 (unbiased, never negative);
    http://joschu.net/blog/kl-approx.html. As a loss term only k2 has the KL's own gradient; k1's is 0 on average,
    whatever the reference.
    """
    d_BT = ref_logprob_BT - logprob_BT
    if estimator == "k1":
        return -d_BT
    if estimator == "k2":
        return d_BT.square() / 2
    if estimator == "k3":
        # d is bounded in both terms: with the exp bounded alone the gradient would push the wrong way.
        d_BT = d_BT.clamp(max=LARGEST_LOG_RATIO)
        return torch.expm1(d_BT) - d_BT
    raise ValueError(f"kl_estimator={estimator!r}: k1, k2 or k3")


def entropy_quantile(entropy_BT: Tensor, mask_BT: Tensor, top_entropy_quantile: float) -> float:
    """The entropy that the given share of active tokens reaches or passes: 0.2 = the top fifth. No tokens: 0."""
    entropy_N = entropy_BT[mask_BT.bool()].sort(descending=True).values
    if len(entropy_N) == 0:
        return 0.0
    return float(entropy_N[max(0, round(top_entropy_quantile * len(entropy_N)) - 1)])


def aggregate(
    token_loss_BT: Tensor,
    mask_BT: Tensor,
    loss_type: LossType,
    num_tokens: int,
    num_sequences: int,
    max_completion_length: int,
    num_micro_batches: int = 1,
) -> Tensor:
    """This micro-batch's share of the step's loss; the table in `policy_loss` gives each denominator's scope."""
    token_loss_BT = _masked(token_loss_BT, mask_BT)
    if loss_type in ("grpo", "sapo"):
        return _row_mean(token_loss_BT, mask_BT).sum() / max(num_sequences, 1)
    if loss_type in ("dapo", "cispo"):
        return token_loss_BT.sum() / max(num_tokens, 1)
    if loss_type == "dr_grpo":
        return token_loss_BT.sum() / (max(num_sequences, 1) * max_completion_length)
    if loss_type == "bnpo":
        return token_loss_BT.sum() / mask_BT.sum().clamp(min=1) / max(num_micro_batches, 1)
    raise ValueError(f"loss_type={loss_type!r}: one of {', '.join(LOSS_TYPES)}")


def _refuse_contradictions(
    loss_type: str,
    epsilon: float,
    epsilon_high: float,
    delta: float | None,
    level: str,
    sampler_correction: str,
    sampler_bounds: tuple[float, float],
) -> None:
    if level not in ("token", "sequence"):
        raise ValueError(f"importance_sampling_level={level!r}: token or sequence")
    if level == "sequence" and loss_type != "grpo":
        raise ValueError(
            f"importance_sampling_level='sequence' with loss_type={loss_type!r}: a sequence's one ratio would be "
            "weighed by its length, or is not defined; GSPO is loss_type='grpo'"
        )
    if not (0 <= epsilon <= 1 and epsilon_high >= 0):
        raise ValueError(f"epsilon={epsilon}, epsilon_high={epsilon_high}: [1 - epsilon, 1 + epsilon_high] must hold 1")
    if delta is not None and loss_type in ("cispo", "sapo"):
        raise ValueError(f"delta with loss_type={loss_type!r}: there is no clip for it to bound")
    if delta is not None and delta <= 1 + epsilon_high:
        raise ValueError(f"delta={delta} must be above 1 + epsilon_high = {1 + epsilon_high}, or it undoes that clip")
    if sampler_correction not in ("none", "token_truncate", "token_mask", "sequence_truncate", "sequence_mask"):
        raise ValueError(f"sampler_correction={sampler_correction!r}: none, or token_ or sequence_ truncate or mask")
    if not 0 <= sampler_bounds[0] <= 1 <= sampler_bounds[1]:
        raise ValueError(f"sampler_bounds={sampler_bounds}: a lower bound in [0, 1] and an upper one of at least 1")


def _metrics(
    value: Tensor, mask_BT: Tensor, token_metrics: dict[str, Tensor], extremes: dict[str, Tensor]
) -> LossMetrics:
    dtype = value.dtype
    sums = {"loss": value.detach(), "tokens": mask_BT.sum().to(dtype)}
    sums |= {key: _masked(metric_BT.detach().to(dtype), mask_BT).sum() for key, metric_BT in token_metrics.items()}
    maxima = {key: metric_BT.detach().masked_fill(~mask_BT, -torch.inf).amax() for key, metric_BT in extremes.items()}
    return LossMetrics(sums, maxima)


def _masked(value_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """0 outside the mask, in the gradient too: a product with the mask would let NaN and infinity through."""
    return value_BT.masked_fill(~mask_BT, 0.0)


def _row_mean(value_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """Mean over the row's active tokens, [B, 1]; value_BT is 0 outside the mask. 0 for a row without a token."""
    return value_BT.sum(1, keepdim=True) / mask_BT.sum(1, keepdim=True).clamp(min=1)


def _bounded_exp(log_ratio_BT: Tensor) -> Tensor:
    return log_ratio_BT.clamp(max=LARGEST_LOG_RATIO).exp()

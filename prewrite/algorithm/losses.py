"""The policy loss: GRPO and its family, as one pure function made of the terms of its formula.

Legend: B rollouts of a micro-batch, T target positions; a trailing 1 is a dimension of size 1.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from prewrite.algorithm.metrics import LossMetrics
from prewrite.config.loss import KLEstimator, Level, LossSettings, SamplerCorrection
from prewrite.errors import UserError

# exp(20) = 4.9e8 is far outside every clip, and small enough that sums and products of it stay finite in float32.
LARGEST_LOG_RATIO = 20.0


@dataclass(frozen=True)
class LossTensors:
    """A micro-batch as the loss reads it: float32 or float64; what stands outside the mask is never read, NaN included.

    logprob_BT: of the chosen tokens under the policy now, with gradient.
    old_logprob_BT: under the policy at rollout, without gradient; None = the policy has not moved since, ratio 1.
    advantage_B: from `group_advantages`; 0 for rollouts without verdict, whose rows are masked.
    mask_BT: bool, completion tokens up to and including the first EOS.
    sampler_logprob_BT: under the sampler. ref_logprob_BT: under the reference, where beta is not 0.
    entropy_BT: nats; with gradient where entropy_coef is not 0.
    """

    logprob_BT: Tensor
    old_logprob_BT: Tensor | None
    advantage_B: Tensor
    mask_BT: Tensor
    sampler_logprob_BT: Tensor | None = None
    ref_logprob_BT: Tensor | None = None
    entropy_BT: Tensor | None = None

    def masked(self) -> "LossTensors":
        """The same, 0 outside the mask, with old_logprob_BT in any case."""
        mask_BT = self.mask_BT.bool()
        old_BT = self.logprob_BT.detach() if self.old_logprob_BT is None else self.old_logprob_BT
        names = ("sampler_logprob_BT", "ref_logprob_BT", "entropy_BT")
        given = {name: value for name in names if (value := getattr(self, name)) is not None}
        given |= {"logprob_BT": self.logprob_BT, "old_logprob_BT": old_BT}
        return replace(self, mask_BT=mask_BT, **{name: _masked(value, mask_BT) for name, value in given.items()})


@dataclass(frozen=True)
class StepTotals:
    """What a micro-batch cannot know of its optimizer step, which is the same in all of them, on every rank.

    num_tokens, num_sequences: active tokens, and rows with at least one.
    max_completion_length: of the run. num_micro_batches: those with an active token; bnpo alone reads it.
    entropy_threshold: only tokens with at least this entropy carry the surrogate (arXiv 2506.01939): a number of the
        whole step (`entropy_quantile`), so that it does not depend on the cut. Denominators count all tokens.
    entropy_scale: what entropy_coef is multiplied by in this step; 0 = the bonus rests.
    """

    num_tokens: int
    num_sequences: int
    max_completion_length: int
    num_micro_batches: int = 1
    entropy_threshold: float | None = None
    entropy_scale: int = 1


@dataclass(frozen=True)
class PolicyLoss:
    """value: a scalar with a graph, this micro-batch's share of the step's loss. metrics: detached."""

    value: Tensor
    metrics: LossMetrics


def policy_loss(tensors: LossTensors, settings: LossSettings, step: StepTotals) -> PolicyLoss:
    """One micro-batch's share of the loss of an optimizer step; every name below is one of the three records'.

        token_loss = -surrogate(ratio, advantage) * sampler_weight * (entropy >= entropy_threshold)
                     + beta * kl - entropy_scale * entropy_coef * entropy
        ratio      = exp(logprob - old_logprob), of the token, or of the sequence (the mean log-ratio's exp; GSPO)

    and token_loss becomes one number by `loss_type`; a sum is over this micro-batch, a denominator over what it says:

        grpo     sum over rows of (sum over tokens / tokens of the row) / num_sequences      arXiv 2402.03300
        sapo     the same, with the soft gate in place of the clip                            arXiv 2511.20347
        dapo     sum over tokens / num_tokens                                                 arXiv 2503.14476
        cispo    the same, with the capped, detached ratio in place of the clip               arXiv 2506.13585
        dr_grpo  sum over tokens / (num_sequences * max_completion_length)                    arXiv 2503.20783
        bnpo     sum over tokens / active tokens of this micro-batch / num_micro_batches
        a function of the user's own gives -surrogate (`own_token_loss`); sum over tokens / num_tokens, as dapo

    num_tokens and num_sequences are of the whole optimizer step, over all micro-batches and ranks. So the shares *sum*
    to the step's loss, however it is cut, and nothing may average them again. bnpo alone depends on the cut.
    The KL term is not weighted by the sampler correction. delta: dual clip, arXiv 1912.09729.

    The surprise: in a first pass over fresh rollouts every ratio is 1 and grpo's value is about 0, since advantages
    of a group sum to 0. The gradient is not 0: it is REINFORCE's, advantage * grad logprob.

    UserError: what a loss of the user's own does wrong.
    """
    assert tensors.logprob_BT.dtype in (torch.float32, torch.float64), "half precision rounds the ratio: pass float32"
    tensors = tensors.masked()
    logprob_BT, old_logprob_BT, mask_BT = tensors.logprob_BT, tensors.old_logprob_BT, tensors.mask_BT
    assert old_logprob_BT is not None
    advantage_B1 = tensors.advantage_B.to(logprob_BT.dtype)[:, None]
    loss_type, entropy_BT = settings.loss_type, tensors.entropy_BT

    ratio_BT = importance_ratio(logprob_BT - old_logprob_BT, mask_BT, settings.importance_sampling_level)
    is_low_BT = is_high_BT = torch.zeros_like(mask_BT)
    if own_loss := settings.own_loss():
        token_loss_BT = own_token_loss(own_loss, tensors, settings)
    elif loss_type == "cispo":
        token_loss_BT = -capped_surrogate(ratio_BT, logprob_BT, advantage_B1, settings.cispo_cap)
        is_high_BT = ratio_BT > settings.cispo_cap
    elif loss_type == "sapo":
        temperatures = settings.sapo_temperature_pos, settings.sapo_temperature_neg
        token_loss_BT = -gated_surrogate(ratio_BT, advantage_B1, *temperatures)
    else:
        epsilon, epsilon_high = settings.epsilon, settings.epsilon_high
        token_loss_BT = -clipped_surrogate(ratio_BT, advantage_B1, epsilon, epsilon_high, settings.delta)
        is_low_BT = (advantage_B1 < 0) & (ratio_BT < 1 - epsilon)
        is_high_BT = (advantage_B1 > 0) & (ratio_BT > 1 + epsilon_high)
    token_metrics = {"clip_low": is_low_BT, "clip_high": is_high_BT, "ratio_mean": ratio_BT}
    extremes = {"ratio_max": ratio_BT}

    if tensors.sampler_logprob_BT is None:
        assert settings.sampler_correction == "none", "sampler_correction needs sampler_logprob_BT"
    else:
        gap_BT = old_logprob_BT - tensors.sampler_logprob_BT
        token_metrics["sampler_gap"] = gap_BT.abs()
        extremes["sampler_gap_max"] = gap_BT.abs()
        if settings.sampler_correction != "none":
            weight_BT, is_cut_BT = sampler_weight(gap_BT, settings.sampler_correction, settings.sampler_bounds)
            token_loss_BT = token_loss_BT * weight_BT
            token_metrics |= {"sampler_weight_mean": weight_BT, "sampler_cut": is_cut_BT}
            extremes["sampler_weight_min"] = -weight_BT
    if entropy_BT is not None:
        token_metrics["entropy"] = entropy_BT
    if step.entropy_threshold is not None:
        assert entropy_BT is not None, "entropy_threshold needs entropy_BT"
        token_loss_BT = token_loss_BT * (entropy_BT >= step.entropy_threshold)
    if settings.beta != 0:
        assert tensors.ref_logprob_BT is not None, "beta needs ref_logprob_BT"
        kl_BT = kl_divergence(logprob_BT, tensors.ref_logprob_BT, settings.kl_estimator)
        token_loss_BT = token_loss_BT + settings.beta * kl_BT
        token_metrics["kl"] = kl_BT
    if settings.entropy_coef * step.entropy_scale != 0:
        assert entropy_BT is not None, "entropy_coef needs entropy_BT"
        token_loss_BT = token_loss_BT - step.entropy_scale * settings.entropy_coef * entropy_BT

    value = aggregate(token_loss_BT, mask_BT, loss_type, step)
    return PolicyLoss(value, _metrics(value, mask_BT, token_metrics, extremes))


def imitation_loss(logprob_BT: Tensor, entropy_BT: Tensor, mask_BT: Tensor, step: StepTotals) -> PolicyLoss:
    """One micro-batch's share of SFT's loss: the sum of -logprob over its active tokens / num_tokens.

    num_tokens is of the whole optimizer step, as in `policy_loss`: every token of a step weighs the same, and the
    shares sum to the mean. The gradient is dapo's, of a first pass in which every advantage is 1.
    """
    value = aggregate(-logprob_BT, mask_BT, "dapo", step)
    return PolicyLoss(value, _metrics(value, mask_BT, {"entropy": entropy_BT}, {}))


def own_token_loss(function: Callable[..., Tensor], tensors: LossTensors, settings: LossSettings) -> Tensor:
    """token_loss_BT of a loss of the user's own: function(tensors, settings), in the place of -surrogate.

    It gets what `LossTensors.masked` gives, and returns a loss for every token, [B, T], made from logprob_BT, so that
    it has a gradient. What it returns outside the mask is not read. Rows may have no active token, all of them in an
    empty micro-batch. Sampler correction, entropy threshold, KL term and entropy bonus join it as the settings say.
    UserError: it raised, or returned something else.
    """
    token_loss_BT = function(tensors, settings)
    shape = tuple(tensors.logprob_BT.shape)
    got = tuple(token_loss_BT.shape) if isinstance(token_loss_BT, Tensor) else type(token_loss_BT).__name__
    if got != shape:
        raise UserError(f"loss {settings.loss_type}: it returned {got}; a loss for every token is a tensor {shape}.")
    if tensors.logprob_BT.requires_grad and not token_loss_BT.requires_grad:
        raise UserError(f"loss {settings.loss_type}: what it returned has no gradient; make it from logprob_BT.")
    return token_loss_BT


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
    # d is bounded in both terms: with the exp bounded alone the gradient would push the wrong way.
    d_BT = d_BT.clamp(max=LARGEST_LOG_RATIO)
    return torch.expm1(d_BT) - d_BT


def entropy_quantile(entropy_BT: Tensor, mask_BT: Tensor, top_entropy_quantile: float) -> float:
    """The entropy that the given share of active tokens reaches or passes: 0.2 = the top fifth. No tokens: 0."""
    if len(entropy_N := entropy_BT[mask_BT.bool()].sort(descending=True).values) == 0:
        return 0.0
    return float(entropy_N[max(0, round(top_entropy_quantile * len(entropy_N)) - 1)])


def aggregate(token_loss_BT: Tensor, mask_BT: Tensor, loss_type: str, step: StepTotals) -> Tensor:
    """This micro-batch's share of the step's loss; the table in `policy_loss` gives each denominator's scope."""
    token_loss_BT = _masked(token_loss_BT, mask_BT)
    if loss_type in ("grpo", "sapo"):
        return _row_mean(token_loss_BT, mask_BT).sum() / max(step.num_sequences, 1)
    if loss_type == "dr_grpo":
        return token_loss_BT.sum() / (max(step.num_sequences, 1) * step.max_completion_length)
    if loss_type == "bnpo":
        return token_loss_BT.sum() / mask_BT.sum().clamp(min=1) / max(step.num_micro_batches, 1)
    return token_loss_BT.sum() / max(step.num_tokens, 1)


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

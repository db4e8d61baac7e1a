"""The loss, and what its settings may not say together."""

import difflib
from collections.abc import Callable, Iterator
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from prewrite.config.base import Count, NonNegative, Positive, Section, Share
from prewrite.plugins import own_function

LOSS_TYPES = ("grpo", "dapo", "bnpo", "dr_grpo", "cispo", "sapo")
ScaleRewards = Literal["group", "batch", "none"]
Aggregation = Literal["sum_then_normalize", "normalize_then_sum"]
Level = Literal["token", "sequence"]
KLEstimator = Literal["k1", "k2", "k3"]
SamplerCorrection = Literal["none", "token_truncate", "token_mask", "sequence_truncate", "sequence_mask"]


class LossSettings(Section):
    """From rewards to one number; the formulas are in `prewrite/algorithm`."""

    loss_type: str = "dapo"
    """grpo, dapo, bnpo, dr_grpo, cispo or sapo, or a function of your own as `package.module:function`"""
    scale_rewards: ScaleRewards = "group"
    """what an advantage is divided by: the standard deviation of its group, of the batch, or nothing"""
    leave_one_out: bool = False
    """baseline of a rollout: the mean of the others of its group (RLOO), in place of the group's mean"""
    multi_objective_aggregation: Aggregation = "sum_then_normalize"
    """several reward functions: sum their rewards as they are, or normalise each within its group first (GDPO)"""
    epsilon: Annotated[float, Field(gt=0, lt=1)] = 0.2
    """lower clip: the ratio is clipped to [1 - epsilon, 1 + epsilon_high]"""
    epsilon_high: Annotated[float, Field(gt=0)] = 0.28
    """upper clip; DAPO takes it above epsilon"""
    delta: Annotated[float, Field(gt=1)] | None = None
    """upper bound of the ratio where the advantage is negative (two-sided clipping); null = none"""
    cispo_cap: Annotated[float, Field(ge=1)] = 5.0
    """upper bound of the detached ratio; `cispo` alone reads it"""
    sapo_temperature_pos: Annotated[float, Field(gt=0)] = 1.0
    """sharpness of the soft gate where the advantage is positive; `sapo` alone reads it"""
    sapo_temperature_neg: Annotated[float, Field(gt=0)] = 1.05
    """the same where it is negative"""
    importance_sampling_level: Level = "token"
    """one ratio a token, or one a sequence (GSPO)"""
    beta: NonNegative = 0.0
    """weight of the KL divergence to the untrained policy; 0 loads no reference model"""
    kl_estimator: KLEstimator = "k3"
    """estimator of that divergence"""
    sync_ref_model: bool = False
    """move the reference towards the policy as training goes on (an exponential moving average)"""
    ref_model_mixup_alpha: Share = 0.6
    """share of the policy in the reference at each of those moves"""
    ref_model_sync_steps: Positive = 512
    """optimizer steps between two moves"""
    sampler_correction: SamplerCorrection = "token_truncate"
    """importance weight for the difference between vLLM's and the trainer's log-probs"""
    sampler_bounds: Annotated[tuple[float, float], Field(strict=False)] = (0.0, 2.0)
    """bounds of that weight"""
    mask_truncated_completions: bool = False
    """leave truncated completions out of the loss and of its normaliser"""
    entropy_coef: NonNegative = 0.0
    """weight of the entropy bonus; with entropy_target, what the weight changes by"""
    entropy_target: NonNegative | None = None
    """nats a token: the bonus rests where rollouts have more, and grows with each batch of less; null = it stays"""
    top_entropy_quantile: Share = 1.0
    """only this share of a step's tokens, those with the highest entropy, carry the surrogate"""
    dynamic_sampling_refills: Count = 0
    """times that groups without spread are replaced by fresh ones (DAPO); 0 = they stay and teach nothing"""

    @field_validator("loss_type")
    @classmethod
    def _known_or_own(cls, name: str) -> str:
        module, colon, function = name.partition(":")
        if name not in LOSS_TYPES and not (colon and module and function):
            near = difflib.get_close_matches(name, LOSS_TYPES, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            known = ", ".join(LOSS_TYPES)
            raise ValueError(f"{name!r} is no loss: one of {known}, or your own as package.module:function{hint}")
        return name

    def own_loss(self) -> Callable[..., Any] | None:
        """The user's own function, None for one of `LOSS_TYPES`. UserError where it is not there."""
        return own_function("loss", self.loss_type, 2) if ":" in self.loss_type else None

    def faults(self) -> Iterator[str]:
        if self.importance_sampling_level == "sequence" and self.loss_type != "grpo":
            why = "a sequence's one ratio would be weighed by its length, or is not defined"
            yield f"importance_sampling_level=sequence with loss_type={self.loss_type}: {why}; GSPO is loss_type=grpo"
        if self.delta is not None and self.loss_type in ("cispo", "sapo"):
            yield f"delta with loss_type={self.loss_type}: there is no clip for it to bound; leave it out"
        elif self.delta is not None and self.delta <= (upper := 1 + self.epsilon_high):
            yield f"delta={self.delta} undoes the upper clip; it must be above 1 + epsilon_high = {upper}"
        low, high = self.sampler_bounds
        if not 0 <= low <= 1 <= high:
            yield f"sampler_bounds={[low, high]}: the weight 1 must lie between them, and the lower be at least 0"
        if self.sync_ref_model and self.beta == 0:
            yield "sync_ref_model without a reference: beta is 0, so none is loaded; give beta or leave it out"
        if self.entropy_target is not None and self.entropy_coef == 0:
            yield "entropy_target without an entropy bonus: entropy_coef is 0; give it or leave the target out"

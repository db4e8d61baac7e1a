"""The optimizer, the size of a step, and the length of a run."""

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from prewrite.config.base import Count, NonNegative, Positive, Section


class TrainingSettings(Section):
    """The optimizer and the size of a step."""

    max_steps: Count | None = None
    """optimizer steps of the run, shared out over its stages; or give one of the next two. 0 = no training, a search
    among the untrained policy's rewrites"""
    num_stage_steps: Count | None = None
    """optimizer steps of each stage; in place of max_steps"""
    num_train_epochs: Annotated[float, Field(gt=0, le=1e9)] | None = None
    """passes over the instruction rows of each stage, in SFT over its rows; in place of max_steps"""
    per_device_train_batch_size: Positive = 8
    """rollouts, in SFT rows, of one forward and backward (micro-batch) on one device"""
    gradient_accumulation_steps: Positive = 1
    """micro-batches of an optimizer step on each device"""
    steps_per_generation: Positive | None = None
    """micro-batches of one rollout batch on each device, a multiple of gradient_accumulation_steps; null = the same"""
    num_iterations: Positive = 1
    """mu, passes over one rollout batch"""
    max_tokens_per_micro_batch: Positive | None = None
    """cut micro-batches by tokens (padding too, where it is computed; a shared request once); null = by rollouts"""
    learning_rate: Annotated[float, Field(gt=0)] = 1e-6
    """peak learning rate of AdamW"""
    lr_scheduler_type: Literal["constant", "linear", "cosine"] = "constant"
    """after the warm-up: constant, or down to the floor, min_lr_rate, at the last step"""
    min_lr_rate: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """the floor of linear and cosine, as a share of learning_rate"""
    warmup_steps: Count = 0
    """steps of linear warm-up from 0"""
    weight_decay: NonNegative = 0.0
    """of AdamW"""
    optim: Literal["adamw_torch_fused", "adamw_8bit"] = "adamw_torch_fused"
    """AdamW; adamw_8bit holds its moments in 8 bits, 6 bytes a weight less (requirements-qlora.txt; docs/gpus.md)"""
    adam_beta1: Annotated[float, Field(ge=0, lt=1)] = 0.9
    """of AdamW"""
    adam_beta2: Annotated[float, Field(ge=0, lt=1)] = 0.99
    """of AdamW"""
    max_grad_norm: Annotated[float, Field(gt=0)] = 1.0
    """gradients are scaled down to this global norm"""
    logprob_chunk_tokens: Positive = 2048
    """tokens whose logits are held at once"""
    max_sampler_gap: Annotated[float, Field(gt=0)] = 0.5
    """the run stops where mean |l_old - l_sampler| passes this and 5 times its running median: weights went stale"""
    ddp_timeout: Positive = 1800
    """seconds that a rank waits for the others before the run ends, where no launcher sees that one is gone"""
    save_steps: Count = 0
    """a checkpoint every so many steps, and after the last; 0 = only the last"""
    save_total_limit: Positive | None = None
    """checkpoints kept: the newest, and in place of the oldest of them the one with the best look; null = all"""
    logging_steps: Positive = 1
    """a console line every so many steps; the journal has every step"""
    early_stopping_patience: Positive | None = None
    """looks (`selection.eval_steps`) running without a gain of the held-out estimate that end training; null = never"""
    early_stopping_threshold: NonNegative = 0.0
    """what a look has to gain over the best one so far"""
    callbacks: list[str] = []
    """classes of your own, as `package.module:Class`, that hear of steps, saves and the end (docs/callbacks.md)"""
    num_completions_to_print: Count = 0
    """rewrites of each rollout batch on the console, from the best to the worst; the journal has all"""

    @property
    def takes_steps(self) -> bool:
        """Whether anything is trained; without a step a run searches among the policy's rewrites as it is."""
        return 0 not in (self.max_steps, self.num_stage_steps)

    def faults(self) -> Iterator[str]:
        if [self.max_steps, self.num_stage_steps, self.num_train_epochs].count(None) != 2:
            yield "give `max_steps`, `num_stage_steps` or `num_train_epochs`: one of the three"
        if self.min_lr_rate and self.lr_scheduler_type == "constant":
            yield "min_lr_rate with lr_scheduler_type=constant: nothing falls to a floor; take cosine or linear"
        if (self.steps_per_generation or 0) % self.gradient_accumulation_steps:
            given = f"steps_per_generation={self.steps_per_generation}"
            rule = f"no multiple of gradient_accumulation_steps={self.gradient_accumulation_steps}"
            yield f"{given} is {rule}: a rollout batch must make whole optimizer steps"

"""A whole run: its sections, and what only the sections together can get wrong."""

from collections.abc import Iterator
from typing import Any, Literal

from pydantic import BaseModel, model_validator

from prewrite.config.base import Count, Positive, Section
from prewrite.config.budget import BudgetSettings
from prewrite.config.data import CustomTaskSettings, DataSettings
from prewrite.config.evaluation import EvaluationSettings
from prewrite.config.loss import LossSettings
from prewrite.config.objective import refused_settings, sft_faults
from prewrite.config.policy import LoraSettings, PolicySettings
from prewrite.config.reward import RewardSettings
from prewrite.config.rollout import RolloutSettings
from prewrite.config.selection import SelectionSettings
from prewrite.config.sft import SFTSettings
from prewrite.config.stages import StageSettings
from prewrite.config.task_model import TaskModelSettings
from prewrite.config.tracking import TrackingSettings
from prewrite.config.training import TrainingSettings


class Config(Section):
    """A run: where it is written, and the sections."""

    run_name: str = "run"
    """folder of the run inside output_dir"""
    output_dir: str = "runs"
    """folder of all runs"""
    seed: Count = 1
    """of data order, examples, dev split and sampling"""
    method: Literal["grpo", "sft"] = "grpo"
    """how the policy learns: from rewards of what it writes, or by imitating rows (docs/sft.md)"""
    objective: Literal["rewrite", "solve"] = "rewrite"
    """what is trained: rewriting instructions for the task model, or solving problems (docs/solving.md)"""
    policy: PolicySettings
    data: DataSettings
    custom_tasks: list[CustomTaskSettings] = []
    """tasks of your own"""
    rollout: RolloutSettings = RolloutSettings()
    reward: RewardSettings = RewardSettings()
    task_model: TaskModelSettings
    loss: LossSettings = LossSettings()
    training: TrainingSettings
    sft: SFTSettings = SFTSettings()
    selection: SelectionSettings = SelectionSettings()
    budget: BudgetSettings = BudgetSettings()
    evaluation: EvaluationSettings = EvaluationSettings()
    tracking: TrackingSettings = TrackingSettings()
    num_stages: Positive = 1
    """stages of the same, each of which starts from the best instructions of the one before; or give stages"""
    stages: list[StageSettings] = []
    """one entry a stage, of the settings in which it differs; `{}` = none"""
    reset_model: bool = False
    """every stage but the first begins with the base model: weights, optimizer and schedule"""

    @model_validator(mode="before")
    @classmethod
    def _without_task_model(cls, data: Any) -> Any:
        """Solving and SFT ask no task model, so its section may be left out."""
        asks_none = isinstance(data, dict) and (data.get("objective") == "solve" or data.get("method") == "sft")
        return {"task_model": {"model": ""}, **data} if asks_none else data

    @property
    def asks_task_model(self) -> bool:
        """Whether a run needs a task model at all."""
        return self.method == "grpo" and self.objective == "rewrite"

    def faults(self) -> Iterator[str]:
        yield from sft_faults(self) if self.method == "sft" else refused_settings(self.objective, self)
        rollout, correction = self.rollout, self.loss.sampler_correction
        cuts = {"top_p": rollout.top_p < 1, "top_k": rollout.top_k > 0, "min_p": rollout.min_p > 0}
        cut = [name for name, is_on in cuts.items() if is_on]
        if correction != "none" and cut:
            yield (
                f"{', '.join(cut)} with sampler_correction={correction}: the sampler's log-probs are then those of the "
                "cut distribution, and the correction is biased; sample from the whole distribution (top_p 1, "
                "top_k -1, min_p 0) or set loss.sampler_correction=none"
            )
        if correction == "none" and rollout.partial_rollouts:
            yield (
                "partial_rollouts with sampler_correction=none: an answer that goes on after a push was sampled from "
                "two policies, which the correction alone makes up for; take token_truncate, or leave partial_rollouts "
                "out"
            )
        if self.loss.loss_type == "bnpo" and self.training.max_tokens_per_micro_batch:
            why = "it divides by the tokens of each micro-batch, so that packing would change the loss"
            yield f"loss_type=bnpo with max_tokens_per_micro_batch: {why}; use dapo"
        if self.asks_task_model and not self.task_model.model.strip():
            yield "task_model.model is empty; give the name that the endpoint serves, or a folder or hub name"
        if self.asks_task_model and not self.training.takes_steps and not self.budget.has_limit:
            yield "no steps: that searches among as many untrained rewrites as calls allow: give budget.max_task_calls"
        if self.asks_task_model and not self.training.takes_steps and self.selection.race_share == 0:
            yield (
                "no steps with selection.race_share=0: nothing is trained and nothing is raced, so that nothing is "
                "found; give steps, or leave race_share out"
            )
        if self.training.early_stopping_patience is not None and not self.selection.eval_steps:
            yield "early_stopping_patience counts looks, and selection.eval_steps is 0: give eval_steps"
        if self.policy.offload_optimizer and self.policy.zero_stage == 1:
            yield (
                "offload_optimizer with zero_stage=1: gradients would wait on the GPU for the step's end, and take "
                "what optim=adamw_8bit saves without slowing it down; leave zero_stage null"
            )
        if self.policy.lora and self.loss.sync_ref_model:
            yield "sync_ref_model with policy.lora: the reference, the model with its adapter off, stays; leave it out"
        if self.stages and self.num_stages > 1:
            yield "num_stages is for stages of the same: leave it out, or leave `stages` out"
        if self.reset_model and len(self.stages) < 2 and self.num_stages < 2:
            yield "reset_model with one stage resets nothing: give num_stages or `stages`"
        name = self.run_name
        if "/" in name or name.strip() in ("", ".", "..") or not name.isprintable():
            yield (
                f"run_name={self.run_name!r} is not the name of a folder: give one name, as first_try, without / and "
                "line breaks; the folder that it lies in is output_dir"
            )

    def updates_per_generation(self) -> int:
        """Optimizer steps that share one rollout batch, each on its own part of it."""
        accumulation = self.training.gradient_accumulation_steps
        return (self.training.steps_per_generation or accumulation) // accumulation

    def rollouts_per_step(self, world_size: int) -> int:
        """Rollouts of one optimizer step over all ranks."""
        return self.training.per_device_train_batch_size * self.training.gradient_accumulation_steps * world_size

    def rollouts_per_generation(self, world_size: int) -> int:
        """Rollouts of one rollout batch over all ranks."""
        return self.rollouts_per_step(world_size) * self.updates_per_generation()

    def groups_per_batch(self, world_size: int) -> int:
        """Groups of one rollout batch over all ranks; in SFT the rows of a step."""
        if self.method == "sft":
            return self.rollouts_per_step(world_size)
        return self.rollouts_per_generation(world_size) // self.rollout.num_generations


def sections() -> Iterator[tuple[str, type[BaseModel]]]:
    """("", Config) for the top level, then each section; `custom_tasks` is a list and can't be overridden by key."""
    yield "", Config
    for name, info in Config.model_fields.items():
        if isinstance(info.annotation, type) and issubclass(info.annotation, BaseModel):
            yield name, info.annotation
        if name == "policy":
            yield "policy.lora", LoraSettings

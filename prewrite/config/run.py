"""A whole run: its sections, and what only the sections together can get wrong."""

from collections.abc import Iterator

from pydantic import BaseModel

from prewrite.config.base import Count, Section
from prewrite.config.budget import BudgetSettings
from prewrite.config.data import CustomTaskSettings, DataSettings
from prewrite.config.evaluation import EvaluationSettings
from prewrite.config.loss import LossSettings
from prewrite.config.policy import PolicySettings
from prewrite.config.reward import RewardSettings
from prewrite.config.rollout import RolloutSettings
from prewrite.config.selection import SelectionSettings
from prewrite.config.task_model import TaskModelSettings
from prewrite.config.training import TrainingSettings


class Config(Section):
    """A run: where it is written, and the sections."""

    run_name: str = "run"
    """folder of the run inside output_dir"""
    output_dir: str = "runs"
    """folder of all runs"""
    seed: Count = 1
    """of data order, examples, dev split and sampling"""
    policy: PolicySettings
    data: DataSettings
    custom_tasks: list[CustomTaskSettings] = []
    """tasks of your own"""
    rollout: RolloutSettings = RolloutSettings()
    reward: RewardSettings = RewardSettings()
    task_model: TaskModelSettings
    loss: LossSettings = LossSettings()
    training: TrainingSettings
    selection: SelectionSettings = SelectionSettings()
    budget: BudgetSettings = BudgetSettings()
    evaluation: EvaluationSettings = EvaluationSettings()

    def faults(self) -> Iterator[str]:
        """What only the sections together can get wrong."""
        rollout, correction = self.rollout, self.loss.sampler_correction
        cuts = {"top_p": rollout.top_p < 1, "top_k": rollout.top_k > 0, "min_p": rollout.min_p > 0}
        cut = [name for name, is_on in cuts.items() if is_on]
        if correction != "none" and cut:
            yield (
                f"{', '.join(cut)} with sampler_correction={correction}: the sampler's log-probs are then those of the "
                "cut distribution, and the correction is biased; sample from the whole distribution (top_p 1, "
                "top_k -1, min_p 0) or set loss.sampler_correction=none"
            )
        if self.loss.loss_type == "bnpo" and self.training.max_tokens_per_micro_batch:
            yield (
                "loss_type=bnpo with max_tokens_per_micro_batch: bnpo divides by the tokens of each micro-batch, so "
                "that packing by length would change the loss; use dapo"
            )
        if self.training.max_steps == 0 and self.budget.max_task_calls is None:
            yield "max_steps=0 searches among as many untrained rewrites as calls allow: give budget.max_task_calls"
        if self.policy.offload_optimizer and self.policy.zero_stage == 1:
            yield "offload_optimizer with zero_stage=1: only zero_stage=3 offloads; leave zero_stage null"
        name = self.run_name
        if "/" in name or name.strip() in ("", ".", "..") or not name.isprintable():
            yield f"run_name={self.run_name!r} is not the name of a folder"

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


def sections() -> Iterator[tuple[str, type[BaseModel]]]:
    """("", Config) for the top level, then each section; `custom_tasks` is a list and can't be overridden by key."""
    yield "", Config
    for name, info in Config.model_fields.items():
        if isinstance(info.annotation, type) and issubclass(info.annotation, BaseModel):
            yield name, info.annotation

"""What a setting may be, and what settings may not say together, each rule with its reason.

The settings are in `prewrite/config.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated, Literal, TypeVar
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field

if TYPE_CHECKING:
    from prewrite.config import Config, DataSettings, LossSettings, RewardSettings, TaskModelSettings, TrainingSettings

S = TypeVar("S")
Positive = Annotated[int, Field(ge=1)]
Count = Annotated[int, Field(ge=0)]
Share = Annotated[float, Field(gt=0, le=1)]
NonNegative = Annotated[float, Field(ge=0)]
Word = Annotated[str, Field(min_length=1)]
RequestField = Literal["temperature", "top_p", "max_tokens", "presence_penalty", "frequency_penalty", "n", "seed"]


class Section(BaseModel):
    """Unknown keys and wrong types are refused ("false" is no bool, "1e-6" no number)."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        frozen=True,
        use_attribute_docstrings=True,
        allow_inf_nan=False,
        hide_input_in_errors=True,
    )


def check(settings: S, rule: Callable[[S], Iterator[str]]) -> S:
    """The settings themselves. ValueError with every fault that the rule finds."""
    faults = list(rule(settings))
    if faults:
        raise ValueError("; ".join(faults))
    return settings


def data_faults(data: DataSettings) -> Iterator[str]:
    """One source of instructions."""
    if bool(data.tasks) == bool(data.instructions_file):
        yield "give `tasks` (names) or `instructions_file` (a path): one of the two"
    if data.instructions_file and data.instruction:
        yield "`instruction` goes with `tasks`; `instructions_file` brings its own instructions"
    if data.instruction is not None and not data.instruction.strip():
        yield "`instruction` is empty; write one, or leave it out for each task's default one"
    if len(set(data.tasks)) < len(data.tasks):
        yield f"`tasks` names one twice: {', '.join(data.tasks)}"


def reward_faults(reward: RewardSettings) -> Iterator[str]:
    """Weights and parameters belong to functions that are named."""
    if not reward.reward_funcs:
        yield "`reward_funcs` is empty; name at least one"
    if reward.reward_weights is not None and len(reward.reward_weights) != len(reward.reward_funcs):
        yield f"{len(reward.reward_weights)} `reward_weights` for {len(reward.reward_funcs)} `reward_funcs`"
    if reward.reward_weights is not None and not any(reward.reward_weights):
        yield "every one of `reward_weights` is 0: nothing could be learned"
    if len(set(reward.reward_funcs)) < len(reward.reward_funcs):
        yield f"`reward_funcs` names one twice: {', '.join(reward.reward_funcs)}; a weight says how much it counts"
    unknown = set(reward.reward_kwargs) - set(reward.reward_funcs)
    if unknown:
        yield f"`reward_kwargs` names {sorted(unknown)}, not among `reward_funcs`"


def task_model_faults(task_model: TaskModelSettings) -> Iterator[str]:
    """Secrets stay out of a config: they are written into the run folder. So the values are not repeated here."""
    url = urlsplit(task_model.base_url or "")
    if "@" in (task_model.base_url or "") or url.query:
        yield "`base_url` holds a user name, a password or a query: give the plain address, the key by `api_key_env`"
    name = task_model.api_key_env
    if name is not None and not (name.isidentifier() and name.isupper()):  # hf_... is an identifier too
        yield "`api_key_env` is not the name of an environment variable: name the variable, in capitals, never the key"
    if task_model.gpus is not None and task_model.base_url is not None:
        yield "`gpus` are those of a server started here, and `base_url` names one that runs: leave one of them null"
    if task_model.gpus is not None and len(set(task_model.gpus)) < len(task_model.gpus):
        yield f"`gpus` {task_model.gpus} names a GPU twice: each at most once"


def loss_faults(loss: LossSettings) -> Iterator[str]:
    """Terms that contradict one another; `policy_loss` refuses them too, for those who call it without a config."""
    if loss.importance_sampling_level == "sequence" and loss.loss_type != "grpo":
        yield (
            f"importance_sampling_level=sequence with loss_type={loss.loss_type}: a sequence's one ratio would be "
            "weighed by its length, or is not defined; GSPO is loss_type=grpo"
        )
    if loss.delta is not None and loss.loss_type in ("cispo", "sapo"):
        yield f"delta with loss_type={loss.loss_type}: there is no clip for it to bound; leave it out"
    elif loss.delta is not None and loss.delta <= 1 + loss.epsilon_high:
        yield f"delta={loss.delta} undoes the upper clip; it must be above 1 + epsilon_high = {1 + loss.epsilon_high}"
    low, high = loss.sampler_bounds
    if not 0 <= low <= 1 <= high:
        yield f"sampler_bounds={[low, high]}: the weight 1 must lie between them, and the lower be at least 0"
    if loss.sync_ref_model and loss.beta == 0:
        yield "sync_ref_model without a reference: beta is 0, so none is loaded; give beta or leave it out"


def training_faults(training: TrainingSettings) -> Iterator[str]:
    """One length of the run, and whole optimizer steps."""
    if (training.max_steps is None) == (training.num_train_epochs is None):
        yield "give `max_steps` or `num_train_epochs`: one of the two"
    if (training.steps_per_generation or 0) % training.gradient_accumulation_steps:
        yield (
            f"steps_per_generation={training.steps_per_generation} is no multiple of gradient_accumulation_steps="
            f"{training.gradient_accumulation_steps}: a rollout batch must make whole optimizer steps"
        )


def run_faults(config: Config) -> Iterator[str]:
    """What only the sections together can get wrong."""
    rollout, correction = config.rollout, config.loss.sampler_correction
    cuts = {"top_p": rollout.top_p < 1, "top_k": rollout.top_k > 0, "min_p": rollout.min_p > 0}
    cut = [name for name, is_on in cuts.items() if is_on]
    if correction != "none" and cut:
        yield (
            f"{', '.join(cut)} with sampler_correction={correction}: the sampler's log-probs are then those of the cut "
            "distribution, and the correction is biased; sample from the whole distribution (top_p 1, top_k -1, "
            "min_p 0) or set loss.sampler_correction=none"
        )
    if config.loss.loss_type == "bnpo" and config.training.max_tokens_per_micro_batch:
        yield (
            "loss_type=bnpo with max_tokens_per_micro_batch: bnpo divides by the tokens of each micro-batch, so that "
            "packing by length would change the loss; use dapo"
        )
    if config.policy.offload_optimizer and config.policy.zero_stage == 1:
        yield "offload_optimizer with zero_stage=1: only zero_stage=3 offloads; leave zero_stage null"
    name = config.run_name
    if "/" in name or name.strip() in ("", ".", "..") or not name.isprintable():
        yield f"run_name={config.run_name!r} is not the name of a folder"

"""Settings that one objective or method alone reads, and the others refuse: nobody is to think they do something."""

from collections.abc import Iterator, Mapping
from typing import Any

from prewrite.config.base import Section
from prewrite.config.budget import BudgetSettings

READ_BY: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "rewrite": {
        "data": ("instruction", "instructions_file"),
        "rollout": ("meta_instruction",),
        "reward": ("examples_per_rewrite",),
        "selection": ("race_share", "test_size", "metric", "num_parents", "num_races"),
        "budget": tuple(BudgetSettings.model_fields),
        "evaluation": ("benchmarks",),
    },
    "solve": {
        "data": ("instruction_suffix", "answer_pattern", "task_weights", "max_train_rows", "set_aside_passes"),
        "rollout": ("partial_rollouts",),
    },
}
# What SFT reads of a section, and what it does not; a section that is in neither it reads as a whole.
SFT_READS: Mapping[str, tuple[str, ...]] = {
    "rollout": ("system_prompt", "chat_template_kwargs", "max_prompt_length"),
    "selection": ("eval_steps", "eval_examples"),
    "reward": (),
    "loss": (),
    "budget": (),
    "evaluation": (),
}
NOT_IN_SFT: Mapping[str, tuple[str, ...]] = {
    "data": ("instruction", "instructions_file", "set_aside_passes"),
    "training": ("steps_per_generation", "num_iterations", "max_sampler_gap", "num_completions_to_print"),
}
OF_SFT: Mapping[str, tuple[str, ...]] = {
    "data": ("chats", "hub", "eval_chats"),
    "sft": ("completion", "max_length", "top_rewrites"),
}
# What it reads with `data.tasks` alone.
OF_TASKS: Mapping[str, tuple[str, ...]] = {
    "data": (
        "num_train_examples", "min_words", "max_words", "instruction_suffix", "answer_pattern", "task_weights",
        "labels",
    ),
    "rollout": ("max_prompt_length",),
    "sft": ("completion",),
}  # fmt: skip


def changed(section: Section) -> list[str]:
    """The settings that are not at their default."""
    return [key for key, field in type(section).model_fields.items() if getattr(section, key) != field.default]


def refused_settings(objective: str, config: Any) -> Iterator[str]:
    """A fault for each setting of another objective, or of SFT, that a Config does not have at its default."""
    for other, by_section in READ_BY.items():
        for place in _changed_of(config, by_section) if other != objective else ():
            yield f"{place} is read by objective={other} alone, and this is {objective}: leave it out"
    for place in _changed_of(config, OF_SFT):
        yield f"{place} is read by method=sft alone, and this is grpo: leave it out"


def sft_faults(config: Any) -> Iterator[str]:
    """A fault for each setting that SFT does not read, here or at all, and that is not at its default."""
    for name in (*SFT_READS, *NOT_IN_SFT):
        for key in changed(getattr(config, name)):
            if key not in SFT_READS.get(name, (key,)) or key in NOT_IN_SFT.get(name, ()):
                yield f"{name}.{key} is not read by method=sft: leave it out"
    for key in [key for key in changed(config) if key in ("stages", "num_stages", "reset_model")]:
        yield f"{key} is not read by method=sft: a run of SFT is one stage"
    if not config.training.takes_steps:
        yield "no steps with method=sft: nothing would be learned; give steps, or num_train_epochs"
    if "top_rewrites" in changed(config.sft) and not config.data.chats:
        yield "sft.top_rewrites is read with data.chats, a run folder, alone: leave it out"
    for place in _changed_of(config, OF_TASKS) if not config.data.tasks else ():
        yield f"{place} is read with data.tasks alone: leave it out"


def _changed_of(config: Any, by_section: Mapping[str, tuple[str, ...]]) -> Iterator[str]:
    """Those of these settings that are not at their default, as section.key."""
    for name, keys in by_section.items():
        yield from (f"{name}.{key}" for key in changed(getattr(config, name)) if key in keys)

"""Stages of a run: each the whole config with what its entry says in place of its own."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from prewrite.config.base import Section

# What an entry may set, by section. All else is opened once a run, or cuts the examples: with another cut a stage could
# choose on what a later one is tested on.
MAY_SET: Mapping[str, Sequence[str]] = {
    "data": ("tasks", "instruction", "instructions_file"),
    "rollout": ("meta_instruction",),
    "reward": ("reward_funcs", "reward_weights", "reward_kwargs", "examples_per_rewrite"),
    "training": (
        *("num_stage_steps", "num_train_epochs", "learning_rate", "lr_scheduler_type", "min_lr_rate", "warmup_steps"),
    ),
    "selection": ("eval_steps", "num_sampled", "race_share", "metric", "num_parents", "num_races"),
}
# A stage that sets the key has none of the config's values of these: they belong to what it replaces.
_REPLACES = {
    "tasks": ("instruction", "instructions_file"),
    "instructions_file": ("tasks", "instruction"),
    "reward_funcs": ("reward_weights", "reward_kwargs"),
    "num_stage_steps": ("max_steps", "num_train_epochs"),
    "num_train_epochs": ("max_steps", "num_stage_steps"),
}


class StageSettings(Section):
    """What is other in a stage than in the rest of the config; `{}` = nothing."""

    data: dict[str, Any] = {}
    """tasks, instruction, instructions_file; with one of the last two no row starts from what earlier stages found"""
    rollout: dict[str, Any] = {}
    """meta_instruction"""
    reward: dict[str, Any] = {}
    """any setting of the section"""
    training: dict[str, Any] = {}
    """num_stage_steps or num_train_epochs, learning_rate, lr_scheduler_type, min_lr_rate, warmup_steps"""
    selection: dict[str, Any] = {}
    """eval_steps, num_sampled, race_share, metric, num_parents, num_races"""

    def faults(self) -> Iterator[str]:
        for section, may_set in MAY_SET.items():
            if others := sorted(set(getattr(self, section)) - set(may_set)):
                yield f"a stage cannot set {section}.{', '.join(others)}; of {section} it may set {', '.join(may_set)}"

    @property
    def brings_instructions(self) -> bool:
        """Whether its rows start from instructions of their own."""
        return bool({"instruction", "instructions_file"} & set(self.data))

    def over(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """A dumped config with the entry's settings in it, not yet validated."""
        merged = dict(config)
        for section in MAY_SET:
            own = getattr(self, section)
            gone = {key for name in own for key in _REPLACES.get(name, ())}
            merged[section] = {key: value for key, value in config[section].items() if key not in gone} | own
        return merged

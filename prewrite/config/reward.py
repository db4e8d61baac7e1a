"""What a rewrite is worth."""

from collections.abc import Iterator

from prewrite.config.base import Positive, Section


class RewardSettings(Section):
    """What a rewrite is worth."""

    reward_funcs: list[str] = ["accuracy_classification_reward"]
    """names from `prewrite/rewards`, or a function of your own as `package.module:function`"""
    reward_weights: list[float] | None = None
    """one weight a function; null = all 1"""
    examples_per_rewrite: Positive = 8
    """train examples that score a rewrite, the same ones for the whole group"""
    reward_kwargs: dict[str, dict[str, bool | int | float | str]] = {}
    """parameters of a reward function by its name"""

    def faults(self) -> Iterator[str]:
        if not self.reward_funcs:
            yield "`reward_funcs` is empty; name at least one"
        if self.reward_weights is not None and len(self.reward_weights) != len(self.reward_funcs):
            yield f"{len(self.reward_weights)} `reward_weights` for {len(self.reward_funcs)} `reward_funcs`"
        if self.reward_weights is not None and not any(self.reward_weights):
            yield "every one of `reward_weights` is 0: nothing could be learned"
        if len(set(self.reward_funcs)) < len(self.reward_funcs):
            yield f"`reward_funcs` names one twice: {', '.join(self.reward_funcs)}; a weight says how much it counts"
        unknown = set(self.reward_kwargs) - set(self.reward_funcs)
        if unknown:
            yield f"`reward_kwargs` names {sorted(unknown)}, not among `reward_funcs`"

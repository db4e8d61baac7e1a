"""What a run may spend."""

from collections.abc import Iterator
from typing import Annotated

from pydantic import Field

from prewrite.config.base import NonNegative, Positive, Section


class BudgetSettings(Section):
    """What a run may spend, all ranks together; training ends where the race and the test need the rest."""

    max_task_calls: Positive | None = None
    """requests to the task model, retries and the first question included"""
    max_task_tokens: Positive | None = None
    """tokens of the task model, in and out, as its endpoint counts them"""
    max_cost: Annotated[float, Field(gt=0)] | None = None
    """money, in the currency of the prices"""
    task_input_price: NonNegative = 0.0
    """of a million tokens that the task model reads"""
    task_output_price: NonNegative = 0.0
    """of a million tokens that the task model writes"""
    policy_input_price: NonNegative = 0.0
    """of a million tokens that the policy reads, as a GPU's rent comes to"""
    policy_output_price: NonNegative = 0.0
    """of a million tokens that the policy writes"""

    @property
    def has_limit(self) -> bool:
        """Whether anything is limited."""
        return any(limit is not None for limit in (self.max_task_calls, self.max_task_tokens, self.max_cost))

    def shared_by(self, number: int) -> dict[str, float | None]:
        """The limits of each of so many equal parts."""
        counts = {"max_task_calls": self.max_task_calls, "max_task_tokens": self.max_task_tokens}
        shared = {name: limit and max(1, limit // number) for name, limit in counts.items()}
        return {**shared, "max_cost": self.max_cost and self.max_cost / number}

    @property
    def has_price(self) -> bool:
        """Whether anything costs money."""
        return any((self.task_input_price, self.task_output_price, self.policy_input_price, self.policy_output_price))

    def faults(self) -> Iterator[str]:
        if self.max_cost is not None and not self.has_price:
            yield "max_cost without a price limits nothing: give task_input_price and task_output_price"

    def task_cost(self, prompt_tokens: float, completion_tokens: float) -> float:
        """Money for tokens of the task model."""
        return (prompt_tokens * self.task_input_price + completion_tokens * self.task_output_price) / 1e6

    def policy_cost(self, prompt_tokens: float, completion_tokens: float) -> float:
        """Money for tokens of the policy."""
        return (prompt_tokens * self.policy_input_price + completion_tokens * self.policy_output_price) / 1e6

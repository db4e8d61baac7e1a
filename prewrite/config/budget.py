"""What a run may spend."""

from prewrite.config.base import Positive, Section


class BudgetSettings(Section):
    """What a run may spend."""

    max_task_calls: Positive | None = None
    """calls of the task model, all ranks together; training ends where the race and the test need the rest"""

"""The tasks, in one table. `python -m prewrite.tasks` prints it."""

import re
from collections.abc import Iterable, Sequence

from prewrite.errors import UserError, did_you_mean
from prewrite.tasks.ag_news import AG_NEWS
from prewrite.tasks.aime import AIME24, AIME25
from prewrite.tasks.base import Task
from prewrite.tasks.boolq import BOOLQ
from prewrite.tasks.embedded import ARITHMETIC, SENTIMENT
from prewrite.tasks.gpqa_diamond import GPQA_DIAMOND
from prewrite.tasks.gsm8k import GSM8K
from prewrite.tasks.math500 import MATH_500
from prewrite.tasks.nq_open import NQ_OPEN
from prewrite.tasks.numina_math_tir import NUMINA_MATH_TIR
from prewrite.tasks.sst2 import SST2
from prewrite.tasks.super_glue import CB, COPA

_ALL = (
    SENTIMENT, SST2, AG_NEWS, COPA, BOOLQ, CB, NQ_OPEN, GSM8K, MATH_500, AIME24, AIME25, GPQA_DIAMOND, NUMINA_MATH_TIR,
    ARITHMETIC,
)  # fmt: skip
TASKS: dict[str, Task] = {task.name: task for task in _ALL}


def get_task(name: str, own: Sequence[Task] = ()) -> Task:
    """The task of that name or alias; own: the user's own tasks, which go first. Raises UserError with the nearest.

    Case, spaces, `-` and `_` do not count: aime24 = aime_2024 = AIME-2024, math-500 = math500 = MATH 500.
    """
    tasks = (*own, *TASKS.values())
    spellings = {bare_name(spelling): task for task in reversed(tasks) for spelling in (*task.aliases, task.name)}
    if bare_name(name) in spellings:
        return spellings[bare_name(name)]
    hint = did_you_mean(name, [spelling for task in tasks for spelling in (task.name, *task.aliases)])
    raise UserError(f"{name!r} is no task.{hint} The tasks are {', '.join(task.name for task in tasks)}.")


def check_by_task(names: Iterable[str], own: Sequence[Task]) -> None:
    """UserError where a key of task_model.by_task is not a task's own name."""
    for name in names:
        try:
            task = get_task(name, own).name
        except UserError as error:
            raise UserError(f"task_model.by_task: {error}") from None
        if task != name:
            raise UserError(f"task_model.by_task: {name!r} is another spelling of {task!r}; write that.")


def bare_name(name: str) -> str:
    """A task's name as it is compared: without case, spaces, `-` and `_`."""
    return re.sub(r"[-_\s]", "", name.casefold())

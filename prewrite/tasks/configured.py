"""The tasks as a config has them: with those of the user's own, and with the user's words for labels."""

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from prewrite.config import Config, CustomTaskSettings
from prewrite.errors import UserError, did_you_mean
from prewrite.tasks import TASKS, bare_name, check_by_task, get_task
from prewrite.tasks.base import Task
from prewrite.tasks.files import read_instruction_rows
from prewrite.tasks.loading import load_pool
from prewrite.tasks.own import task_from_settings
from prewrite.tasks.rows import cut_dev
from prewrite.types import Example, InstructionRow

log = logging.getLogger(__name__)


class ConfiguredTasks:
    """The tasks by name, as `config` has them; without one, as they ship. Raises UserError with every fault at once."""

    def __init__(self, config: Config | None = None):
        self._knows_own = config is not None
        self._own, faults = own_tasks(config.custom_tasks if config else ())
        self._words: dict[str, Task] = {}
        for name, words in (config.data.labels if config else {}).items():
            try:
                task = with_words(get_task(name, self._own), words)
                self._words[task.name] = task
            except UserError as error:
                faults.append(f"data.labels.{name}: {error}")
        if faults:
            raise UserError("\n".join(faults))
        if config is not None:
            check_by_task(config.task_model.by_task, self._own)

    def get(self, name: str) -> Task:
        """The task of that name or alias. Raises UserError with the nearest."""
        try:
            task = get_task(name, self._own)
        except UserError as error:
            raise error if self._knows_own else UserError(f"{error} A task of your own needs --config.") from None
        return self._words.get(task.name, task)


def instruction_rows(config: Config) -> tuple[list[InstructionRow], dict[str, Task]]:
    """What a run rewrites, without repeats, and its tasks by name; a row's dataset_name is its task's own name.

    Raises UserError with every fault at once.
    """
    data, tasks = config.data, ConfiguredTasks(config)
    if data.instructions_file:
        path, given, faults = Path(data.instructions_file), [], []
        for row in read_instruction_rows(path):
            try:
                given.append((row, tasks.get(row.dataset_name)))
            except UserError as error:
                faults.append(f"{path}: {error}")
        if faults:
            raise UserError("\n".join(dict.fromkeys(faults)))
        rows = list(dict.fromkeys(replace(row, dataset_name=task.name) for row, task in given))
        if len(rows) < len(given):
            log.warning("%s: %d rows repeat another one and are left out", path, len(given) - len(rows))
        return rows, {task.name: task for _, task in given}
    named = [tasks.get(name) for name in data.tasks]
    rows = [InstructionRow(data.instruction or task.default_instruction, task.name) for task in named]
    return rows, {task.name: task for task in named}


def train_and_dev(
    task: Task, rows: Sequence[InstructionRow], config: Config, least_train: int
) -> tuple[list[Example], list[Example]]:
    """The task's train and dev examples for its rows, cut as `cut_dev` says. Raises UserError."""
    return cut_dev(rows, pool_of(task, config), dev_size=config.data.dev_size, least_train=least_train)


def pool_of(task: Task, config: Config) -> list[Example]:
    """What the task's train and dev examples are cut from. Raises UserError."""
    data, words = config.data, (config.data.min_words, config.data.max_words)
    return load_pool(task, local_dir=data.local_dir, words=words, seed=config.seed, empty=data.empty)


def with_words(task: Task, words: Mapping[str, str]) -> Task:
    """The task asking for, and finding, other words for some of its labels. UserError where that cannot be."""
    if task.kind != "classification":
        raise UserError(f"{task.name} is of the kind {task.kind}; only a classification has labels.")
    for label in words:
        if label not in task.labels:
            hint = f"{did_you_mean(label, task.labels)} They are {', '.join(task.labels)}."
            raise UserError(f"{label!r} is no label that a gold of {task.name} has.{hint}")
    every = {label: words[label].strip() if label in words else label for label in task.labels}
    if len({word.casefold() for word in every.values()} - {""}) < len(every):
        rule = "none may be empty, and two must differ by more than case"
        raise UserError(f"the words would be {', '.join(map(repr, every.values()))}; {rule}.")
    return replace(task, labels=tuple(every.values()), words=every)


def unnamed_labels(task: Task, instruction: str) -> list[str]:
    """The labels that an instruction does not name, as whole words; the task model is held to them all the same."""
    flags = {label: re.NOFLAG if len(label) == 1 else re.IGNORECASE for label in task.labels}
    return [name for name in task.labels if not re.search(rf"(?<!\w){re.escape(name)}(?!\w)", instruction, flags[name])]


def own_tasks(settings: Sequence[CustomTaskSettings]) -> tuple[list[Task], list[str]]:
    """(the tasks that have no fault, the faults)."""
    own: list[Task] = []
    shipped = {bare_name(name): task.name for task in TASKS.values() for name in (task.name, *task.aliases)}
    seen: set[str] = set()
    faults = []
    for entry in settings:
        if (bare := bare_name(entry.name)) in shipped:
            faults.append(f"custom_tasks: {entry.name!r} is the name of the task {shipped[bare]} here; take another.")
        elif bare in seen:
            faults.append(f"custom_tasks: two tasks are named {entry.name!r}; each needs a name of its own.")
        seen.add(bare)
        try:
            own.append(task_from_settings(entry))
        except UserError as error:
            faults.append(f"custom_tasks: {error}")
    return own, faults

"""What a rewriting stage needs beside models: rows, their tasks, rewards, train and held-out examples; all checked."""

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from prewrite.asking import MINI_BATCH, Asking
from prewrite.config import Config
from prewrite.errors import UserError
from prewrite.rewards import check_coverage, check_objective, check_rows
from prewrite.tasks import check_by_task, get_task
from prewrite.tasks.base import Task
from prewrite.tasks.files import read_instruction_rows
from prewrite.tasks.loading import load_examples
from prewrite.tasks.own import task_from_settings
from prewrite.training.objectives.base import WeightedReward, weighted_rewards
from prewrite.types import Example, InstructionRow


@dataclass(frozen=True)
class RewriteData:
    """rows: what is rewritten in training. held_out_rows: what is rewritten in an evaluation: the same instructions,
    or, where a row is a question by itself, rows of the file that are not trained on.
    train, dev: by task; empty where no reward asks on examples.
    """

    rows: Sequence[InstructionRow]
    held_out_rows: Sequence[InstructionRow]
    tasks: Mapping[str, Task]
    rewards: Sequence[WeightedReward]
    train: Mapping[str, Sequence[Example]]
    dev: Mapping[str, Sequence[Example]]

    def asks_about(self, row: InstructionRow, asking: Asking) -> bool:
        """Whether a reward reads what the task model says to the row's rewrites when it is asked this way."""
        kind = self.tasks[row.dataset_name].kind
        rewards = [entry.reward for entry in self.rewards if entry.reward.asking is asking]
        return asking.concerns(row) and any(kind in reward.kinds for reward in rewards)

    def asking_of(self, row: InstructionRow) -> Asking:
        """How the row's rewrites are judged on held-out examples: as the first reward does that asks about it."""
        ways = (entry.reward.asking for entry in self.rewards)
        return next((way for way in ways if way is not None and self.asks_about(row, way)), MINI_BATCH)


def load_rewrite_data(config: Config) -> RewriteData:
    """Reads and checks it, the same on every rank. Raises UserError for every fault; loads no model."""
    entries = weighted_rewards(config.reward)
    rewards = [entry.reward for entry in entries]
    check_objective(rewards, "rewrite")
    rows, tasks = _instruction_rows(config)
    check_coverage(rewards, list(tasks.values()))
    check_rows(rewards, rows, tasks)
    ways = [reward.asking for reward in rewards if reward.asking is not None]
    if any(not way.uses_examples for way in ways):
        held_out, rows = _keep_back(rows, config)
        return RewriteData(rows, held_out, tasks, entries, {}, {})
    train, dev = _examples(config, tasks)
    wanted = config.reward.examples_per_rewrite
    for name, pool in train.items():
        if ways and len(pool) < wanted:
            raise UserError(
                f"{name} train: {len(pool)} examples, fewer than reward.examples_per_rewrite {wanted}: lower it, or "
                "data.dev_size or data.min_words, or raise data.num_train_examples"
            )
    return RewriteData(rows, rows, tasks, entries, train, dev)


def row_names(rows: Sequence[InstructionRow]) -> list[str]:
    """A name for each row: its task's, with subject and level where it has them, and a number where that repeats."""
    names = ["/".join(part for part in (row.dataset_name, row.subject, row.level) if part) for row in rows]
    total, seen = Counter(names), Counter[str]()
    numbered = []
    for name in names:
        seen[name] += 1
        numbered.append(f"{name}#{seen[name]}" if total[name] > 1 else name)
    return numbered


def _instruction_rows(config: Config) -> tuple[list[InstructionRow], dict[str, Task]]:
    """What is to be rewritten, and the tasks by name. A row's dataset_name is made its task's own name."""
    own = [task_from_settings(**settings.model_dump()) for settings in config.custom_tasks]
    check_by_task(config.task_model.by_task, own)
    data = config.data
    if data.instructions_file:
        given = read_instruction_rows(Path(data.instructions_file))
        tasks = [get_task(row.dataset_name, own) for row in given]
        rows = [replace(row, dataset_name=task.name) for row, task in zip(given, tasks, strict=True)]
    else:
        tasks = [get_task(name, own) for name in data.tasks]
        rows = [InstructionRow(data.instruction or task.default_instruction, task.name) for task in tasks]
    return rows, {task.name: task for task in tasks}


def _keep_back(rows: Sequence[InstructionRow], config: Config) -> tuple[list[InstructionRow], list[InstructionRow]]:
    """(held-out rows, training rows), by seed."""
    size = config.data.dev_size
    if size >= len(rows):
        raise UserError(
            f"{config.data.instructions_file}: data.dev_size {size} of its rows are to be kept back from training, and "
            f"it has {len(rows)}: give a dev_size from 1 to {len(rows) - 1}, or more rows"
            if len(rows) > 1
            else f"{config.data.instructions_file}: one row cannot both train and be kept back: give more rows"
        )
    shuffled = list(rows)
    random.Random(config.seed).shuffle(shuffled)
    return shuffled[:size], shuffled[size:]


def _examples(
    config: Config, tasks: Mapping[str, Task]
) -> tuple[dict[str, Sequence[Example]], dict[str, Sequence[Example]]]:
    data = config.data
    local_dir = Path(data.local_dir) if data.local_dir else None
    train, dev = {}, {}
    for name, task in tasks.items():
        cut = {"local_dir": local_dir, "dev_size": data.dev_size, "min_words": data.min_words, "seed": config.seed}
        train[name] = load_examples(task, "train", **cut)[: data.num_train_examples]
        dev[name] = load_examples(task, "dev", **cut)
    return train, dev

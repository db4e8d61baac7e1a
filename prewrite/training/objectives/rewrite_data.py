"""What a rewriting stage needs beside models: rows, their tasks, rewards, train and held-out examples; all checked."""

import logging
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from prewrite.asking import MINI_BATCH, Asking
from prewrite.asking.template import brace_tags
from prewrite.config import Config
from prewrite.config.objective import changed
from prewrite.errors import UserError
from prewrite.rewards import Reward, check_coverage, check_objective, check_rows
from prewrite.tasks.base import Kind, Task
from prewrite.tasks.configured import instruction_rows, train_and_dev, unnamed_labels
from prewrite.tasks.rows import own_examples, row_names
from prewrite.training.objectives.base import WeightedReward, weighted_rewards
from prewrite.types import Example, InstructionRow

log = logging.getLogger(__name__)

METRIC_KINDS: Mapping[str, Kind] = {"f1": "open_question", "balanced_accuracy": "classification"}
"""The tasks that a `selection.metric` is of; all have an accuracy."""


@dataclass(frozen=True)
class RewriteData:
    """rows: what is rewritten in training. held_out_rows: what is rewritten in an evaluation: the same instructions,
    or, where a row is a question by itself, rows of the file that are not trained on.
    train, dev: by task; empty where no reward asks on examples. dev_size: a row's own dev examples, at most.
    """

    rows: Sequence[InstructionRow]
    held_out_rows: Sequence[InstructionRow]
    tasks: Mapping[str, Task]
    rewards: Sequence[WeightedReward]
    train: Mapping[str, Sequence[Example]]
    dev: Mapping[str, Sequence[Example]]
    dev_size: int | None = None

    def dev_of(self, row: InstructionRow) -> Sequence[Example]:
        """What the row alone is judged on."""
        return own_examples(row, self.dev[row.dataset_name])[: self.dev_size]

    def train_of(self, row: InstructionRow) -> Sequence[Example]:
        """The train examples that tell what the row's rewrites are worth."""
        return own_examples(row, self.train.get(row.dataset_name, ()))

    @property
    def ways(self) -> list[Asking]:
        """The ways of asking that rewards read, each once."""
        return list(dict.fromkeys(entry.reward.asking for entry in self.rewards if entry.reward.asking is not None))

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
    rows, tasks = instruction_rows(config)
    check_coverage(rewards, list(tasks.values()))
    metric, kinds = config.selection.metric, {task.kind for task in tasks.values()}
    if (kind := METRIC_KINDS.get(metric or "")) is not None and kind not in kinds:
        rule = f"it is of tasks of the kind {kind}, and here are those of {', '.join(sorted(kinds))} alone"
        raise UserError(f"selection.metric={metric}: {rule}: leave it out, or take accuracy")
    rows = _without_idle_tags(rows, tasks, rewards)
    known = {"instruction", *(tag for row in rows for tag in row.tags)}
    if literal := brace_tags(config.rollout.meta_instruction) - known:
        log.warning(
            "rollout.meta_instruction: %s is sent as it is: {instruction} alone is filled in there", _braced(literal)
        )
    ways = [reward.asking for reward in rewards if reward.asking is not None]
    if any(not way.uses_examples for way in ways):
        _refuse_choosing(config, rewards)
        check_rows(rewards, rows, tasks, {})
        held_out, rows = _keep_back(rows, config)
        return RewriteData(rows, held_out, tasks, entries, {}, {})
    wanted = config.reward.examples_per_rewrite if ways else 1
    train, dev = _examples(config, rows, tasks, wanted)
    check_rows(rewards, rows, tasks, train)
    data = RewriteData(rows, rows, tasks, entries, train, dev, config.data.dev_size)
    for name, row in zip(row_names(rows), rows, strict=True):
        pool = data.asking_of(row).pool(row, train[row.dataset_name])
        if len(pool) < wanted:
            raise UserError(
                f"{name} train: {len(pool)} examples, fewer than reward.examples_per_rewrite {wanted}: lower it, or "
                "data.dev_size or data.min_words, or raise data.num_train_examples"
            )
        literal = brace_tags(row.instruction) & set(pool[0].texts)
        if literal and not data.asking_of(row).fills_tags:
            log.warning(
                "%s: its instruction's %s is sent as it is: a template is a row with `tags`, of the kind math, that "
                "template_accuracy_math_reward scores",
                *(name, _braced(literal)),
            )
        if unnamed := unnamed_labels(tasks[row.dataset_name], row.instruction):
            log.warning(
                "%s: its instruction does not name %s: answers are held to the task's labels all the same (data.labels "
                "gives other words for them)",
                *(name, ", ".join(unnamed)),
            )
    return data


def _refuse_choosing(config: Config, rewards: Sequence[Reward]) -> None:
    """UserError for settings that choose among a row's rewrites, where each row is a question by itself."""
    choosing = ("race_share", "metric", "num_parents", "num_races")
    idle = [f"selection.{key}" for key in changed(config.selection) if key in choosing]
    idle += [] if config.training.takes_steps else ["a run of no steps"]
    if idle:
        names = " and ".join(reward.name for reward in rewards if reward.asking and not reward.asking.uses_examples)
        why = f"with {names} each row is a question by itself, and no best of several rewrites is chosen"
        raise UserError(f"{', '.join(idle)}: {why}: leave it out")


def _without_idle_tags(
    rows: Sequence[InstructionRow], tasks: Mapping[str, Task], rewards: Sequence[Reward]
) -> list[InstructionRow]:
    """The rows, without tags that no reward reads, so that `evaluate.py` asks as training does; it is told."""
    if any(":" in reward.name for reward in rewards):  # one of the user's own may read them
        return list(rows)
    kinds = {kind for reward in rewards if reward.asking and reward.asking.fills_tags for kind in reward.kinds}
    kept = [row if tasks[row.dataset_name].kind in kinds else replace(row, tags=()) for row in rows]
    if idle := [row for row, own in zip(rows, kept, strict=True) if row.tags != own.tags]:
        log.warning(
            "the tags of %d of %d rows do nothing and are left out, as of %r: a template is filled by "
            "template_accuracy_math_reward alone, and for tasks of the kind math",
            *(len(idle), len(rows), idle[0].instruction[:60]),
        )
    return kept


def _braced(names: set[str]) -> str:
    return ", ".join(f"{{{name}}}" for name in sorted(names))


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
    config: Config, rows: Sequence[InstructionRow], tasks: Mapping[str, Task], least_train: int
) -> tuple[dict[str, Sequence[Example]], dict[str, Sequence[Example]]]:
    train, dev, faults = {}, {}, []
    for name, task in tasks.items():
        own = [row for row in rows if row.dataset_name == name]
        try:
            train[name], dev[name] = train_and_dev(task, own, config, least_train)
            train[name] = train[name][: config.data.num_train_examples]
        except UserError as error:
            faults.append(str(error))
    if faults:
        raise UserError("\n".join(faults))
    return train, dev

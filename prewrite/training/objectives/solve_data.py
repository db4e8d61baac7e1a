"""What a solving stage needs beside models: problems to train on and held-out ones, as requests; all checked."""

import logging
import math
import random
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from prewrite.config import Config
from prewrite.engine.chat_template import render_request
from prewrite.errors import UserError
from prewrite.grading import grade_math
from prewrite.rewards import check_objective
from prewrite.rewards.trl import check_columns
from prewrite.tasks.base import Task
from prewrite.tasks.configured import ConfiguredTasks
from prewrite.tasks.files import require_rows
from prewrite.tasks.loading import load_examples, normalised_text
from prewrite.training.objectives.base import WeightedReward, weighted_rewards
from prewrite.types import Example

log = logging.getLogger(__name__)

Item = TypeVar("Item")

_GOLDS_READ = 20
COMPARE_VALUES = ("accuracy_reward", "cosine_scaled_reward")


@dataclass(frozen=True)
class Problem:
    """A problem, the task it is of, and the token ids of its request."""

    task: Task
    example: Example
    request: Sequence[int]


@dataclass(frozen=True)
class SolveData:
    """train: what is trained on. held_out: what every look is taken at."""

    train: Sequence[Problem]
    held_out: Sequence[Problem]
    rewards: Sequence[WeightedReward]

    def outlook(self, config: Config, steps: int, world_size: int) -> str:
        """How many problems there are, and how often each comes."""
        answers = config.rollouts_per_step(world_size)
        passes = steps * answers / config.rollout.num_generations / len(self.train)
        return (
            f"{steps} steps of {answers} answers on {_told(self.train)}, {passes:.1f} passes; looks at "
            f"{_told(self.held_out)}, held out"
        )


def _told(problems: Sequence[Problem]) -> str:
    counts = Counter(problem.task.name for problem in problems)
    return f"{len(problems)} problems ({', '.join(f'{count} of {task}' for task, count in counts.items())})"


def load_solve_data(config: Config, tokenizer: Any) -> SolveData:
    """Reads and checks it, the same on every rank. Raises UserError for every fault; loads no model."""
    entries = weighted_rewards(config.reward)
    check_objective([entry.reward for entry in entries], "solve")
    known = ConfiguredTasks(config)
    _check_rewards(config, entries, [known.get(name) for name in config.data.tasks])
    train, held_out = load_problems(config, tokenizer)
    for entry in entries:
        for problem in (*train, *held_out) if entry.reward.takes_columns else ():
            check_columns(entry.reward.name, entry.reward.columns, problem.example)
    _check_golds(entries, train)
    return SolveData(train, held_out, entries)


def _check_golds(entries: Sequence[WeightedReward], train: Sequence[Problem]) -> None:
    """UserError where no problem has what a reward compares with: it would be silent all through the run."""
    for reward in (entry.reward for entry in entries):
        if reward.name in COMPARE_VALUES:
            first = [str(problem.example.target) for problem in train[:_GOLDS_READ]]
            if all(verdict is None for verdict in grade_math([("\\boxed{0}", gold) for gold in first])):
                raise UserError(
                    f"reward_funcs: {reward.name} compares mathematical values, and none of the first {len(first)} "
                    f"golds can be read as one, as {first[0][:60]!r}: look at custom_tasks[].target and target_from"
                )
        elif reward.name == "levenshtein_reward" and not any(problem.example.solution for problem in train):
            raise UserError(
                f"reward_funcs: {reward.name} compares with a problem's `solution`, and none has one: leave it out"
            )


def load_problems(config: Config, tokenizer: Any) -> tuple[list[Problem], list[Problem]]:
    """(problems to train on, held-out ones) of `data.tasks`, as the settings filter, mix and cap them. UserError for
    every fault."""
    known = ConfiguredTasks(config)
    tasks = [known.get(name) for name in config.data.tasks]
    pools, held_out = [], []
    for task in tasks:
        dev, train = _problems(config, task, tokenizer)
        pools.append(train)
        held_out += dev
    if len(tasks) > 1:
        how: dict[str, Any] = {"local_dir": _folder(config), "empty": config.data.empty}
        kept_out = [example for task in tasks for example in load_examples(task, "test", **how)]
        pools = _disjoint(pools, [*(problem.example for problem in held_out), *kept_out])
    return mix(pools, config.data.task_weights, config.data.max_train_rows, config.seed), held_out


def mix(pools: Sequence[Sequence[Item]], weights: Sequence[float] | None, most: int | None, seed: int) -> list[Item]:
    """All the pools together, shuffled, `most` at most.

    weights: as many of each pool, from its beginning, as keep these proportions and repeat nothing.
    """
    if weights is not None:
        shares = [weight / max(weights) for weight in weights]
        shares = [share / sum(shares) for share in shares]
        total = min(len(pool) / share if share else math.inf for pool, share in zip(pools, shares, strict=True))
        total = min(total, most or total)
        # A hair more than the product, which in floats may fall short of a whole number.
        sizes = [max(1, int(total * share + 1e-9)) for share in shares]
        pools = [pool[:size] for pool, size in zip(pools, sizes, strict=True)]
    mixed = [one for pool in pools for one in pool]
    random.Random(seed).shuffle(mixed)
    return mixed[:most]


def _disjoint(pools: Sequence[Sequence[Problem]], kept_out: Sequence[Example]) -> list[list[Problem]]:
    """The pools without what another task holds out, and each problem in the first pool that has it alone."""
    known = {normalised_text(example) for example in kept_out}
    disjoint = []
    for pool in pools:
        texts = [normalised_text(problem.example) for problem in pool]
        own = [problem for problem, text in zip(pool, texts, strict=True) if text not in known]
        known.update(texts)
        disjoint.append(own)
        if repeats := len(pool) - len(own):
            name = pool[0].task.name
            log.warning("%s: %d problems stand in another task's rows too: left out of training", name, repeats)
        require_rows(own, f"{pool[0].task.name} train", "that leaves out what other tasks hold")
    return disjoint


def user_turn(task: Task, example: Example, suffix: str) -> str:
    """A problem as the policy reads it: its text, or its labelled fields where it has several; then the suffix."""
    if len(task.fields) == 1:
        parts = list(example.fields.values())
    else:
        parts = [f"{label}: {example.fields[column]}" for column, label in task.fields.items()]
    return "\n".join([*parts, suffix] if suffix else parts)


def _problems(config: Config, task: Task, tokenizer: Any) -> tuple[list[Problem], list[Problem]]:
    """(held-out problems, problems to train on) of a task, drawn by seed from those that the settings let pass."""
    data, rollout = config.data, config.rollout
    how: dict[str, Any] = {"words": (data.min_words, data.max_words), "seed": config.seed, "empty": data.empty}
    pool = load_examples(task, "train", local_dir=_folder(config), **how)
    if data.answer_pattern is not None:
        fitting = [one for one in pool if isinstance(one.target, str) and _fits(data.answer_pattern, one.target)]
        told = f"data.answer_pattern={data.answer_pattern!r} (of {len(pool)} rows)"
        pool = require_rows(fitting, f"{task.name} train", told)
    problems = []
    for one in pool:
        turn, where = user_turn(task, one, data.instruction_suffix), f"{task.name}: problem {one.id}"
        request = render_request(
            tokenizer, turn, rollout.chat_template_kwargs, where=where, system=rollout.system_prompt
        )
        if len(request) <= rollout.max_prompt_length:
            problems.append(Problem(task, one, request))
    limit = f"rollout.max_prompt_length={rollout.max_prompt_length}"
    if dropped := len(pool) - len(problems):
        log.warning("%s: %d of %d problems are longer than %s: left out", task.name, dropped, len(pool), limit)
    require_rows(problems, f"{task.name} train", limit)
    if len(problems) <= data.dev_size:
        raise UserError(
            f"{task.name}: data.dev_size={data.dev_size} problems are to be held out, and {len(problems)} are left of "
            "all filters: lower it"
        )
    held_out, train = problems[: data.dev_size], problems[data.dev_size :]
    return held_out[: config.selection.eval_examples], train[: data.num_train_examples]


def _folder(config: Config) -> Path | None:
    return Path(config.data.local_dir) if config.data.local_dir else None


def _fits(pattern: str, answer: str) -> bool:
    return re.fullmatch(pattern, answer.strip()) is not None


def _check_rewards(config: Config, entries: Sequence[WeightedReward], tasks: Sequence[Task]) -> None:
    names = [entry.reward.name for entry in entries]
    for entry in entries:
        if entry.reward.asking is not None:
            raise UserError(
                f"reward_funcs: {entry.reward.name} reads answers of the task model (`evaluations`); solving has none"
            )
    compare = [name for name in names if name in COMPARE_VALUES]
    for task in tasks:
        if compare and task.kind != "math":
            raise UserError(
                f"reward_funcs: {compare[0]} compares mathematical values, and the task {task.name} is of the kind "
                f"{task.kind}. Take a task of the kind math, or a reward of your own (package.module:function)."
            )
    if config.data.set_aside_passes and "accuracy_reward" not in names:
        raise UserError(
            "data.set_aside_passes: a problem is solved where accuracy_reward says so; add it to reward.reward_funcs "
            "(a weight of 0 will do), or leave set_aside_passes out"
        )

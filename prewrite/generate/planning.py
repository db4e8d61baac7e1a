"""What is to be generated, checked before anything is asked."""

import argparse
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prewrite.config import Config
from prewrite.errors import UserError
from prewrite.evaluation.setup import given_settings, made_config
from prewrite.generate.prompts import Prompt, Template, make_prompts, read_data, rows_of_task, without_test_rows
from prewrite.rewards import REWARDS, Reward, as_row, get_reward, score_completions
from prewrite.tasks.configured import ConfiguredTasks, pool_of
from prewrite.tasks.examples import PlacedRow
from prewrite.tasks.files import require_columns, require_rows
from prewrite.tasks.loading import load_examples
from prewrite.types import Call

SETTINGS: tuple[tuple[str, type], ...] = (
    ("samples_per_query", int), ("temperature", float), ("top_p", float), ("max_tokens", int), ("system_prompt", str),
    ("concurrency", int), ("timeout", float), ("max_retries", int),
)  # fmt: skip
"""Options that stand for settings of `task_model`, and what they are."""


@dataclass(frozen=True)
class Plan:
    """out: the data; left_out: what did not become data, with the reason; answers: each reply, kept for the next start.

    rewards: a completion has to reach at least `min_reward` of each. keep: which of a prompt's that do.
    """

    config: Config
    prompts: list[Prompt]
    out: Path
    rewards: tuple[Reward, ...]
    min_reward: float
    keep: str
    facts: Mapping[str, Any]

    @property
    def left_out(self) -> Path:
        return self.out.with_suffix(".left_out.jsonl")

    @property
    def answers(self) -> Path:
        return self.out.with_suffix(".answers.jsonl")

    @property
    def samples(self) -> int:
        """Completions of each prompt."""
        return self.config.task_model.samples_per_query

    def calls(self, prompt: Prompt) -> list[Call]:
        """What is asked about a prompt."""
        return [] if prompt.left_out else [Call(prompt.text, sample_index=index) for index in range(self.samples)]

    def all_calls(self) -> Iterator[Call]:
        """What is asked about all of them."""
        return (call for prompt in self.prompts for call in self.calls(prompt))


def make_plan(arguments: argparse.Namespace) -> Plan:
    """Raises UserError for whatever can be known to be wrong before anything is asked."""
    out: Path = arguments.out
    config = _config(arguments)
    rewards = tuple(_reward(name, arguments.min_reward, config) for name in dict.fromkeys(arguments.reward))
    template = Template(arguments.template)
    tasks = ConfiguredTasks(config)
    placed = _rows(arguments, config, tasks)[: arguments.limit]
    prompts = make_prompts(placed, template)
    for reward in rewards:
        for place, row in placed:
            where = f"reward {reward.name}: {place}"
            if reward.takes_columns or "solution" in reward.columns:
                require_columns(dict(row), reward.columns, where)
            as_row(row, where, reward)
    if arguments.decontaminate:
        against = [tasks.get(name) for name in arguments.decontaminate]
        tests = {task.name: load_examples(task, "test", local_dir=config.data.local_dir) for task in against}
        prompts = without_test_rows(prompts, template.names, tests)
    if all(prompt.left_out for prompt in prompts):
        raise UserError(f"all {len(prompts)} prompts are left out, the first since it is {prompts[0].left_out}")
    facts = {"data": arguments.task or arguments.data, "template": template.text}
    plan = Plan(config, prompts, out, rewards, arguments.min_reward, arguments.keep, facts)
    _refuse_out(plan, arguments.data)
    return plan


def _config(arguments: argparse.Namespace) -> Config:
    """The flags over the config's own section; without a config only the task model, and what --set names, is read."""
    given = given_settings(arguments, arguments.config)
    task_model = given["task_model"]
    if isinstance(task_model, dict):  # all else is told by made_config
        given_here = {name: getattr(arguments, name) for name, _ in SETTINGS}
        task_model |= {name: value for name, value in given_here.items() if value is not None}
        if not (task_model.get("model") or any("task_model.model" in one for one in arguments.overrides)):
            raise UserError("no model: give --model (and --base-url where it is served), or --config with a task_model")
    if arguments.reward and not arguments.config:
        given["reward"] = {"reward_funcs": list(dict.fromkeys(arguments.reward))}
    return made_config(given, arguments, arguments.config)


def _rows(arguments: argparse.Namespace, config: Config, tasks: ConfiguredTasks) -> list[PlacedRow]:
    if arguments.task is None:
        return read_data(arguments.data, subset=arguments.subset, split=arguments.split)
    if arguments.subset or arguments.split:
        raise UserError("--subset and --split are of --data; --task takes the task's own train split")
    task, size = tasks.get(arguments.task), config.data.dev_size
    pool = pool_of(task, config)
    return rows_of_task(task, require_rows(pool[size:], f"{task.name} train", f"dev_size={size} (of {len(pool)} rows)"))


def _reward(name: str, least: float, config: Config) -> Reward:
    reward = get_reward(name)
    if reward.asking is not None or "solve" not in reward.objectives:
        fitting = [name for name, known in REWARDS.items() if "solve" in known.objectives]
        raise UserError(f"--reward {reward.name} scores rewrites, by a task model; take {', '.join(fitting)}")
    parameters: dict[str, Any] = dict(config.reward.reward_kwargs.get(reward.name, {}))
    score_completions(reward.name, [], [], **parameters)  # which finds their faults
    if least > reward.range[1]:
        low, high = reward.range
        raise UserError(f"--min-reward {least:g}: {reward.name} goes from {low:g} to {high:g}, so that none could pass")
    return reward


def _refuse_out(plan: Plan, data: str | None) -> None:
    out = plan.out
    if out.suffix != ".jsonl":
        raise UserError(f"--out {out}: the data is JSONL; give a name that ends in .jsonl")
    try:
        writable = not out.is_dir() and os.access(out.parent, os.W_OK)
    except OSError:  # a name too long
        writable = False
    if not writable:
        raise UserError(f"--out {out}: cannot be written; give a file in a folder that exists and is writable")
    if out.exists() and (not plan.answers.is_file() or (data and Path(data).exists() and out.samefile(data))):
        raise UserError(f"--out {out}: it is there, and was not generated here; give another name")

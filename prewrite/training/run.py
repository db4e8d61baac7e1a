"""A run from its config: data, task model, policy, sampler, and the trainer that works with them."""

import contextlib
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from prewrite.config import Config, TaskModelSettings
from prewrite.config.loading import check_world, config_hash
from prewrite.engine import distributed
from prewrite.engine.policy import Policy, load_tokenizer, quiet_libraries, refuse_compiling_without_compiler
from prewrite.engine.sampler import Sampler, refuse_sleep_without_gpu
from prewrite.engine.task_model import TaskModel
from prewrite.engine.task_server import TaskServer
from prewrite.errors import UserError
from prewrite.reporting.journal import Journal
from prewrite.rewards import check_coverage, check_rows, get_reward
from prewrite.tasks import get_task
from prewrite.tasks.base import Task
from prewrite.tasks.files import read_instruction_rows
from prewrite.tasks.loading import load_examples
from prewrite.tasks.own import task_from_settings
from prewrite.training.rollout import build_requests
from prewrite.training.scorer import Scorer, WeightedReward
from prewrite.training.selection import Selection
from prewrite.training.trainer import Collaborators, Trainer
from prewrite.types import Example, InstructionRow


def run(config: Config) -> None:
    """Trains as the config says. Raises UserError for what the user can put right, before any model loads if it can."""
    quiet_libraries()
    world = distributed.start(config.training.ddp_timeout)
    with _full_memory_told(), contextlib.ExitStack() as stack:
        stack.callback(distributed.stop)
        check_world(config, world.size)
        refuse_sleep_without_gpu(config.rollout, world)
        refuse_compiling_without_compiler(config.policy)
        rewards = weighted_rewards(config)
        rows, tasks = instruction_rows(config)
        check_coverage([entry.reward for entry in rewards], list(tasks.values()))
        check_rows([entry.reward for entry in rewards], rows, tasks)
        train, dev = examples(config, tasks)
        _check_sizes(config, rewards, train)
        tokenizer = load_tokenizer(config.policy)
        requests = build_requests(rows, tokenizer, config.rollout)
        with distributed.together("making the run folder"):
            journal = Journal(config) if world.is_main else None
        with distributed.together("starting the task model"):
            base_url = config.task_model.base_url
            if base_url is None and journal is not None:
                log_path = journal.folder / "task_server.log"
                print(f"starting a vLLM server for the task model, about a minute; its log is {log_path}", flush=True)
                server = TaskServer(config.task_model, log_path=log_path)
                base_url = stack.enter_context(server).base_url
                stack.enter_context(server.blamed())
        task_model = stack.enter_context(TaskModel(config.task_model, base_url=distributed.broadcast(base_url)))
        with distributed.together("asking the task model a first question"):
            if world.is_main:
                task_model.probe(_choices(config.task_model, tasks))
        if world.is_main:
            print(f"loading the policy, {config.policy.model}, and its vLLM engine, about another minute", flush=True)
        policy = Policy(config.policy, config.training, world, temperature=config.rollout.temperature)
        reference = None
        if config.loss.beta:
            reference = Policy(
                config.policy, config.training, world, temperature=config.rollout.temperature, trainable=False
            )
        sampler = Sampler(config.policy, config.rollout, tokenizer, world, seed=config.seed)
        stack.callback(sampler.close)
        _seed(config.seed + world.rank // sampler.ranks_per_engine)  # after the engine, whose start reseeds torch
        scorer = Scorer(
            rewards,
            tasks,
            train,
            task_model,
            examples_per_rewrite=config.reward.examples_per_rewrite,
            forced_choice=config.task_model.scoring == "forced_choice",
            seed=config.seed,
        )
        selection = None
        if journal is not None and not scorer.rewrites_are_problems:
            selection = Selection(
                config.selection,
                tasks,
                dev,
                task_model,
                journal,
                scoring=config.task_model.scoring,
                config_hash=config_hash(config),
            )
        Trainer(
            config,
            rows,
            requests,
            world,
            Collaborators(policy, reference, sampler, scorer, task_model, tokenizer, journal, selection),
        ).run()


@contextlib.contextmanager
def _full_memory_told() -> Iterator[None]:
    try:
        yield
    except torch.OutOfMemoryError as error:
        fault = UserError(
            f"the GPU's memory is full: {str(error).split('. ')[0]}. What takes less of it: "
            "training.max_tokens_per_micro_batch or per_device_train_batch_size lower, logprob_chunk_tokens lower, "
            "policy.gradient_checkpointing, policy.offload_optimizer, policy.zero_stage 3 on several GPUs, "
            "rollout.sleep_level 1, and a smaller kv_cache_gib or gpu_memory_utilization in rollout and task_model"
        )
        fault.on_every_rank = False
        raise fault from error


def weighted_rewards(config: Config) -> list[WeightedReward]:
    """The reward functions of the config. Raises UserError for an unknown name or parameter."""
    settings = config.reward
    weights = settings.reward_weights or [1.0] * len(settings.reward_funcs)
    entries = []
    for name, weight in zip(settings.reward_funcs, weights, strict=True):
        reward, parameters = get_reward(name), settings.reward_kwargs.get(name, {})
        reward.check_parameters(parameters)
        entries.append(WeightedReward(reward, weight, parameters))
    return entries


def instruction_rows(config: Config) -> tuple[list[InstructionRow], dict[str, Task]]:
    """What is to be rewritten, and the tasks by name. A row's dataset_name is made its task's own name."""
    own = [task_from_settings(**settings.model_dump()) for settings in config.custom_tasks]
    data = config.data
    if data.instructions_file:
        given = read_instruction_rows(Path(data.instructions_file))
        tasks = [get_task(row.dataset_name, own) for row in given]
        rows = [replace(row, dataset_name=task.name) for row, task in zip(given, tasks, strict=True)]
    else:
        tasks = [get_task(name, own) for name in data.tasks]
        rows = [InstructionRow(data.instruction or task.default_instruction, task.name) for task in tasks]
    return rows, {task.name: task for task in tasks}


def examples(
    config: Config, tasks: dict[str, Task]
) -> tuple[dict[str, Sequence[Example]], dict[str, Sequence[Example]]]:
    """(train, dev) examples of each task, the same on every rank."""
    data = config.data
    local_dir = Path(data.local_dir) if data.local_dir else None
    train, dev = {}, {}
    for name, task in tasks.items():
        cut = {"local_dir": local_dir, "dev_size": data.dev_size, "min_words": data.min_words, "seed": config.seed}
        train[name] = load_examples(task, "train", **cut)[: data.num_train_examples]
        dev[name] = load_examples(task, "dev", **cut)
    return train, dev


def _check_sizes(config: Config, rewards: Sequence[WeightedReward], train: dict[str, Sequence[Example]]) -> None:
    wanted = config.reward.examples_per_rewrite
    draws = any(entry.reward.ask not in (None, "row") for entry in rewards)
    for name, pool in train.items():
        if draws and len(pool) < wanted:
            raise UserError(
                f"{name} train: {len(pool)} examples, fewer than reward.examples_per_rewrite {wanted}: lower it, or "
                "data.dev_size or data.min_words, or raise data.num_train_examples"
            )


def _choices(settings: TaskModelSettings, tasks: dict[str, Task]) -> tuple[str, ...]:
    if settings.scoring != "forced_choice":
        return ()
    return next((task.labels for task in tasks.values() if task.kind == "classification"), ())


def _seed(seed: int) -> None:
    """The same on the ranks of one vLLM engine, which draw every token together."""
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)

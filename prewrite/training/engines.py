"""What a run opens once, whatever its stages bring: models, the sampler's engine, the task model, the run folder."""

import contextlib
import functools
import math
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from prewrite.config import Config
from prewrite.config.loading import stage_configs
from prewrite.engine import agreement, distributed
from prewrite.engine.answer_log import AnswerLog
from prewrite.engine.distributed import World
from prewrite.engine.policy import Policy
from prewrite.engine.sampler import Sampler
from prewrite.engine.task_model import TaskModel
from prewrite.engine.task_server import TaskServer
from prewrite.errors import UserError
from prewrite.reporting.journal import ANSWERS, Journal, Start, run_folder
from prewrite.reporting.run_lock import OUTLIVED, only_run_in
from prewrite.training.checkpoint import REFERENCE, Checkpoint
from prewrite.training.resume import go_back


@dataclass(frozen=True)
class Engines:
    """sampler: None in SFT. journal: on rank 0 alone. reference: where the loss has a KL term. data: hashes of what was
    read, by name.
    checkpoint, generators: where the run goes on from one, the states to set before its first rollout. opened: when, by
    `time.perf_counter`."""

    world: World
    tokenizer: Any
    policy: Policy
    reference: Policy | None
    sampler: Sampler | None
    task_model: TaskModel
    journal: Journal | None
    data: Mapping[str, str] = field(default_factory=dict)
    checkpoint: Checkpoint | None = None
    generators: Mapping[str, Any] | None = None
    opened: float = field(default_factory=time.perf_counter)


@contextlib.contextmanager
def open_engines(
    config: Config,
    world: World,
    tokenizer: Any,
    choices: Sequence[str],
    start: Start = "new",
    data: Mapping[str, str] | None = None,
) -> Iterator[Engines]:
    """The engines of a run, closed on every way out. choices: labels that the task model has to be able to force.
    data: hashes of what was read, which an earlier start has to have read too.

    Raises UserError, on every rank where it concerns all, for what the user can put right.
    """
    with full_memory_told(), contextlib.ExitStack() as stack:
        with distributed.together("making the run folder"):
            if world.is_main:
                patience = OUTLIVED if start == "resume" else 0
                stack.enter_context(only_run_in(run_folder(config), patience))
            journal = Journal(config, start) if world.is_main else None
            checkpoint = None
            if journal is not None and start == "resume":
                checkpoint = go_back(journal, config, world, data or {})
            if journal is not None:
                stack.callback(journal.close_trackers)
                journal.open_trackers(config, resumed=checkpoint is not None)
        checkpoint = distributed.broadcast(checkpoint)
        agreement.agree_on_folder(journal.folder if journal else None, world)
        folder: Path = distributed.broadcast(journal.folder if journal else None)
        task_model = stack.enter_context(_task_model(config, journal))
        with distributed.together("asking the task model a first question"):
            is_asked = world.is_main and config.asks_task_model
            dialect = task_model.probe(choices) if is_asked else None
        task_model.dialect = distributed.broadcast(dialect)
        if config.task_model.log_answers_mib:
            with distributed.together("opening the file of questions"):
                _log_answers(task_model, world.rank, folder)
        if journal is not None and choices:
            journal.write_task_model({"model": config.task_model.model, "forced_choice": task_model.dialect})
        if world.is_main:
            engine = "" if config.method == "sft" else ", and its vLLM engine, about another minute"
            print(f"loading the policy, {config.policy.model}{engine}", flush=True)
        temperature = config.rollout.temperature
        weights = checkpoint.folder if checkpoint else None
        make = functools.partial(Policy, config.policy, config.training, world, temperature=temperature)
        trains = config.policy.lora is not None or any(one.training.takes_steps for one in stage_configs(config))
        policy = make(seed=config.seed, weights=weights, trainable=trains)
        reference = None
        if config.loss.beta and config.policy.lora:
            reference = policy.without_adapter()
        elif config.loss.beta and trains:
            moved = weights / REFERENCE if weights and config.loss.sync_ref_model else None
            reference = make(trainable=False, weights=moved)
        sampler = None
        if config.method == "grpo":
            sampler = Sampler(config.policy, config.rollout, tokenizer, world, seed=config.seed)
            stack.callback(sampler.close)
        # After the engine, whose start reseeds torch.
        _seed(config.seed + world.rank // config.rollout.vllm_tensor_parallel_size)
        states, asked = None, None
        if checkpoint is not None:
            with distributed.together("reading the checkpoint"):
                own = checkpoint.rank_state(world)
                if policy.is_trainable:
                    policy.load_optimizer_state(own["optimizer"])
                asked, states = own["task_model"], own["generators"]
        with distributed.together("reading the answers that were kept"):
            task_model.keep_answers(folder / ANSWERS, rank=world.rank, ranks=world.size, state=asked)
        yield Engines(world, tokenizer, policy, reference, sampler, task_model, journal, data or {}, checkpoint, states)


def reset_model(config: Config, engines: Engines) -> dict[str, Any]:
    """Takes the policy, and a reference that moves, back to the base model. A collective.

    Returns the proof, sums of |w|: of the base's weights, and of each rank's own weights and masters before and after.
    Raises RuntimeError where they are not the base's: the masters, of which each rank has its share, all together.
    """
    before = engines.policy.checksums()
    base = engines.policy.reset(config.policy)
    if engines.reference is not None and config.loss.sync_ref_model:
        engines.reference.reset(config.policy)
    ranks = distributed.gather({"before": before, "after": engines.policy.checksums()})
    after = [rank["after"]["weights"] for rank in ranks] + [sum(rank["after"]["masters"] for rank in ranks)]
    if not all(math.isclose(found, base, rel_tol=1e-9) for found in after):
        raise RuntimeError(f"after the reset the weights are not the base model's, {base}: {ranks}")
    if engines.world.is_main:
        was = ", ".join(f"{rank['before']['weights']:.10g}" for rank in ranks)
        print(f"the model is the base model again: sum of |w| {base:.10g} on every rank, before it {was}", flush=True)
    return {"base": base, "ranks": ranks}


def _log_answers(task_model: TaskModel, rank: int, folder: Path) -> None:
    name = f"asked_rank_{rank}.jsonl" if rank else "asked.jsonl"
    try:
        task_model.answer_log = AnswerLog(folder / name, task_model.settings.log_answers_mib * 2**20)
    except OSError as error:
        raise UserError(f"{folder / name}: cannot be written ({error}); set task_model.log_answers_mib 0") from error


@contextlib.contextmanager
def _task_model(config: Config, journal: Journal | None) -> Iterator[TaskModel]:
    """The task model at its endpoint, or behind a server that rank 0 starts."""
    with contextlib.ExitStack() as stack:
        with distributed.together("starting the task model"):
            base_url = config.task_model.base_url
            if not config.asks_task_model:
                base_url = "http://none"
            if base_url is None and journal is not None:
                log_path = journal.folder / "task_server.log"
                print(f"starting a vLLM server for the task model, about a minute; its log is {log_path}", flush=True)
                server = TaskServer(config.task_model, log_path=log_path)
                base_url = stack.enter_context(server).base_url
                stack.enter_context(server.blamed())
        base_url = distributed.broadcast(base_url)
        with distributed.together("reading the task model's key"):  # each machine has an environment of its own
            task_model = TaskModel(config.task_model, base_url=base_url, budget=config.budget)
        yield stack.enter_context(task_model)


@contextlib.contextmanager
def full_memory_told() -> Iterator[None]:
    """Turns torch's error of a full GPU into a UserError that says what takes less memory."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        fault = UserError(
            f"the GPU's memory is full: {str(error).split('. ')[0]}. What takes less of it: "
            "training.max_tokens_per_micro_batch or per_device_train_batch_size lower, logprob_chunk_tokens lower, "
            "policy.gradient_checkpointing, training.optim adamw_8bit, policy.grad_accum_dtype bfloat16, policy.lora, "
            "policy.offload_optimizer, policy.zero_stage 3 on several GPUs, rollout.sleep_level 1, a smaller "
            "kv_cache_gib or gpu_memory_utilization in rollout and task_model"
        )
        fault.on_every_rank = False
        raise fault from error


def _seed(seed: int) -> None:
    """The same on the ranks of one vLLM engine, which draw every token together."""
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)

"""A run: the data of its stages is checked, its engines are opened, and the trainer works with both."""

import contextlib
import logging

from prewrite.config import Config
from prewrite.config.loading import check_world
from prewrite.engine import agreement, distributed
from prewrite.engine.adapter import refuse_adapter
from prewrite.engine.compiling import refuse_compiling_without_compiler
from prewrite.engine.deepspeed_config import refuse_no_bitsandbytes
from prewrite.engine.length import refuse_too_long
from prewrite.engine.policy import load_tokenizer, quiet_libraries
from prewrite.engine.sampler import refuse_sleep_without_gpu
from prewrite.engine.task_server import refuse_no_served_model
from prewrite.plugins import faults_told, own_class
from prewrite.reporting.journal import Start, refuse_unwritable
from prewrite.reporting.trackers import refuse_missing_trackers
from prewrite.training.benchmarks import check_benchmarks, evaluate_benchmarks
from prewrite.training.callbacks import Callback, EarlyStopping
from prewrite.training.engines import open_engines
from prewrite.training.progress import Progress
from prewrite.training.saving import Checkpointing
from prewrite.training.stage import begin, load_stages, make_trainer


def run(config: Config, start: Start = "new", *, dry_run: bool = False, where: str = "config") -> None:
    """Trains as the config says. start: what to do with an earlier run in the run folder. dry_run: says what the run
    would ask, and ends; no model is loaded, nobody is asked, nothing is written. where: what messages call the config.

    Raises UserError for what the user can put right, before any model loads if it can.
    """
    quiet_libraries()
    world = distributed.start(config.training.ddp_timeout)
    with contextlib.ExitStack() as stack:
        stack.callback(distributed.stop)
        agreement.agree_on_program_and_config(config, world)
        with distributed.together("reading its data"):
            if not world.is_main:  # what there is to be told of the data, the main rank tells
                logging.disable(logging.WARNING)
            check_world(config, world.size, where)
            refuse_missing_trackers(config)
            refuse_sleep_without_gpu(config.rollout, world)
            refuse_compiling_without_compiler(config.policy)
            callbacks = make_callbacks(config)
            if config.policy.trust_remote_code and world.is_main:
                print(f"policy.trust_remote_code is on: Python code that comes with {config.policy.model} runs here")
            tokenizer = load_tokenizer(config.policy)
            if world.is_main and config.asks_task_model and config.task_model.base_url is None:
                refuse_no_served_model(config.task_model)
            refuse_no_bitsandbytes(config.policy, config.training)
            refuse_adapter(config.policy)
            refuse_too_long(config)
            stages = load_stages(config, tokenizer)
            of_benchmarks = check_benchmarks(config)
            choices = next((stage.choices for stage in stages if stage.choices), of_benchmarks)
            parts = {name: part for stage in stages for name, part in stage.shared_parts.items()}
            data = agreement.data_hashes(parts)
            logging.disable(logging.NOTSET)
        agreement.agree_on_data(data, world)
        if dry_run:
            if world.is_main:
                refuse_unwritable(config)
            for number, stage in enumerate(stages if world.is_main else (), start=1):
                print(f"stage {number} of {len(stages)}\n" * (len(stages) > 1) + stage.outlook(world.size))
            return
        engines = stack.enter_context(open_engines(config, world, tokenizer, choices, start, data))
        progress = engines.checkpoint.progress() if engines.checkpoint else Progress()
        for loaded in stages[progress.stage :]:
            stage = begin(loaded, config, engines, progress)
            trainer = make_trainer(stage, engines, progress, callbacks)
            totals = trainer.run()
            if stage.number == stages[-1].number:
                trainer.state.tell("on_train_end", totals)
        journal = engines.journal
        if journal is not None and config.evaluation.benchmarks and journal.best:
            evaluate_benchmarks(config, journal.folder, engines.task_model)


def make_callbacks(config: Config) -> list[Callback]:
    """Those of the run, in the order of their calls. Raises UserError for one of the user's own that is not there."""
    training = config.training
    callbacks: list[Callback] = []
    for name in training.callbacks:
        with faults_told(f"callback {name}"):
            callbacks.append(own_class("callback", name, Callback)())
    if training.early_stopping_patience is not None:
        callbacks.append(EarlyStopping(training.early_stopping_patience, training.early_stopping_threshold))
    return [*callbacks, Checkpointing()]

"""A run: its stage's data is checked, its engines are opened, and the trainer works with both."""

import contextlib

from prewrite.config import Config
from prewrite.config.loading import check_world
from prewrite.engine import agreement, distributed
from prewrite.engine.policy import load_tokenizer, quiet_libraries, refuse_compiling_without_compiler
from prewrite.engine.sampler import refuse_sleep_without_gpu
from prewrite.reporting.journal import Start
from prewrite.training.benchmarks import check_benchmarks, evaluate_benchmarks
from prewrite.training.engines import open_engines
from prewrite.training.progress import Progress
from prewrite.training.stage import load_stage, make_objective
from prewrite.training.trainer import Trainer


def run(config: Config, start: Start = "new") -> None:
    """Trains as the config says. start: what to do with an earlier run in the run folder.

    Raises UserError for what the user can put right, before any model loads if it can.
    """
    quiet_libraries()
    world = distributed.start(config.training.ddp_timeout)
    with contextlib.ExitStack() as stack:
        stack.callback(distributed.stop)
        agreement.agree_on_program_and_config(config, world)
        with distributed.together("reading its data"):
            check_world(config, world.size)
            refuse_sleep_without_gpu(config.rollout, world)
            refuse_compiling_without_compiler(config.policy)
            tokenizer = load_tokenizer(config.policy)
            stage = load_stage(config, tokenizer)
            check_benchmarks(config)
        agreement.agree_on_data(stage.shared_parts, world)
        engines = stack.enter_context(open_engines(config, world, tokenizer, stage.choices, start))
        progress = engines.checkpoint.progress() if engines.checkpoint else Progress()
        Trainer(config, engines, make_objective(stage, engines, progress), progress).run()
        if engines.journal is not None and stage.data.dev and config.evaluation.benchmarks:
            evaluate_benchmarks(config, engines.journal.folder, engines.task_model)

"""What a stage brings: one resolved config with its data and rewards, checked; how it begins where the one before it
ended; and the trainer made of them."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from prewrite.config import Config
from prewrite.config.loading import stage_configs
from prewrite.engine import distributed
from prewrite.errors import UserError
from prewrite.reporting.written import Written
from prewrite.tasks.rows import row_names
from prewrite.training.callbacks import Callback
from prewrite.training.engines import Engines, reset_model
from prewrite.training.loop import Loop
from prewrite.training.objectives.base import Objective
from prewrite.training.objectives.budget import Budget
from prewrite.training.objectives.call_plan import outlook, refuse_no_race
from prewrite.training.objectives.held_out import HeldOutQuestions
from prewrite.training.objectives.requests import Requests
from prewrite.training.objectives.rewrite import Rewrite
from prewrite.training.objectives.rewrite_data import RewriteData, load_rewrite_data
from prewrite.training.objectives.selection import Selection
from prewrite.training.objectives.solve import Solve
from prewrite.training.objectives.solve_data import SolveData, load_solve_data
from prewrite.training.progress import Progress, Winner
from prewrite.training.rollout import build_request, build_requests, rows_that_fit
from prewrite.training.schedule import total_steps
from prewrite.training.sft import SFTTrainer
from prewrite.training.sft_data import SFTStage, load_sft_stage
from prewrite.training.trainer import Trainer
from prewrite.types import InstructionRow


@dataclass(frozen=True)
class Stage:
    """number: from 0. held_out_requests: token ids by held-out row of the data. brings_instructions: its rows do not
    start from what earlier stages found."""

    number: int
    config: Config
    data: RewriteData
    requests: Requests
    held_out_requests: Sequence[Sequence[int]]
    brings_instructions: bool

    @property
    def choices(self) -> tuple[str, ...]:
        """Labels that the task model will be forced to choose from; () where no answer is forced."""
        if self.config.task_model.scoring != "forced_choice":
            return ()
        return next((task.labels for task in self.data.tasks.values() if task.kind == "classification"), ())

    @property
    def shared_parts(self) -> dict[str, object]:
        """What every rank must have read alike, by name."""
        data, requests = self.data, (self.requests.initial, self.held_out_requests)
        parts = {
            "the instruction rows": (data.rows, data.held_out_rows),
            "the requests, by the policy's tokenizer and chat template": requests,
            "the train examples": data.train,
            "the dev examples": data.dev,
        }
        return {f"{name}{f', stage {self.number + 1}' if self.number else ''}": part for name, part in parts.items()}

    def outlook(self, world_size: int) -> str:
        """What the stage will spend, in words."""
        steps = total_steps(self.config, len(self.data.rows), self.config.groups_per_batch(world_size))
        return outlook(self.config, self.data, steps, world_size)


@dataclass(frozen=True)
class SolveStage:
    """A stage whose problems the policy solves itself."""

    number: int
    config: Config
    data: SolveData
    choices: tuple[str, ...] = ()

    @property
    def shared_parts(self) -> dict[str, object]:
        """What every rank must have read alike, by name."""
        problems = [[(one.task.name, one.example) for one in part] for part in (self.data.train, self.data.held_out)]
        requests = [[one.request for one in part] for part in (self.data.train, self.data.held_out)]
        parts = {"the problems": problems, "the requests, by the policy's tokenizer and chat template": requests}
        return {f"{name}{f', stage {self.number + 1}' if self.number else ''}": part for name, part in parts.items()}

    def outlook(self, world_size: int) -> str:
        """What the stage will do, in words."""
        steps = total_steps(self.config, len(self.data.train), self.config.groups_per_batch(world_size))
        return self.data.outlook(self.config, steps, world_size)


AnyStage = Stage | SolveStage | SFTStage


def load_stages(config: Config, tokenizer: Any) -> Sequence[AnyStage]:
    """Reads and checks all that needs no model, of every stage. Raises UserError."""
    if config.method == "sft":
        return [load_sft_stage(config, tokenizer)]
    stages, loaded = [], {}
    configs = stage_configs(config)
    for number, own in enumerate(configs):
        if own.objective == "solve":
            stages.append(SolveStage(number, own, load_solve_data(own, tokenizer)))
            continue
        read_from = json.dumps([own.data.model_dump(), own.reward.model_dump()])
        data = loaded[read_from] = loaded.get(read_from) or load_rewrite_data(own)
        if own.data.too_long == "drop":
            data = _without_long_rows(data, own, tokenizer)
        refuse_no_race(own, data, len(configs))
        held_out_requests = build_requests(data.held_out_rows, tokenizer, own.rollout)
        brings_instructions = bool(config.stages) and config.stages[number].brings_instructions
        requests = Requests(own, data.rows, tokenizer)
        stages.append(Stage(number, own, data, requests, held_out_requests, brings_instructions))
    return stages


def _without_long_rows(data: RewriteData, config: Config, tokenizer: Any) -> RewriteData:
    rows = held_out = rows_that_fit(data.rows, tokenizer, config.rollout, "instruction rows")
    if data.held_out_rows is not data.rows:
        held_out = rows_that_fit(data.held_out_rows, tokenizer, config.rollout, "held-out rows")
    return replace(data, rows=rows, held_out_rows=held_out)


def begin(stage: AnyStage, config: Config, engines: Engines, progress: Progress) -> AnyStage:
    """The stage as it starts, or goes on: from the best instructions, and with `reset_model` from the base model.

    config: the whole run's. A collective.
    """
    if stage.number > progress.stage:
        progress.next_stage(Budget(config.budget, engines.task_model, progress).update())
        if config.reset_model and engines.policy.is_trainable:
            proof = reset_model(config, engines)
            if engines.journal is not None:
                engines.journal.write_step({"step": progress.step, "stage": stage.number, "reset": proof})
    progress.winners = distributed.broadcast(progress.winners)
    total = len(config.stages) or config.num_stages
    if total > 1 and engines.world.is_main:
        print(f"stage {stage.number + 1} of {total}", flush=True)
    if not isinstance(stage, Stage) or stage.brings_instructions:
        return stage
    return _from_winners(stage, progress.winners, engines.tokenizer)


def _from_winners(stage: Stage, winners: Mapping[str, Winner], tokenizer: Any) -> Stage:
    """The stage with each row at its best instruction; a row that is a question by itself has none."""
    data, settings = stage.data, stage.config.rollout
    if not data.dev or not winners:
        return stage
    names = row_names(data.rows)
    rows = [
        replace(row, instruction=winners[name].instruction) if name in winners else row
        for name, row in zip(names, data.rows, strict=True)
    ]

    def askable(row: InstructionRow, own: InstructionRow) -> InstructionRow:
        try:
            build_request(row, tokenizer, settings)
        except UserError:  # the best is too long for a request: it stays what is to be beaten
            return own
        return row

    requests = Requests(stage.config, list(map(askable, rows, data.rows)), tokenizer)
    data = replace(data, rows=rows, held_out_rows=rows)
    return replace(stage, data=data, requests=requests, held_out_requests=requests.initial)


def make_trainer(stage: AnyStage, engines: Engines, progress: Progress, callbacks: Sequence[Callback]) -> Loop:
    """What trains on the stage."""
    if isinstance(stage, SFTStage):
        return SFTTrainer(stage, engines, progress, callbacks)
    return Trainer(stage.config, engines, make_objective(stage, engines, progress), progress, callbacks)


def make_objective(stage: Stage | SolveStage, engines: Engines, progress: Progress) -> Objective:
    """What the trainer trains on."""
    if isinstance(stage, SolveStage):
        return Solve(stage.config, stage.data, engines.world, engines.journal, progress)
    config, data, task_model, journal = stage.config, stage.data, engines.task_model, engines.journal
    held_out = None
    if journal is not None:
        journal.row_names = dict(zip(data.rows, row_names(data.rows), strict=True))
    if journal is not None and data.dev:
        held_out = Selection(config, data, task_model, journal, progress)
    elif journal is not None:
        held_out = HeldOutQuestions(config, data, task_model, journal, stage.number)
    written = Written(journal.folder, progress.step) if journal is not None else None
    return Rewrite(config, data, stage.requests, stage.held_out_requests, task_model, held_out, progress, written)

"""What a stage brings: one resolved config with its data and rewards, checked; and the objective made of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from prewrite.config import Config
from prewrite.training.engines import Engines
from prewrite.training.objectives.base import Objective
from prewrite.training.objectives.held_out import HeldOutQuestions
from prewrite.training.objectives.requests import Requests
from prewrite.training.objectives.rewrite import Rewrite
from prewrite.training.objectives.rewrite_data import RewriteData, load_rewrite_data
from prewrite.training.objectives.selection import Selection
from prewrite.training.objectives.solve import Solve
from prewrite.training.objectives.solve_data import SolveData, load_solve_data
from prewrite.training.progress import Progress
from prewrite.training.rollout import build_requests


@dataclass(frozen=True)
class Stage:
    """held_out_requests: token ids by held-out row of the data."""

    config: Config
    data: RewriteData
    requests: Requests
    held_out_requests: Sequence[Sequence[int]]

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
        return {
            "the instruction rows": (data.rows, data.held_out_rows),
            "the requests, by the policy's tokenizer and chat template": requests,
            "the train examples": data.train,
            "the dev examples": data.dev,
        }


@dataclass(frozen=True)
class SolveStage:
    """A stage whose problems the policy solves itself."""

    config: Config
    data: SolveData
    choices: tuple[str, ...] = ()

    @property
    def shared_parts(self) -> dict[str, object]:
        """What every rank must have read alike, by name."""
        problems = [[(one.task.name, one.example) for one in part] for part in (self.data.train, self.data.held_out)]
        requests = [[one.request for one in part] for part in (self.data.train, self.data.held_out)]
        return {"the problems": problems, "the requests, by the policy's tokenizer and chat template": requests}


def load_stage(config: Config, tokenizer: Any) -> Stage | SolveStage:
    """Reads and checks all that needs no model. Raises UserError."""
    if config.objective == "solve":
        return SolveStage(config, load_solve_data(config, tokenizer))
    data = load_rewrite_data(config)
    held_out_requests = build_requests(data.held_out_rows, tokenizer, config.rollout)
    return Stage(config, data, Requests(config, data, tokenizer), held_out_requests)


def make_objective(stage: Stage | SolveStage, engines: Engines, progress: Progress) -> Objective:
    """What the trainer trains on."""
    if isinstance(stage, SolveStage):
        return Solve(stage.config, stage.data, engines.world, engines.journal, progress)
    config, data, task_model, journal = stage.config, stage.data, engines.task_model, engines.journal
    held_out = None
    if journal is not None and data.dev:
        held_out = Selection(config, data, task_model, journal, progress)
    elif journal is not None:
        held_out = HeldOutQuestions(config, data, task_model, journal)
    return Rewrite(config, data, stage.requests, stage.held_out_requests, task_model, held_out, progress)

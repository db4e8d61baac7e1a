"""What a stage brings: one resolved config with its data and rewards, checked; and the objective made of them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from prewrite.config import Config
from prewrite.training.engines import Engines
from prewrite.training.objectives.base import Objective
from prewrite.training.objectives.held_out import HeldOutQuestions
from prewrite.training.objectives.requests import Requests
from prewrite.training.objectives.rewrite import Rewrite
from prewrite.training.objectives.rewrite_data import RewriteData, load_rewrite_data
from prewrite.training.objectives.selection import Selection
from prewrite.training.progress import Progress
from prewrite.training.rollout import build_requests, rows_that_fit


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


def load_stage(config: Config, tokenizer: Any) -> Stage:
    """Reads and checks all that needs no model. Raises UserError."""
    data = load_rewrite_data(config)
    if config.data.too_long == "drop":
        rows = held_out = rows_that_fit(data.rows, tokenizer, config.rollout, "instruction rows")
        if data.held_out_rows is not data.rows:
            held_out = rows_that_fit(data.held_out_rows, tokenizer, config.rollout, "held-out rows")
        data = replace(data, rows=rows, held_out_rows=held_out)
    held_out_requests = build_requests(data.held_out_rows, tokenizer, config.rollout)
    return Stage(config, data, Requests(config, data, tokenizer), held_out_requests)


def make_objective(stage: Stage, engines: Engines, progress: Progress) -> Objective:
    """What the trainer trains on."""
    config, data, task_model, journal = stage.config, stage.data, engines.task_model, engines.journal
    held_out = None
    if journal is not None and data.dev:
        held_out = Selection(config, data, task_model, journal, progress)
    elif journal is not None:
        held_out = HeldOutQuestions(config, data, task_model, journal)
    return Rewrite(config, data, stage.requests, stage.held_out_requests, task_model, held_out, progress)

"""TensorBoard and W&B beside the run folder: what the journal writes, they show.

A tracker that fails while the run goes on is told once and left out: the run folder is the truth.
"""

import html
import importlib.util
import json
import os
import secrets
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from prewrite.config import Config
from prewrite.errors import UserError

ROLLOUT_COLUMNS = ("step", "dataset_name", "instruction", "rewrite", "reward", "advantage")


def refuse_missing_trackers(config: Config) -> None:
    """UserError where `report_to` names a package that is not installed; loads none of them."""
    missing = [name for name in config.tracking.report_to if importlib.util.find_spec(name) is None]
    if missing:
        raise UserError(
            f"tracking.report_to: {' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} not installed here: "
            "pip install -r requirements-tracking.txt, or leave it out of report_to (metrics.jsonl has every number)"
        )


def open_trackers(config: Config, folder: Path, *, resumed: bool) -> "list[Tracker]":
    """A tracker for each name in `report_to`. Raises UserError where one cannot start."""
    return [_OPENERS[name](config, folder, resumed) for name in dict.fromkeys(config.tracking.report_to)]


class TensorBoard:
    """Scalars by key, rollouts and the best instructions as text, in the folder `tensorboard` of the run."""

    def __init__(self, config: Config, folder: Path, resumed: bool):
        from torch.utils.tensorboard import SummaryWriter

        self._folder = str(folder / "tensorboard")
        self._open: Callable[..., Any] = SummaryWriter
        # What an earlier start wrote after the checkpoint is hidden from the first step on that comes again.
        self._writer: Any = None if resumed else self._open(self._folder)

    def log_step(self, metrics: Mapping[str, Any]) -> None:
        """A line of metrics.jsonl."""
        step = int(metrics["step"])
        for key, value in _numbers(metrics).items():
            self._at(step).add_scalar(key, value, step)
        self._at(step).flush()

    def log_rollouts(self, step: int, rows: Sequence[Mapping[str, Any]]) -> None:
        """Some lines of log.jsonl, of one batch."""
        lines = [f"| {' | '.join(ROLLOUT_COLUMNS)} |", "|" + " --- |" * len(ROLLOUT_COLUMNS)]
        lines += [f"| {' | '.join(_cell(row.get(column)) for column in ROLLOUT_COLUMNS)} |" for row in rows]
        self._at(step).add_text("rollouts", "\n".join(lines), step)

    def log_best(self, best: Mapping[str, Any]) -> None:
        """best.json."""
        for name, entry in best.items():
            self._at(0).add_text(f"best/{name}", _cell(entry["instruction"]), entry["step"])

    def close(self) -> None:
        """The run ends, or is broken off."""
        if self._writer is not None:
            self._writer.close()

    def _at(self, step: int) -> Any:
        if self._writer is None:
            self._writer = self._open(self._folder, purge_step=step)
        return self._writer


class WeightsAndBiases:
    """As TensorBoard: a table of rollouts a batch, the best instructions in the summary. One id a run folder, so that a
    resumed run goes on where it was."""

    def __init__(self, config: Config, folder: Path, resumed: bool):
        import wandb  # pyright: ignore[reportMissingImports]  # optional

        path = folder / "wandb_id"
        if not path.exists():
            path.write_text(secrets.token_hex(4))
        offline = os.environ.get("WANDB_MODE") in ("offline", "disabled", "dryrun")
        try:
            if not offline and not wandb.login(prompt=False):
                raise UserError(
                    "tracking.report_to: wandb knows no key here: `wandb login`, or the environment variable "
                    "WANDB_API_KEY, or WANDB_MODE=offline, which writes into the run folder (`wandb sync` sends it)"
                )
            self._run: Any = wandb.init(
                project=config.tracking.project,
                group=config.tracking.group,
                name=config.run_name,
                id=path.read_text().strip(),
                resume="allow",
                config=config.model_dump(),
                dir=str(folder),
                settings=wandb.Settings(silent=True, console="off", disable_git=True, save_code=False),
            )
        except wandb.Error as error:
            raise UserError(f"tracking.report_to: wandb cannot start: {error}") from error
        self._table: Callable[..., Any] = wandb.Table
        self._run.define_metric("step")
        self._run.define_metric("*", step_metric="step")

    def log_step(self, metrics: Mapping[str, Any]) -> None:
        self._run.log({"step": metrics["step"], **_numbers(metrics)})

    def log_rollouts(self, step: int, rows: Sequence[Mapping[str, Any]]) -> None:
        columns = list(ROLLOUT_COLUMNS)
        data = [[row.get(column) for column in columns] for row in rows]
        self._run.log({"step": step, "rollouts": self._table(columns=columns, data=data)})

    def log_best(self, best: Mapping[str, Any]) -> None:
        self._run.summary["best"] = json.loads(json.dumps(best, default=str))

    def close(self) -> None:
        self._run.finish()


Tracker = TensorBoard | WeightsAndBiases
_OPENERS: Mapping[str, type[Tracker]] = {"tensorboard": TensorBoard, "wandb": WeightsAndBiases}


def _numbers(metrics: Mapping[str, Any]) -> dict[str, float]:
    return {key: float(value) for key, value in metrics.items() if key != "step" and isinstance(value, int | float)}


def _cell(value: Any) -> str:
    """A text in a table of Markdown, whatever a model wrote."""
    return html.escape(" ".join(str("" if value is None else value).split())).replace("|", "\\|")

"""Callbacks: what a run does beside its loop hangs on the loop's events (docs/callbacks.md).

Checkpoints (`saving.py`) and early stopping hang there, and what `training.callbacks` names.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from prewrite.config import Config
from prewrite.engine import distributed
from prewrite.errors import UserError
from prewrite.plugins import faults_told
from prewrite.training.engines import Engines
from prewrite.training.progress import Progress
from prewrite.types import Rollout

Event = Literal["on_step_end", "on_batch_end", "on_save", "on_stage_end", "on_train_end"]


class Callback:
    """Base of every callback: each method is called on every rank, at the same point, and does nothing here.

    One that raises ends the run.
    """

    def on_step_end(self, run: "TrainingState", metrics: Mapping[str, float]) -> None:
        """An optimizer step is written down. metrics: its line; step 0: the look before training.

        Looks (`dev_...`) are in it on rank 0 alone.
        """

    def on_batch_end(self, run: "TrainingState", rollouts: Sequence[Rollout]) -> None:
        """A rollout batch and its steps are written down, and whether training goes on is agreed on: `run.over`.

        In SFT, a step; there are no rollouts.
        """

    def on_save(self, run: "TrainingState", folder: Path) -> None:
        """A checkpoint is whole."""

    def on_stage_end(self, run: "TrainingState", metrics: Mapping[str, float]) -> None:
        """The best instruction is chosen and tested: `run.engines.journal.best`. metrics: as in a look."""

    def on_train_end(self, run: "TrainingState", totals: Mapping[str, float]) -> None:
        """The run is done, and its totals are written; not where it was interrupted or failed."""


@dataclass
class TrainingState:
    """What callbacks see of a run, and where they ask it to stop.

    total_steps: optimizer steps of the whole run. first_step: the first one of this rollout batch. over: why training
    ends with this batch, "" where it goes on. interrupted: the run leaves after this batch, by a signal.
    """

    config: Config
    engines: Engines
    progress: Progress
    total_steps: int
    callbacks: Sequence[Callback] = ()
    first_step: int = 1
    over: str = ""
    interrupted: bool = False
    _wishes: list[str] = field(default_factory=list)

    def stop(self, why: str) -> None:
        """Ends training with this batch, as after its last step: the best is chosen. One rank that asks is enough.

        It counts in `on_step_end`.
        """
        self._wishes.append(why)

    def agree(self, over: str, interrupted: bool) -> None:
        """Sets `over`, from the loop's own reason or any rank's wish, and `interrupted`. A collective."""
        wishes = [wish for own in distributed.gather(self._wishes) for wish in own]
        self.over, self.interrupted = next(filter(None, [over, *wishes]), ""), interrupted
        self._wishes.clear()

    def due(self, every: int) -> bool:
        """Whether one of this batch's steps so far is a multiple of `every`; 0 = never."""
        return bool(every) and self.progress.step // every > (self.first_step - 1) // every

    def kept(self, name: str) -> dict[str, Any]:
        """A record of JSON values that a resume restores, from rank 0; by the callback's name."""
        return self.progress.kept.setdefault(name, {})

    def tell(self, event: Event, *args: Any) -> None:
        """Calls every callback, in their order."""
        for callback in self.callbacks:
            kind = type(callback)
            try:
                with faults_told("" if kind.__module__.startswith("prewrite.") else f"callback {kind.__qualname__}"):
                    getattr(callback, event)(self, *args)
            except UserError as error:
                error.on_every_rank = False
                raise


class EarlyStopping(Callback):
    """Ends training once `patience` looks running brought no gain of more than `threshold`.

    What has to gain is the estimate of the best instruction (`dev_best`), the mean over rows; where rows are questions
    by themselves, and in SFT, the policy's own score (`policy_score`).
    """

    def __init__(self, patience: int, threshold: float):
        self.patience, self.threshold = patience, threshold

    def on_step_end(self, run: TrainingState, metrics: Mapping[str, float]) -> None:
        """Compares a look with the best one so far."""
        scores = [value for key, value in metrics.items() if key.startswith("dev_best/")]
        score = sum(scores) / len(scores) if scores else policy_score(metrics)
        if score is None:
            return
        kept = run.kept("early_stopping")
        if score > kept.get("best", float("-inf")) + self.threshold:
            kept |= {"best": score, "looks_since": 0}
            return
        kept["looks_since"] += 1
        if kept["looks_since"] >= self.patience:
            run.stop(
                f"{self.patience} looks running brought nothing better than {abs(kept['best']):.3f} "
                "(training.early_stopping_patience)"
            )

    def on_stage_end(self, run: TrainingState, metrics: Mapping[str, float]) -> None:
        """The next stage has other examples to gain on."""
        run.kept("early_stopping").clear()


def policy_score(metrics: Mapping[str, float]) -> float | None:
    """A look's mean score of sampled rewrites, or else of greedy ones; of SFT the held-out loss, with its sign changed.

    None where there was no look.
    """
    if "dev_loss" in metrics:
        return -metrics["dev_loss"]
    for kind in ("dev_sampled", "dev_greedy"):
        if scores := [value for key, value in metrics.items() if key.startswith(kind)]:
            return sum(scores) / len(scores)
    return None

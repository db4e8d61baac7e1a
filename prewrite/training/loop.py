"""The loop around batches, whatever is learned in one: the first look, steps until there are enough, the end.

A subclass says what a batch is: `trainer.py` (GRPO), `sft.py`.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch

from prewrite.config import Config
from prewrite.engine import distributed
from prewrite.errors import UserError
from prewrite.report import try_report
from prewrite.reporting.console import Console
from prewrite.training.callbacks import Callback, TrainingState
from prewrite.training.checkpoint import set_generators
from prewrite.training.engines import Engines
from prewrite.training.progress import Progress
from prewrite.training.schedule import learning_rate_at, why_over
from prewrite.training.stopping import Stopping
from prewrite.types import Rollout

_RESUME = "The same command with --resume goes on from the last checkpoint, where there is one."


class Loop(ABC):
    """Training from the first look to the end of the run. Every method is called on every rank.

    stage_steps: optimizer steps of the stage.
    """

    def __init__(
        self,
        config: Config,
        engines: Engines,
        progress: Progress,
        stage_steps: int,
        callbacks: Sequence[Callback] = (),
    ):
        self.config, self.engines, self.progress, self.stage_steps = config, engines, progress, stage_steps
        self.world = engines.world
        self.total_steps = progress.stage_start + stage_steps
        self.state = TrainingState(config, engines, progress, self.total_steps, callbacks)
        self.seconds: dict[str, float] = {}

    @abstractmethod
    def _begin(self, console: Console) -> None:
        """Says what will be done, and makes ready for it."""

    @abstractmethod
    def _train_on_batch(self, console: Console) -> tuple[Sequence[Rollout], str]:
        """One batch and the optimizer steps on it, each written down when it ends; its rollouts, and `_why_over`."""

    @abstractmethod
    def _look(self) -> dict[str, float]:
        """The held-out scores at this step, as the step's line shows them."""

    def _why_over(self) -> str:
        """Why no batch comes after this one; "" where one does. The same on every rank."""
        return why_over(self.progress, self.total_steps)

    def _finish(self) -> dict[str, float]:
        """What training ends with."""
        return {}

    def _counts(self) -> dict[str, float]:
        """What the run has spent, by the name of the metric."""
        return {}

    def _summary(self) -> str:
        """The end in words, on rank 0; "" where there is nothing to say."""
        return ""

    def run(self) -> dict[str, float]:
        """Trains to the stage's last step, and ends it. Returns the run's totals so far.

        Raises UserError past the share of failed calls.
        """
        console = Console(self.total_steps, is_main=self.world.is_main)
        try:
            self._begin(console)
            console.bar.update(self.progress.step)
            if self.progress.step == self.progress.stage_start:
                self._evaluate_untrained(console)
            elif self.engines.generators is not None:  # after all that starting an engine and pushing draws
                set_generators(self.engines.generators, self.world)
            self.state.agree(self._why_over(), interrupted=False)
            with Stopping() as stopping:
                while not self.state.over:
                    rollouts, over = self._train_on_batch(console)
                    self.state.agree(over, interrupted=stopping.agreed())
                    self.state.tell("on_batch_end", rollouts)
                    if self.state.interrupted:
                        raise KeyboardInterrupt
            if self.stage_steps:
                console.say(f"training ends after step {self.progress.step}: {self.state.over}")
            else:
                console.say("nothing is trained: rewrites of the policy as it is are searched")
            self.state.tell("on_stage_end", self._finish())
            seconds = time.perf_counter() - self.engines.opened
            totals = {"steps": self.progress.step, "seconds": seconds} | self._counts()
        except UserError as error:
            if "--resume" not in str(error):
                error.args = (f"{error} {_RESUME}",)
            raise
        finally:
            console.close()
        if self.engines.journal is not None:
            self.engines.journal.write_totals(totals)
            if summary := self._summary():
                console.say(summary)
            if failed := totals.get("failed_calls"):
                of_all = f"{failed:,.0f} of {totals['task_calls']:,.0f}"
                console.say(f"FAILED CALLS {of_all}: against a rewrite in looks, races and tests, in no score")
            console.say(try_report(self.engines.journal.folder))
            console.say(f"run folder: {self.engines.journal.folder}")
        return totals

    def _learning_rate(self) -> float:
        return learning_rate_at(self.progress.step - self.progress.stage_start, self.stage_steps, self.config.training)

    def _evaluate_untrained(self, console: Console) -> None:
        shown = self._look()
        self._write_first_look(shown)
        scores = ", ".join(f"{key.removeprefix('dev_')} {value:.3f}" for key, value in shown.items())
        console.say(f"before training, on held-out examples: {scores}")
        self.state.tell("on_step_end", self._place() | shown)

    def _write_first_look(self, shown: Mapping[str, float]) -> None:
        if self.engines.journal is not None:
            self.engines.journal.write_step({**self._place(), **shown})

    def _place(self) -> dict[str, float]:
        return {"step": self.progress.step, "stage": self.progress.stage}

    def _write_down(self, metrics: dict[str, float], console: Console, started: float) -> None:
        metrics |= {f"seconds/{phase}": seconds for phase, seconds in self.seconds.items()}
        metrics["seconds/step"] = time.perf_counter() - started
        with distributed.together("writing a step down"):
            if self.engines.journal is not None:
                self.engines.journal.write_step(metrics)
        is_due = self.progress.step % self.config.training.logging_steps == 0 or self.progress.step >= self.total_steps
        console.step(metrics, shown=is_due)
        self.state.tell("on_step_end", metrics)

    @contextmanager
    def _clock(self, phase: str) -> Iterator[None]:
        started = time.perf_counter()
        yield
        if self.world.device.type == "cuda":
            torch.cuda.synchronize()
        self.seconds[phase] = self.seconds.get(phase, 0.0) + time.perf_counter() - started

"""Callbacks: early stopping, the order and the words of what they do, and one of the user's own."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from prewrite.config.loading import load_config
from prewrite.engine.distributed import World
from prewrite.errors import UserError
from prewrite.reporting.console import Console
from prewrite.training import saving
from prewrite.training.callbacks import Callback, EarlyStopping, TrainingState
from prewrite.training.loop import Loop
from prewrite.training.progress import Progress
from prewrite.training.run import make_callbacks
from prewrite.training.saving import Checkpointing
from prewrite.types import Rollout


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A world of one rank, without a process group."""
    monkeypatch.setattr("prewrite.training.callbacks.distributed.gather", lambda value: [value])


def state(*callbacks: Callback, settings: Sequence[str] = (), engines: Any = None) -> TrainingState:
    return TrainingState(load_config("configs/quickstart.json", settings), engines, Progress(), 9, callbacks)


def looked(run: TrainingState, *scores: float) -> str:
    """Why training ends after looks with these estimates; "" where it goes on."""
    for score in scores:
        run.tell("on_step_end", {"step": 1, "dev_best/a": score - 0.1, "dev_best/b": score + 0.1, "dev_greedy/a": 9.0})
        run.tell("on_step_end", {"step": 2, "reward": 0.0})  # no look, so none without a gain
    run.agree("", interrupted=False)
    return run.over


def test_early_stopping_counts_looks_without_a_gain() -> None:
    run = state(EarlyStopping(2, 0.01))
    assert looked(run, 0.5, 0.505, 0.52) == ""
    assert looked(run, 0.52) == ""
    assert "2 looks running brought nothing better than 0.520" in looked(run, 0.529)


def test_early_stopping_goes_on_counting_after_a_resume() -> None:
    first = state(EarlyStopping(2, 0.0))
    assert looked(first, 0.5, 0.4) == ""
    second = state(EarlyStopping(2, 0.0))
    second.progress = Progress.from_json(first.progress.to_json())
    assert looked(second, 0.45) != ""


def test_early_stopping_without_looks_is_refused() -> None:
    with pytest.raises(UserError, match="eval_steps is 0"):
        load_config("configs/quickstart.json", ["early_stopping_patience=2", "eval_steps=0"])


def test_a_batch_is_saved_where_it_is_due_the_last_or_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    saved: list[tuple[int, float | None]] = []

    def save(config: Any, engines: Any, progress: Progress, score: float | None) -> Path:
        saved.append((progress.step, score))
        return Path("step")

    monkeypatch.setattr(saving, "save_checkpoint", save)

    class Sampler:
        def forget_prefixes(self) -> None: ...

    run = state(
        Heard(), Checkpointing(), settings=["save_steps=4"], engines=type("Engines", (), {"sampler": Sampler()})
    )
    for first, last, over, interrupted in ((1, 3, "", False), (4, 6, "", False), (7, 7, "", True), (8, 8, "x", False)):
        run.first_step, run.progress.step = first, last
        run.tell("on_step_end", {"step": last, **({"dev_greedy/a": 0.25, "dev_greedy/b": 0.75} if last == 6 else {})})
        run.agree(over, interrupted)
        run.tell("on_batch_end", [])
    assert saved == [(6, 0.5), (7, None), (8, None)]
    assert run.kept("heard") == {"saves": 3}


class Heard(Callback):
    """One of the user's own: keeps count, asks for a stop, raises."""

    def on_step_end(self, run: TrainingState, metrics: Mapping[str, float]) -> None:
        if metrics["step"] == 99:
            run.stop("enough")

    def on_batch_end(self, run: TrainingState, rollouts: Sequence[Rollout]) -> None:
        if rollouts:
            raise KeyError("mine")

    def on_save(self, run: TrainingState, folder: Path) -> None:
        run.kept("heard")["saves"] = run.kept("heard").get("saves", 0) + 1


def test_one_of_the_users_own_stops_a_run_and_its_faults_are_told_as_its_own() -> None:
    (own, last) = make_callbacks(load_config("configs/quickstart.json", ['callbacks=["tests.test_callbacks:Heard"]']))
    assert isinstance(last, Checkpointing)
    run = state(own)
    run.tell("on_step_end", {"step": 99})
    run.agree("", interrupted=False)
    assert run.over == "enough"
    run.agree("", interrupted=False)
    assert run.over == "", "a wish counts once"
    with pytest.raises(UserError, match=r"callback Heard: it raised KeyError: 'mine' \(.*test_callbacks\.py, line \d+"):
        run.tell("on_batch_end", [object()])


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("tests.test_callbacks", "is named package.module:class"),
        ("tests.nowhere:Heard", "there is no module"),
        ("tests.test_callbacks:Path", "has no class 'Path' that inherits from prewrite.training.callbacks.Callback"),
        ("tests.test_callbacks:state", "has no class 'state'"),
    ],
)
def test_a_callback_that_is_not_there_is_told(name: str, words: str) -> None:
    with pytest.raises(UserError, match=words):
        make_callbacks(load_config("configs/quickstart.json", [f'callbacks=["{name}"]']))


class Unanswered(Loop):
    """A loop whose first batch ends in this fault."""

    fault = ""

    def _begin(self, console: Console) -> None: ...

    def _look(self) -> dict[str, float]:
        return {}

    def _train_on_batch(self, console: Console) -> tuple[Sequence[Rollout], str]:
        raise UserError(self.fault)


@pytest.mark.parametrize(("fault", "told"), [("Look at it.", 1), ("make room, then go on with --resume", 0)])
def test_a_run_that_a_fault_ends_says_how_it_goes_on(fault: str, told: int) -> None:
    world = World(0, 1, torch.device("cpu"))
    engines: Any = SimpleNamespace(world=world, generators=None, journal=None, opened=0.0)
    loop = Unanswered(load_config("configs/quickstart.json"), engines, Progress(), 9)
    loop.fault = fault
    with pytest.raises(UserError) as caught:
        loop.run()
    assert str(caught.value).startswith(fault)
    assert str(caught.value).count(" The same command with --resume goes on from the last checkpoint") == told

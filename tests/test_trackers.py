"""What mirrors the run folder: every metric is explained, and TensorBoard and W&B show what the journal wrote."""

import importlib.util
import json
import os
import struct
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch

from prewrite.algorithm.losses import LossTensors, StepTotals, policy_loss
from prewrite.algorithm.metrics import metric_values
from prewrite.config import LossSettings
from prewrite.config.loading import load_config
from prewrite.errors import UserError
from prewrite.reporting import trackers
from prewrite.reporting.console import step_line
from prewrite.reporting.journal import Journal
from prewrite.training.run import run as train
from prewrite.training.step_metrics import rollout_metrics
from prewrite.types import InstructionRow, Rollout, Sample
from tests.metrics_page import CONSOLE_WORDS, explained

CONFIG = "configs/quickstart.json"
INSTALLED = [name for name in ("tensorboard", "wandb") if importlib.util.find_spec(name)]
if len(INSTALLED) < 2:
    warnings.warn(f"trackers are tested with {INSTALLED} alone: pip install -r requirements-tracking.txt", stacklevel=1)


def needs(name: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(name not in INSTALLED, reason=f"{name} is not installed: requirements-tracking.txt")


def rollout(rewrite: str, reward: float | None) -> Rollout:
    row = InstructionRow("Classify.", "sst2")
    return Rollout(
        Sample((1,), (2,), (0.0,), rewrite, "stop"), row, 0, rewrite, reward, {"length_penalty": reward}, 0.5
    )


def journal_with(tmp_path: Path, *settings: str) -> Journal:
    config = load_config(CONFIG, [f"output_dir={tmp_path}", *settings])
    journal = Journal(config)
    journal.open_trackers(config, resumed=False)
    return journal


def write_a_run(journal: Journal) -> list[dict[str, Any]]:
    lines = [{"step": step, "loss": 0.5 / step, "dev_best/sst2": 0.1 * step, "kl": float("nan")} for step in (1, 2)]
    for line in lines:
        journal.write_step(line)
        rollouts = [rollout("<b>Is | it?</b>\n", 0.2), rollout("Good or bad?", 0.9), rollout("no verdict", None)]
        journal.write_rollouts(rollouts, step=int(line["step"]), stage=0, seed=1, gaps=[None] * 3)
    journal.write_best({"sst2": {"instruction": "Good or bad?", "step": 2}})
    journal.close_trackers()
    return lines


def check_tensorboard(run: Path, lines: list[dict[str, Any]]) -> None:
    """Every number of metrics.jsonl is in the event file, at its step."""
    if "tensorboard" not in INSTALLED:
        return
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(run / "tensorboard"), {"scalars": 0, "tensors": 0})
    events.Reload()
    for key in {key for line in lines for key in line} - {"step"}:
        wanted = {line["step"]: line[key] for line in lines if isinstance(line.get(key), int | float)}
        if wanted := {step: value for step, value in wanted.items() if value == value}:
            found = {event.step: event.value for event in events.Scalars(key)}
            assert found == pytest.approx(wanted, rel=1e-6), key
    assert "rollouts/text_summary" in events.Tags()["tensors"]
    (name,) = [tag for tag in events.Tags()["tensors"] if tag.startswith("best/")]
    assert events.Tensors(name)


def wandb_records(path: Path) -> Iterator[bytes]:
    """The records of a LevelDB log in blocks of 32 KiB, which a .wandb file is after a header of 7 bytes."""
    data, place, parts = path.read_bytes(), 7, []
    while place + 7 <= len(data):
        if 32768 - place % 32768 < 7:
            place += 32768 - place % 32768
            continue
        _, length, kind = struct.unpack("<IHB", data[place : place + 7])
        if place + 7 + length > len(data):
            return  # it is being written
        parts.append(data[place + 7 : place + 7 + length])
        place += 7 + length
        if kind in (1, 4):  # whole, or the last part of one
            yield b"".join(parts)
            parts = []


def check_wandb(run: Path, lines: list[dict[str, Any]], group: str = "") -> None:
    """The offline run holds every step's metrics, and the tables of rollouts."""
    if "wandb" not in INSTALLED:
        return
    from wandb.proto import wandb_internal_pb2

    (folder,) = (run / "wandb").glob("offline-run-*")
    history: list[dict[str, Any]] = []
    records, deadline = [], time.monotonic() + 20
    while not any(record.HasField("exit") for record in records):  # W&B's own process writes on for a moment
        assert time.monotonic() < deadline, "the file has no end"
        records = [wandb_internal_pb2.Record.FromString(data) for data in wandb_records(*folder.glob("*.wandb"))]
    for record in records:
        if record.HasField("history"):
            items = record.history.item
            history.append({"/".join(item.nested_key): json.loads(item.value_json) for item in items})
        if record.HasField("run"):
            assert (record.run.display_name, record.run.project) == (run.name, "prewrite")
            assert record.run.run_group == group
    for line in lines:
        numbers = {key: value for key, value in line.items() if isinstance(value, int | float) and value == value}
        assert any(entry.items() >= numbers.items() for entry in history), line["step"]
    assert list(folder.rglob("*.table.json"))


@needs("tensorboard")
def test_tensorboard_shows_what_the_journal_wrote(tmp_path: Path) -> None:
    journal = journal_with(tmp_path, 'report_to=["tensorboard"]', "rollout_rows=2")
    check_tensorboard(journal.folder, write_a_run(journal))
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(journal.folder / "tensorboard"), {"tensors": 0})
    events.Reload()
    text = events.Tensors("rollouts/text_summary")[0].tensor_proto.string_val[0].decode()
    assert text.index("Good or bad?") < text.index("&lt;b&gt;Is \\| it?&lt;/b&gt;"), "the best first, and no markup"
    assert "no verdict" not in text, "rollout_rows"


@needs("tensorboard")
def test_a_resumed_run_hides_what_comes_again_in_tensorboard(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    journal = journal_with(tmp_path, 'report_to=["tensorboard"]')
    for step in (1, 2, 3):
        journal.write_step({"step": step, "loss": 1.0})
    journal.close_trackers()
    config = load_config(CONFIG, [f"output_dir={tmp_path}", 'report_to=["tensorboard"]'])
    again = Journal(config, "resume")
    again.open_trackers(config, resumed=True)
    again.write_step({"step": 2, "loss": 2.0})
    again.close_trackers()
    events = EventAccumulator(str(again.folder / "tensorboard"))
    events.Reload()
    assert [(event.step, event.value) for event in events.Scalars("loss")] == [(1, 1.0), (2, 2.0)]


@needs("wandb")
def test_wandb_offline_holds_what_the_journal_wrote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    journal = journal_with(tmp_path, 'report_to=["wandb"]', "group=seeds")
    check_wandb(journal.folder, write_a_run(journal), "seeds")


@needs("wandb")
def test_wandb_without_a_key_is_told_before_anything_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("WANDB_MODE", "WANDB_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    with pytest.raises(UserError, match=r"knows no key here.*WANDB_MODE=offline"):
        journal_with(tmp_path, 'report_to=["wandb"]')


def test_a_missing_package_is_one_message_before_a_model_loads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trackers.importlib.util, "find_spec", lambda name: None)
    config = load_config(CONFIG, [f"output_dir={tmp_path}", 'report_to=["tensorboard", "wandb"]', "policy.model=none"])
    told = r"tensorboard and wandb are not installed here: pip install -r"
    with mock.patch.dict(os.environ), pytest.raises(UserError, match=told):
        train(config)  # and not that there is no such model
    assert list(tmp_path.iterdir()) == []


def test_a_tracker_that_fails_is_told_once_and_the_journal_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Broken:
        def __init__(self, *_: object) -> None: ...

        def __getattr__(self, name: str) -> Any:
            raise RuntimeError("the disk is gone")

    monkeypatch.setattr(trackers, "_OPENERS", {"tensorboard": Broken})
    journal = journal_with(tmp_path, 'report_to=["tensorboard"]')
    write_a_run(journal)
    assert capsys.readouterr().err.count("Broken is left out from here on: RuntimeError: the disk is gone") == 1
    assert len((journal.folder / "metrics.jsonl").read_text().splitlines()) == 2


def test_what_rollouts_and_the_loss_say_is_explained() -> None:
    rollouts = [rollout("a", 0.5), rollout("b", 1.0)]
    logprob_BT, mask_BT = torch.zeros(1, 2), torch.ones(1, 2, dtype=torch.bool)
    tensors = LossTensors(
        logprob_BT,
        logprob_BT,
        torch.ones(1),
        mask_BT,
        sampler_logprob_BT=logprob_BT,
        ref_logprob_BT=logprob_BT,
        entropy_BT=logprob_BT,
    )
    loss = policy_loss(tensors, LossSettings(beta=0.1), StepTotals(2, 1, 2, 1))
    keys = {*rollout_metrics(rollouts, 2), *metric_values(loss.metrics)}
    assert {"kl", "sampler_gap_max", "reward/length_penalty_std"} < keys
    keys |= {"dev_best/sst2", "dev_sampled_mean/math-500/algebra/5", "dev_greedy"}
    assert {key for key in keys if explained(key) is None} == set()
    assert explained("reward/length_penalty_mean") == "reward/NAME_mean"
    assert explained("nonsense") is None


def test_every_word_of_the_consoles_line_is_in_the_table() -> None:
    every = {key.replace("NAME", "a").replace("ROW", "sst2"): 1.0 for key in CONSOLE_WORDS} | {"step": 3}
    words = {word for said in CONSOLE_WORDS.values() for word in said.replace("dev: ", "").split(" (")[0].split("/ROW")}
    line = step_line(every, 10)
    shown = [part for chunk in line.replace("(", "| ").replace(")", "").split("|") for part in chunk.split(",")]
    for part in shown:
        for word in [word for word in part.replace("dev:", "").split() if not any(c.isdigit() for c in word)]:
            assert word.partition("/")[0] in words or word in ("FAILED", "CALLS"), word
    assert "FAILED CALLS" in line

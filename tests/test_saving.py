"""A save that is cut off anywhere, a full disk, a folder that may only be read: nothing older is lost."""

import contextlib
import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from prewrite.training.checkpoint import newest_whole
from tests.launching import finish, start
from tests.loaded import start_loaded
from tests.test_resume import read_lines

pytestmark = pytest.mark.slow
UNSHARED = ["unshare", "--user", "--map-root-user", "--mount"]


def may_mount() -> bool:
    """Whether this machine lets a user mount a disk that nobody else sees; some systems forbid it."""
    with contextlib.suppress(FileNotFoundError):
        return not subprocess.run([*UNSHARED, "mount", "-t", "tmpfs", "tmpfs", "/mnt"], capture_output=True).returncode
    return False


# Where it does not, test_resume.py still has a file that cannot be written whole.
on_a_small_disk = pytest.mark.skipif(not may_mount(), reason="no user may mount a disk here")


SAVER = ("-m", "tests.saver")


def test_a_save_that_is_killed_at_any_operation_costs_nothing_older(tmp_path: Path) -> None:
    code, stdout, stderr = finish(start_loaded(*SAVER, "everywhere", str(tmp_path)), timeout=300)
    assert code == 0, stderr[-3000:]
    told = [json.loads(line) for line in stdout.splitlines() if line.startswith("{")]
    kills = [line["killed at"] for line in told if "killed at" in line]
    after = [line for line in told if "whole" in line]
    assert len(after) == len(kills) + 1, "the last save was not killed"
    for file in ("rank_00000.pt", "state.json", "progress.json", "config.json", "manifest.json"):
        assert any(kill.endswith(f" {file}") for kill in kills), (file, kills)
    assert "os.rename .step_000004.part" in kills
    assert [line["broken"] for line in after] == [0] * len(after)
    for line in after:
        step = line["whole"]
        assert (line["again"], line["steps"]) == (step, [2] if step == 2 else [2, 4])
        assert line["left"] == (["step_000002"] if step == 2 else ["step_000002", "step_000004"])
    assert [line["whole"] for line in after] == sorted(line["whole"] for line in after)
    assert after[-1]["whole"] == 4


@on_a_small_disk
def test_a_full_disk_and_one_that_may_only_be_read_cost_nothing_older(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    script = f"mount -t tmpfs -o size=4m tmpfs {disk} && {shlex.join([sys.executable, *SAVER, 'disk', str(disk)])}"
    code, stdout, stderr = finish(start([*UNSHARED, "sh", "-c", script]), timeout=300)
    assert "Traceback" not in stderr
    full, _, read_only = stderr.partition("closed\n")
    assert "cannot be written" in full
    assert "No space left on device" in full
    assert "Earlier ones are as they were" in full
    assert ".step" not in stdout, "what was begun is taken away"
    checkpoint, broken = newest_whole(tmp_path / "copy" / "checkpoints")
    assert checkpoint is not None
    assert (checkpoint.step, broken) == (4, {})
    assert [line["step"] for line in read_lines(tmp_path / "copy" / "metrics.jsonl")] == [2, 4, 6]
    assert f"run folder {disk / 'run'}: cannot be written" in read_only
    assert "Read-only file system" in read_only
    assert code == 2


def test_where_one_rank_cannot_save_both_stop_and_nothing_older_is_lost(tmp_path: Path) -> None:
    """system-015"""
    store = tmp_path / "store"
    ranks = [start_loaded(*SAVER, "fails", str(tmp_path), str(rank), str(store)) for rank in (0, 1)]
    (first, _, other), (second, _, own) = (finish(rank, timeout=300) for rank in ranks)
    assert (first, second) == (2, 2), other[-3000:] + own[-3000:]
    assert "rank 1 failed while writing a checkpoint" in other
    assert "step_000004 cannot be written" in own
    assert "Traceback" not in other + own
    folder = tmp_path / "run" / "checkpoints"
    assert [path.name for path in folder.iterdir()] == ["step_000002"]
    checkpoint, broken = newest_whole(folder)
    assert checkpoint is not None
    assert (checkpoint.step, checkpoint.ranks, broken) == (2, 2, {})

"""Going on with an earlier start: which checkpoint, and the run folder as it was then."""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from prewrite.config import Config
from prewrite.engine.distributed import World
from prewrite.errors import UserError
from prewrite.reporting.journal import Journal
from prewrite.training.checkpoint import Checkpoint, newest_whole


def go_back(journal: Journal, config: Config, world: World, data: Mapping[str, str]) -> Checkpoint | None:
    """The checkpoint that a run goes on from, with the run folder cut back to its step; None = from step 0.

    data: hashes of what was read now. Broken checkpoints that are newer are renamed. Rank 0 alone. Raises UserError
    where no way on is left.
    """
    folder = journal.folder / "checkpoints"
    checkpoint, broken = newest_whole(folder)
    paid = "what the task model answered is not paid for again"
    told = "".join(f"\n  - {path.name}: {wrong}" for path, wrong in broken.items())
    if checkpoint is None and broken:
        way_out = f"Move {folder} elsewhere: --resume then starts at step 0, and {paid}"
        raise UserError(f"run folder {journal.folder}: no checkpoint is whole{told}\n{way_out}")
    if checkpoint is None:
        print(f"--resume: {journal.folder} has no checkpoint: the run starts at step 0; {paid}", flush=True)
        if journal.has_lines:
            journal.start_over(config)
        return None
    if checkpoint.ranks != world.size:
        raise UserError(
            f"{checkpoint.folder} was written by {checkpoint.ranks} ranks, and {world.size} are here: --resume needs "
            f"as many (its folder is a model: policy.model={checkpoint.folder} starts a new run from its weights)"
        )
    if changed := [name for name, value in data.items() if checkpoint.data.get(name) != value]:
        raise UserError(
            f"{checkpoint.folder}: {', '.join(changed)} are not what the run was trained on until now: a file was "
            "changed since. Put it back as it was, or start another run (--set run_name=...)"
        )
    if broken:
        print(f"checkpoints that are broken are passed over, and renamed broken_...{told}", flush=True)
    for path in broken:
        _rename(path)
    for draft in folder.glob(".step_*.part"):
        shutil.rmtree(draft)
    journal.cut_back(checkpoint.lines)
    if (best := checkpoint.folder / "best.json").exists():
        shutil.copyfile(best, journal.folder / "best.json")
    print(f"going on after step {checkpoint.step}, from {checkpoint.folder}", flush=True)
    return checkpoint


def _rename(path: Path) -> None:
    target = path.with_name(f"broken_{path.name}")
    shutil.rmtree(target, ignore_errors=True)
    os.replace(path, target)

"""Checkpoints: what a run needs to go on as if it had not stopped, in a folder that is written whole or not at all.

step_NNNNNN/ is a model folder, which transformers and vLLM load, and beside it: `reference/`, a model folder where the
reference moves; `progress.json`; `rank_NNNNN.pt`, each rank's optimizer state, generators, counts and answers;
`state.json`, see `Checkpoint`; `best.json` of that step; and `manifest.json`, the size and hash of every other file.
"""

import hashlib
import json
import random
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from prewrite.engine.distributed import World
from prewrite.training.progress import Progress

MANIFEST, REFERENCE, STATE, PROGRESS = "manifest.json", "reference", "state.json", "progress.json"
_CHUNK_BYTES = 1 << 24


@dataclass(frozen=True)
class Checkpoint:
    """step: optimizer steps taken. ranks: of the run. lines: `Journal.sizes`. score: of the look at this step.
    data: hashes of what was trained on, by name."""

    folder: Path
    step: int
    ranks: int
    lines: dict[str, int]
    score: float | None
    data: dict[str, str]

    @classmethod
    def read(cls, folder: Path) -> "Checkpoint":
        """The checkpoint that stands in a folder, which is whole (`fault`)."""
        return cls(folder, **json.loads((folder / STATE).read_text()))

    def progress(self) -> Progress:
        """The progress record."""
        return Progress.from_json((self.folder / PROGRESS).read_bytes())

    def rank_state(self, world: World) -> dict[str, Any]:
        """What this rank saved for itself."""
        return torch.load(self.folder / rank_file(world.rank), map_location="cpu", weights_only=True)


def newest_whole(folder: Path) -> tuple[Checkpoint | None, dict[Path, str]]:
    """The newest checkpoint of the folder that is whole, and what is wrong with each newer one."""
    broken = {}
    for path in all_in(folder):
        if (wrong := fault(path)) is None:
            return Checkpoint.read(path), broken
        broken[path] = wrong
    return None, broken


def fault(folder: Path) -> str | None:
    """What is wrong with a checkpoint; None = its manifest names what a run needs, and all is as it says."""
    try:
        files = json.loads((folder / MANIFEST).read_text())
        for name, facts in files.items():
            size = (folder / name).stat().st_size
            if size != facts["size"]:
                return f"{name} has {size} bytes, and had {facts['size']}"
            if facts_of(folder / name) != facts:
                return f"{name} has other contents than were written"
        needed = [STATE, PROGRESS]
        if STATE in files:
            needed += map(rank_file, range(Checkpoint.read(folder).ranks))
        if missing := [name for name in needed if name not in files]:
            return f"{MANIFEST} does not name {', '.join(missing)}"
    except (OSError, ValueError, AttributeError, KeyError, TypeError, RecursionError) as error:
        return f"{type(error).__name__}: {error}"
    return None


def generators(world: World) -> dict[str, Any]:
    """The state of every generator of this process; vLLM's engine, which lives in it, draws from them too."""
    kind, keys, *rest = np.random.get_state()
    return {
        "python": random.getstate(),
        "numpy": (kind, np.asarray(keys).tolist(), *rest),
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state(world.device) if world.device.type == "cuda" else None,
    }


def set_generators(state: Mapping[str, Any], world: World) -> None:
    """Takes `generators` back."""
    random.setstate(state["python"])
    np.random.set_state(state["numpy"])
    torch.set_rng_state(state["torch"])
    if state["cuda"] is not None:
        torch.cuda.set_rng_state(state["cuda"], world.device)


def all_in(folder: Path) -> list[Path]:
    """The folders of checkpoints, the newest first."""
    return sorted(folder.glob("step_*"), reverse=True)


def rank_file(rank: int) -> str:
    """The name of a rank's own file."""
    return f"rank_{rank:05d}.pt"


def facts_of(path: Path) -> dict[str, Any]:
    """What the manifest says of a file."""
    sha256 = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            sha256.update(chunk)
    return {"size": path.stat().st_size, "sha256": sha256.hexdigest()}

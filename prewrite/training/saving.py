"""Writing a checkpoint: every rank its own file, rank 0 the rest, under a temporary name until it is whole."""

import contextlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError

from prewrite.config import Config
from prewrite.engine import distributed
from prewrite.engine.policy import Policy
from prewrite.engine.weight_sync import trained_weights
from prewrite.errors import RankFailure, UserError
from prewrite.training.callbacks import Callback, TrainingState, policy_score
from prewrite.training.checkpoint import (
    MANIFEST,
    PROGRESS,
    REFERENCE,
    STATE,
    Checkpoint,
    all_in,
    facts_of,
    generators,
    rank_file,
)
from prewrite.training.engines import Engines
from prewrite.training.progress import Progress
from prewrite.types import Rollout


class Checkpointing(Callback):
    """A checkpoint every `save_steps`, and after the last step or before an interrupted run leaves."""

    def __init__(self) -> None:
        self._score: float | None = None

    def on_step_end(self, run: TrainingState, metrics: Mapping[str, float]) -> None:
        """The score of the look at this step."""
        self._score = policy_score(metrics)

    def on_batch_end(self, run: TrainingState, rollouts: Sequence[Rollout]) -> None:
        """Once everything of the step is written down, which a resume cuts back to."""
        if run.over or run.interrupted or run.due(run.config.training.save_steps):
            folder = save_checkpoint(run.config, run.engines, run.progress, self._score)
            if (sampler := run.engines.sampler) is not None:
                sampler.forget_prefixes()  # a run that is resumed here has none either
            run.tell("on_save", folder)


def save_checkpoint(config: Config, engines: Engines, progress: Progress, score: float | None) -> Path:
    """Writes the checkpoint of this step, then drops old ones beyond `save_total_limit`; its folder. A collective.

    Raises UserError where it cannot be written; what was there before is untouched.
    """
    world, journal = engines.world, engines.journal
    folder: Path = distributed.broadcast(journal.folder / "checkpoints" if journal else None)
    target = folder / f"step_{progress.step:06d}"
    draft = folder / f".{target.name}.part"
    try:
        _write(draft, config, engines, progress, score)
        with distributed.together("finishing a checkpoint"), _faults_told(draft):
            if world.is_main:
                os.replace(draft, target)
                _drop_old(folder, config.training.save_total_limit)
    except (UserError, RankFailure):
        if world.is_main:
            shutil.rmtree(draft, ignore_errors=True)
        raise
    return target


def _write(draft: Path, config: Config, engines: Engines, progress: Progress, score: float | None) -> None:
    world, journal = engines.world, engines.journal
    with distributed.together("making a checkpoint's folder"), _faults_told(draft):
        if world.is_main:
            shutil.rmtree(draft, ignore_errors=True)
            draft.mkdir()
    moving = engines.reference if config.loss.sync_ref_model else None
    weights = _gathered(engines.policy)
    reference = _gathered(moving) if moving is not None else {}
    hashes: dict[str, Any] = {}
    with distributed.together("writing a checkpoint"), _faults_told(draft):
        own = {"optimizer": engines.policy.optimizer_state(), "task_model": engines.task_model.state()}
        torch.save(own | {"generators": generators(world)}, draft / rank_file(world.rank))
        hashes[rank_file(world.rank)] = facts_of(draft / rank_file(world.rank))
        if journal is not None:
            if moving is not None:
                moving.save(draft / REFERENCE, reference)
            engines.policy.save(draft, weights)
            engines.tokenizer.save_pretrained(draft)
            (draft / PROGRESS).write_bytes(progress.to_json())
            state = {"step": progress.step, "ranks": world.size, "lines": journal.sizes(), "score": score}
            state["data"] = dict(engines.data)
            (draft / STATE).write_text(json.dumps(state))
            if (best := journal.folder / "best.json").exists():
                shutil.copyfile(best, draft / "best.json")
    for others in distributed.gather(hashes):
        hashes |= others
    with distributed.together("writing a checkpoint's manifest"), _faults_told(draft):
        if world.is_main:
            names = [str(path.relative_to(draft)) for path in sorted(draft.rglob("*")) if path.is_file()]
            files = {name: hashes.get(name) or facts_of(draft / name) for name in names}
            (draft / MANIFEST).write_text(json.dumps(files, indent=1))


def _gathered(policy: Policy) -> dict[str, torch.Tensor]:
    """Every weight that is trained, on rank 0; tied ones once, as the architecture's own save has them."""
    weights = {}
    for name, weight in trained_weights(policy):
        if policy.world.is_main:
            weights[name] = weight.detach().cpu().clone()
    return weights


def _drop_old(folder: Path, limit: int | None) -> None:
    """Keeps the `limit` newest; the best by its look, where it is older, in place of the oldest of them."""
    found = []
    for path in all_in(folder):
        with contextlib.suppress(OSError, ValueError, TypeError):  # one that was damaged is not ours to drop
            found.append(Checkpoint.read(path))
    kept = found[:limit]
    best = max(found, key=lambda one: float("-inf") if one.score is None else one.score)
    if best not in kept and best.score is not None and len(kept) > 1:
        kept[-1] = best
    for one in found:
        if one not in kept:
            shutil.rmtree(one.folder)


@contextlib.contextmanager
def _faults_told(draft: Path) -> Iterator[None]:
    """What a full disk or a folder that cannot be written makes of torch, safetensors and Python, in words."""
    try:
        yield
    except (OSError, SafetensorError, RuntimeError) as error:
        reason = str(error).strip().splitlines()[0]
        fault = UserError(
            f"the checkpoint {draft.parent / draft.stem[1:]} cannot be written: {reason}. Earlier ones are as they "
            "were; make room or put the folder's rights in order, then go on with --resume"
        )
        raise fault from error

"""All that `evaluate.py --prompts` was given: files and folders, and what of them is compared together."""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from prewrite.errors import UserError
from prewrite.evaluation.prompts import Candidate, Naming, Prompts, read_prompts
from prewrite.types import InstructionRow

_LOG, _BEST = "log.jsonl", "best.json"


def prompt_files(given: Sequence[Path]) -> list[Path]:
    """The files, with folders replaced: a run's by its log, or by best.json where nothing was trained, a folder of runs
    by the file of each. Raises UserError."""
    files: list[Path] = []
    for path in given:
        _refuse_checkpoint(path)
        if not os.path.isdir(path):  # not Path.is_dir, which raises for a name too long
            if not os.path.exists(path):
                raise UserError(f"{path}: there is no such file; give a run's folder, or a list of instructions")
            files.append(path)
            continue
        own = _file_of_run(path)
        found = [own] if own else [file for folder in sorted(path.glob("*")) if (file := _file_of_run(folder))]
        if not found:
            where = f"there is no {_LOG} or {_BEST} in it or one level below"
            raise UserError(f"{path}: no run folder, nor a folder of runs: {where}")
        files += found
    return files


def _refuse_checkpoint(path: Path) -> None:
    """UserError for what lies in a run's `checkpoints`: a model's config.json is beside it there, and no run's."""
    whole = path.absolute()
    for place, what, way_out in (
        (whole, "this folder holds the checkpoints", "one of these folders"),
        (whole.parent, "this is a checkpoint", "this folder"),
        (whole.parent.parent, "this is a file of a checkpoint", "its folder"),
    ):
        if place.name == "checkpoints" and os.path.isfile(place.parent / "config.json"):
            run = f"of the run {place.parent}: give the run's folder to --prompts"
            raise UserError(f"{path}: {what} {run}, or {way_out} to --rewriter or --model")


def _file_of_run(folder: Path) -> Path | None:
    return next((file for file in (folder / _LOG, folder / _BEST) if file.is_file()), None)


def compared_together(files: Sequence[Path], task: str, top_k: int | None, canonical: Naming) -> list[Prompts]:
    """The groups of instructions of several files that a task is evaluated with: those of one row that began from the
    same instruction.

    What names no beginning goes with the only group of its row that has one. top_k: of each file; None = 1 of a log,
    all of a list. Raises UserError.
    """
    by_start: dict[tuple[InstructionRow, str | None], Prompts] = {}
    for path in files:
        origin = path.parent.name if path.name in (_LOG, _BEST) else path.name
        for group in read_prompts(path, task, canonical):
            group = cut(group, top_k or (1 if group.ranking_tasks else None))
            group = replace(group, candidates=tuple(replace(c, origin=origin) for c in group.candidates))
            key = group.row, group.initial
            by_start[key] = _merged(by_start[key], group) if key in by_start else group
    for row in {row for row, initial in by_start if initial is None}:
        starts = [key for key in by_start if key[0] == row and key[1] is not None]
        if len(starts) == 1:
            by_start[starts[0]] = _merged(by_start[starts[0]], by_start.pop((row, None)))
    return list(by_start.values())


def cut(group: Prompts, most: int | None) -> Prompts:
    """The best `most` of a group, which says so; None = all."""
    if most is None or most >= len(group.candidates):
        return group
    note = f"the first {most} of {len(group.candidates)} instructions are evaluated (--top-k)"
    return replace(group, candidates=group.candidates[:most], notes=(*group.notes, note))


def _merged(first: Prompts, second: Prompts) -> Prompts:
    by_text: dict[str, Candidate] = {}
    for candidate in (*first.candidates, *second.candidates):
        if candidate.instruction != first.initial:
            by_text.setdefault(candidate.instruction, candidate)
    ranking_tasks = tuple(dict.fromkeys((*first.ranking_tasks, *second.ranking_tasks)))
    notes = tuple(dict.fromkeys((*first.notes, *second.notes)))
    return Prompts(first.row, tuple(by_text.values()), first.initial, ranking_tasks, notes)

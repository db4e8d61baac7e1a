"""All that `evaluate.py --prompts` was given: files and folders, and what of them is compared together."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from prewrite.errors import UserError
from prewrite.evaluation.arguments import DEFAULT_TOP_K_OF_A_LOG
from prewrite.evaluation.prompts import Candidate, Prompts, read_prompts

_LOG = "log.jsonl"


def prompt_files(given: Sequence[Path]) -> list[Path]:
    """The files, with folders replaced: a run's by its log, a folder of runs by the log of each. Raises UserError."""
    files: list[Path] = []
    for path in given:
        if not path.is_dir():
            if not path.exists():
                raise UserError(
                    f"{path}: there is no such file; give a run's folder or log.jsonl, or a list of instructions"
                )
            files.append(path)
            continue
        logs = [path / _LOG] if (path / _LOG).is_file() else sorted(path.glob(f"*/{_LOG}"))
        if not logs:
            raise UserError(f"{path}: no run folder, nor a folder of runs: there is no {_LOG} in it or one level below")
        files += logs
    return files


def compared_together(
    files: Sequence[Path], task: str, top_k: int | None, canonical: Callable[[str], str]
) -> list[Prompts]:
    """The groups of instructions that a task is evaluated with: those of all files that began from the same one.

    What names no beginning goes with the only group that has one. top_k: as `--top-k` says. Raises UserError.
    """
    by_initial: dict[str | None, Prompts] = {}
    for path in files:
        for group in read_prompts(path, task, canonical):
            group = _cut(group, top_k or (None if not group.ranking_tasks else 1 if files[1:] else 0))
            if files[1:]:
                origin = path.parent.name if path.name in (_LOG, "best.json") else path.name
                group = replace(group, candidates=tuple(replace(c, origin=origin) for c in group.candidates))
            known = by_initial.get(group.initial)
            by_initial[group.initial] = _merged(known, group) if known else group
    initials = [initial for initial in by_initial if initial is not None]
    if None in by_initial and len(initials) == 1:
        free = by_initial.pop(None)
        by_initial[initials[0]] = _merged(by_initial[initials[0]], free)
    return list(by_initial.values())


def _cut(group: Prompts, most: int | None) -> Prompts:
    """most: None = all of them, 0 = as many as of one log."""
    count = most if most != 0 else DEFAULT_TOP_K_OF_A_LOG
    if count is None or count >= len(group.candidates):
        return group
    note = f"the first {count} of {len(group.candidates)} instructions are evaluated (--top-k)"
    return replace(group, candidates=group.candidates[:count], notes=(*group.notes, note))


def _merged(first: Prompts, second: Prompts) -> Prompts:
    by_text: dict[str, Candidate] = {}
    for candidate in (*first.candidates, *second.candidates):
        if candidate.instruction != first.initial:
            by_text.setdefault(candidate.instruction, candidate)
    return Prompts(
        tuple(by_text.values()),
        first.initial,
        tuple(dict.fromkeys((*first.ranking_tasks, *second.ranking_tasks))),
        tuple(dict.fromkeys((*first.notes, *second.notes))),
    )

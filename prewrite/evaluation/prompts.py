"""What `evaluate.py --prompts` reads: a run's log, a JSONL list of instructions, or a text file; best first."""

import json
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from prewrite.errors import UserError
from prewrite.tasks.files import instruction_row, read_rows
from prewrite.types import InstructionRow


@dataclass(frozen=True)
class Candidate:
    """An instruction to evaluate.

    ranked_by: "chosen by the run", "estimate", "dev score", "mean reward" or "file order"; score is None for the last.
    """

    instruction: str
    ranked_by: str
    score: float | None = None
    observations: int = 0

    def provenance(self) -> str:
        """Why it is evaluated, and at its rank, in words."""
        if self.score is None:
            return self.ranked_by
        unit = "rollouts" if self.ranked_by == "mean reward" else "examples"
        return f"{self.ranked_by} {self.score:.3f} over {self.observations} {unit}"


@dataclass(frozen=True)
class Prompts:
    """The candidates, best first, without repeats.

    initial: the run's initial instruction; None where the file is no log.
    ranking_tasks: the log's tasks whose rows were ranked: the one asked for where the log has it, else all of its own.
    notes: what the reader should be told about the file. keeps_initial: the run itself found nothing better.
    """

    candidates: tuple[Candidate, ...]
    initial: str | None = None
    ranking_tasks: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    keeps_initial: bool = False


def prompt_rows(path: Path, canonical: Callable[[str], str] = str) -> dict[InstructionRow, list[dict[str, Any]]]:
    """The rows that a prompts file tells apart, each with its lines.

    Of a log those that were rewritten; of a JSONL list with `dataset_name` one a task, subject, level and tags, with ""
    for its instruction. {} for other lists.
    """
    if path.suffix.lower() != ".jsonl":
        return {}
    lines = read_rows(path)
    is_log = "rewrite" in lines[0]
    if not is_log and all(line.get("dataset_name") is None for line in lines):
        return {}
    rows: dict[InstructionRow, list[dict[str, Any]]] = {}
    for number, line in enumerate(lines, start=1):
        row = instruction_row(line, f"{path}: row {number}")
        instruction = row.instruction.strip() if is_log else ""
        key = replace(row, dataset_name=canonical(row.dataset_name), instruction=instruction)
        rows.setdefault(replace(key, information=None, answer=None), []).append(line)
    return rows


def read_prompts(
    path: str | Path,
    task: str,
    canonical: Callable[[str], str] = str,
    lines: Sequence[dict[str, Any]] | None = None,
) -> Prompts:
    """Reads a prompts file by its ending.

    `.jsonl`: with the key `rewrite` in its first object a run's log (first what `best.json` beside it calls the best,
    then what `dev.jsonl` has, by estimate or dev score, the others by mean reward), with `instruction` a list, in file
    order. `.txt`: one instruction a line, in file order. Blank lines are skipped. A rewrite without a finite score or
    reward is never a candidate, nor is the initial instruction. Task names are compared after `canonical`.
    lines: those of one of `prompt_rows`, whose candidates may then be none; None = the whole file's.

    Raises UserError where the file can't be read, holds no instruction, or has a broken line before its last; a cut
    last line (of a killed run) is left out with a warning.
    """
    path = Path(path)
    if path.suffix.lower() == ".txt":
        return Prompts(_in_file_order(_read_lines(path), path))
    if path.suffix.lower() != ".jsonl":
        raise UserError(
            f"{path}: its ending is {path.suffix!r}; give a run's log.jsonl, a .jsonl list with the key "
            "`instruction`, or a .txt file with one instruction a line"
        )
    rows = read_rows(path) if lines is None else list(lines)
    if "rewrite" in rows[0]:
        return _read_log(path, rows, task, canonical, is_one_row=lines is not None)
    return Prompts(_in_file_order((_text(row, "instruction", path, i) for i, row in enumerate(rows, 1)), path))


def finite(value: object) -> float | None:
    """A score or reward as it counts: null, NaN, infinities and what is no number are missing."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


@dataclass(frozen=True)
class _LoggedRollout:
    task: str
    instruction: str
    rewrite: str
    reward: float | None


def _read_log(
    path: Path, rows: list[dict[str, Any]], task: str, canonical: Callable[[str], str], *, is_one_row: bool
) -> Prompts:
    name = rows[0].get("row") if is_one_row else None
    log = [
        _LoggedRollout(
            canonical(_text(row, "dataset_name", path, number)),
            _text(row, "instruction", path, number).strip(),
            _text(row, "rewrite", path, number).strip(),
            finite(row.get("reward")),
        )
        for number, row in enumerate(rows, start=1)
    ]
    notes: list[str] = []
    tasks = tuple(sorted({rollout.task for rollout in log}))
    if task in tasks:
        tasks = (task,)
    else:
        notes.append(f"no row of the log is for {task}: its rewrites were made, and are ranked, for {', '.join(tasks)}")
    log = [rollout for rollout in log if rollout.task in tasks]
    initials = list(dict.fromkeys(rollout.instruction for rollout in log))
    if len(initials) > 1:
        notes.append(f"the log rewrites {len(initials)} instructions; the first is taken as the initial one")

    rewards: dict[str, list[float]] = defaultdict(list)
    for rollout in log:
        if rollout.reward is not None:
            rewards[rollout.rewrite].append(rollout.reward)
    mean_reward = {rewrite: sum(values) / len(values) for rewrite, values in rewards.items()}
    dev_scores = _read_dev(path.with_name("dev.jsonl"), tasks, canonical, name)
    chosen = _chosen(path.with_name("best.json"), tasks, canonical, name)
    by_dev = sorted(dev_scores.values(), key=lambda c: (-_score(c), -mean_reward.get(c.instruction, -math.inf)))
    by_reward = sorted((text for text in mean_reward if text not in dev_scores), key=lambda text: -mean_reward[text])
    candidates = [replace(c, ranked_by="chosen by the run") for c in by_dev if c.instruction in chosen]
    candidates += [c for c in by_dev if c.instruction not in chosen]
    candidates += [Candidate(text, "mean reward", mean_reward[text], len(rewards[text])) for text in by_reward]
    candidates = [c for c in candidates if c.instruction and c.instruction != initials[0]]
    if not candidates and not is_one_row:
        raise UserError(
            f"{path}: {len(log)} rollouts, but no rewrite that has a reward and differs from the initial "
            "instruction; there is nothing to evaluate"
        )
    return Prompts(tuple(candidates), initials[0], tasks, tuple(notes), keeps_initial=chosen == {initials[0]})


def _read_dev(
    path: Path, tasks: Sequence[str], canonical: Callable[[str], str], name: str | None
) -> dict[str, Candidate]:
    """Each rewrite of dev.jsonl as its last line with a score shows it, by the estimate where that has one.

    A line holds all the examples that the rewrite was asked on so far. Lines of the run's test don't rank.
    """
    if not path.exists():
        return {}
    judged: dict[str, Candidate] = {}
    for number, row in enumerate(read_rows(path), start=1):
        score, n = finite(row.get("score")), finite(row.get("n"))
        if score is None or not n or canonical(_text(row, "task", path, number)) not in tasks:
            continue
        if row.get("role") == "test" or (name is not None and row.get("row") != name):
            continue
        rewrite, estimate = _text(row, "rewrite", path, number).strip(), finite(row.get("estimate"))
        ranked_by = "dev score" if estimate is None else "estimate"
        judged[rewrite] = Candidate(rewrite, ranked_by, score if estimate is None else estimate, int(n))
    return judged


def _chosen(path: Path, tasks: Sequence[str], canonical: Callable[[str], str], name: str | None) -> set[str]:
    """The instructions that the run itself calls the best of its rows, or of the row of that name."""
    try:
        best = json.loads(path.read_text(encoding="utf-8"))
        entries = [e for row, e in best.items() if canonical(e["task"]) in tasks and name in (None, row)]
        return {entry["instruction"].strip() for entry in entries}
    except (OSError, ValueError, RecursionError, LookupError, TypeError, AttributeError):
        return set()  # an older run's, or none: the other files rank by themselves


def _score(candidate: Candidate) -> float:
    return -math.inf if candidate.score is None else candidate.score


def _in_file_order(texts: Iterable[str], path: Path) -> tuple[Candidate, ...]:
    candidates = tuple(Candidate(text, "file order") for text in dict.fromkeys(text.strip() for text in texts) if text)
    if not candidates:
        raise UserError(f"{path}: it holds no instruction; at least one is needed")
    return candidates


def _read_lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot be read ({error}); give the path of a UTF-8 text file") from error


def _text(row: dict[str, Any], key: str, path: Path, number: int) -> str:
    value = row.get(key)
    if not isinstance(value, str):
        raise UserError(f"{path}: row {number}: the key `{key}` {'is missing' if value is None else 'holds no text'}")
    return value

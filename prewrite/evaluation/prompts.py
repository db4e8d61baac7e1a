"""One file of `evaluate.py --prompts`: a run's log, its best.json, a list of instructions, or a text; best first."""

import json
import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from prewrite.errors import UserError
from prewrite.tasks.files import instruction_row, is_missing, read_rows, refuse_faults
from prewrite.types import InstructionRow

Naming = Callable[[str], str]  # a task's name as a file has it -> its own


@dataclass(frozen=True)
class Candidate:
    """An instruction to evaluate.

    ranked_by: "chosen by the run", "estimate", "dev score", "mean reward" or "file order"; score is None for the last.
    origin: the run or file, where there are several.
    """

    instruction: str
    ranked_by: str
    score: float | None = None
    observations: int = 0
    origin: str = ""

    def provenance(self) -> str:
        """Why it is evaluated, and at its rank, in words."""
        of = f"{self.origin}: " if self.origin else ""
        if self.score is None:
            return f"{of}{self.ranked_by}"
        unit = "rollouts" if self.ranked_by == "mean reward" else "examples"
        return f"{of}{self.ranked_by} {self.score:.3f} over {self.observations} {unit}"


@dataclass(frozen=True)
class Prompts:
    """The candidates for one row, best first, without repeats.

    row: its task, subject, level and tags, with "" for its instruction.
    initial: what they were rewritten from; None where the file doesn't say.
    ranking_tasks: a log's tasks whose rows were ranked: the one asked for where the log has it, else all of its own.
    notes: what the reader should be told about the file. keeps_initial: the run itself found nothing better.
    """

    row: InstructionRow
    candidates: tuple[Candidate, ...]
    initial: str | None = None
    ranking_tasks: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    keeps_initial: bool = False


def read_prompts(path: str | Path, task: str, canonical: Naming = str) -> list[Prompts]:
    """Reads a prompts file: one group for each row of the task that it tells apart, by subject, level, tags and the
    instruction that was rewritten; one of all where it names none.

    `.jsonl`: with the key `rewrite` in its first object a run's log (first what `best.json` beside it calls the best,
    then what `dev.jsonl` has, by estimate or dev score, the others by mean reward). `.json`: a run's best.json. Else
    lists, in file order: `.jsonl`, `.csv`, `.parquet` with `instruction` and perhaps `rewrite_of`, what it was
    rewritten from, and `dataset_name`, its task; `.txt`, one instruction a line. A rewrite without a finite score or
    reward is never a candidate, nor is the initial instruction. Task names are compared after `canonical`; rows for
    other tasks are left out where any is for `task`, and stand all together where none is.
    Raises UserError where the file can't be read, or holds no instruction.
    """
    path = Path(path)
    rows, kind, notes = _rows(path)
    if kind == "log":
        return _read_log(path, rows, task, canonical)
    named = [None if is_missing(name := row.get("dataset_name")) else canonical(str(name)) for row in rows]
    others = sorted({name for name in named if name not in (None, task)})
    is_own = not others or not {None, task}.isdisjoint(named)
    if not is_own:
        notes = (f"no row of {path.name} is for {task}: they are for {', '.join(others)}",)
    groups: dict[tuple[InstructionRow, str | None], list[str]] = defaultdict(list)
    faults = []
    for number, (line, name) in enumerate(zip(rows, named, strict=True), 1):
        if is_own and name not in (None, task):
            continue
        try:
            initial = None if is_missing(line.get("rewrite_of")) else _text(line, "rewrite_of", path, number).strip()
            if text := _text(line, "instruction", path, number).strip():
                row = _row(line, task, f"{path}: row {number}") if is_own else InstructionRow("", task)
                groups[row, initial].append(text)
        except UserError as error:
            faults.append(str(error))
    refuse_faults(faults)
    ranked_by, found = "chosen by the run" if kind == "best" else "file order", []
    for (row, initial), texts in groups.items():
        own = tuple(Candidate(text, ranked_by) for text in dict.fromkeys(texts) if text != initial)
        found.append(Prompts(row, own, initial, (), notes))
    if not any(group.candidates or group.initial for group in found):
        raise UserError(f"{path}: it holds no instruction; at least one is needed")
    return found


def tasks_of(path: Path, canonical: Naming = str) -> list[str]:
    """The tasks that a prompts file's rows are for, in its order; [] where it names none."""
    names = [name for row in _rows(path)[0] if not is_missing(name := row.get("dataset_name"))]
    return list(dict.fromkeys(canonical(str(name)) for name in names))


def _rows(path: Path) -> tuple[list[dict[str, Any]], str, tuple[str, ...]]:
    """The rows of a file, what it is ("log", "best" or "list"), and notes."""
    ending = path.suffix.lower()
    if ending == ".json":
        return _read_best(path), "best", ()
    if ending == ".txt":
        try:
            lines = [line.strip() for line in path.read_text(encoding="utf-8-sig").split("\n")]
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(f"{path}: cannot be read ({error}); give the path of a UTF-8 text file") from error
        comments = sum(line.startswith("#") for line in lines)
        notes = (f"{path.name}: {comments} lines begin with # and are taken as comments",) if comments else ()
        return [{"instruction": line} for line in lines if line and not line.startswith("#")], "list", notes
    if ending not in (".jsonl", ".csv", ".parquet"):
        raise UserError(
            f"{path}: its ending is {path.suffix!r}; give a run's folder, log.jsonl or best.json, a .jsonl, .csv or "
            ".parquet list with the column `instruction`, or a .txt file with one instruction a line"
        )
    rows = read_rows(path)
    return rows, "log" if "rewrite" in rows[0] and "reward" in rows[0] else "list", ()


def _row(line: dict[str, Any], task: str, where: str) -> InstructionRow:
    row = instruction_row({**line, "dataset_name": task}, where)
    return InstructionRow("", task, row.subject, row.level, row.tags)


def _read_best(path: Path) -> list[dict[str, Any]]:
    way_out = "give a run's folder, or a list of instructions (.jsonl, .csv, .parquet, .txt)"
    try:
        best = json.loads(path.read_text(encoding="utf-8"))
        return [
            {
                **{key: entry.get(key) for key in ("subject", "level", "tags")},
                "instruction": entry["instruction"],
                "rewrite_of": earlier[0]["baseline"] if earlier else entry["baseline"]["instruction"],
                "dataset_name": entry["task"],
            }
            for entry in best.values()
            for earlier in [entry.get("earlier")]  # the stages before: the first one's beginning is the run's
        ]
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{path}: no JSON that can be read ({error}); {way_out}") from error
    except (LookupError, TypeError, AttributeError) as error:
        needed = "a row has the texts `instruction`, `task` and `baseline.instruction`, and a list `earlier` of stages"
        raise UserError(
            f"{path}: no best.json of a run: {needed}; of .json files only that is read; {way_out}"
        ) from error


def finite(value: object) -> float | None:
    """A score or reward as it counts: null, NaN, infinities and what is no number are missing."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


@dataclass(frozen=True)
class _LoggedRollout:
    row: InstructionRow
    name: str | None
    rewrite: str
    reward: float | None


def _read_log(path: Path, lines: list[dict[str, Any]], task: str, canonical: Naming) -> list[Prompts]:
    log = []
    for number, line in enumerate(lines, start=1):
        dataset, *texts = (_text(line, key, path, number) for key in ("dataset_name", "instruction", "rewrite"))
        instruction, rewrite = (text.strip() for text in texts)
        row = replace(_row(line, canonical(dataset), f"{path}: row {number}"), instruction=instruction)
        name = line.get("row") if isinstance(line.get("row"), str) else None
        log.append(_LoggedRollout(row, name, rewrite, finite(line.get("reward"))))
    tasks = tuple(sorted({rollout.row.dataset_name for rollout in log}))
    if task in tasks:
        by_row: dict[InstructionRow, list[_LoggedRollout]] = defaultdict(list)
        for rollout in log:
            if rollout.row.dataset_name == task:
                by_row[rollout.row].append(rollout)
        rows = [(replace(row, instruction=""), own) for row, own in by_row.items()]
        found = [_ranked(path, row, own, (task,), (), canonical) for row, own in rows]
    else:
        notes = [f"no row of the log is for {task}: its rewrites were made, and are ranked, for {', '.join(tasks)}"]
        if (count := len({rollout.row.instruction for rollout in log})) > 1:
            notes.append(f"the log rewrites {count} instructions; the first is taken as the initial one")
        found = [_ranked(path, InstructionRow("", task), log, tasks, notes, canonical)]
    if not any(group.candidates for group in found):
        lacking = "no rewrite that has a reward and differs from the initial instruction"
        raise UserError(f"{path}: {len(log)} rollouts, but {lacking}; there is nothing to evaluate")
    return found


def _ranked(
    path: Path,
    row: InstructionRow,
    log: Sequence[_LoggedRollout],
    tasks: tuple[str, ...],
    notes: Sequence[str],
    canonical: Naming,
) -> Prompts:
    """The rewrites of rollouts, best first. Their row's name, where they are of one, picks its lines of other files."""
    names = {rollout.name for rollout in log}
    name, initial = names.pop() if len(names) == 1 else None, log[0].row.instruction
    rewards: dict[str, list[float]] = defaultdict(list)
    for rollout in log:
        if rollout.reward is not None:
            rewards[rollout.rewrite].append(rollout.reward)
    mean_reward = {rewrite: sum(values) / len(values) for rewrite, values in rewards.items()}
    dev_scores = _read_dev(path.with_name("dev.jsonl"), tasks, canonical, name)
    chosen = _chosen(path.with_name("best.json"), tasks, canonical, name)
    by_dev = sorted(dev_scores.values(), key=lambda c: (-(c.score or 0.0), -mean_reward.get(c.instruction, -math.inf)))
    by_reward = sorted((text for text in mean_reward if text not in dev_scores), key=lambda text: -mean_reward[text])
    candidates = [replace(c, ranked_by="chosen by the run") for c in by_dev if c.instruction in chosen]
    candidates += [c for c in by_dev if c.instruction not in chosen]
    candidates += [Candidate(text, "mean reward", mean_reward[text], len(rewards[text])) for text in by_reward]
    candidates = [c for c in candidates if c.instruction and c.instruction != initial]
    return Prompts(row, tuple(candidates), initial, tasks, tuple(notes), keeps_initial=chosen == {initial})


def _read_dev(path: Path, tasks: Sequence[str], canonical: Naming, name: str | None) -> dict[str, Candidate]:
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


def _chosen(path: Path, tasks: Sequence[str], canonical: Naming, name: str | None) -> set[str]:
    """The instructions that the run itself calls the best of its rows, or of the row of that name."""
    try:
        best = json.loads(path.read_text(encoding="utf-8"))
        entries = [e for row, e in best.items() if canonical(e["task"]) in tasks and name in (None, row)]
        return {entry["instruction"].strip() for entry in entries}
    except (OSError, ValueError, RecursionError, LookupError, TypeError, AttributeError):
        return set()  # an older run's, or none: the other files rank by themselves


def _text(row: dict[str, Any], key: str, path: Path, number: int) -> str:
    value = row.get(key)
    if not isinstance(value, str):
        raise UserError(f"{path}: row {number}: the key `{key}` {'is missing' if value is None else 'holds no text'}")
    return value

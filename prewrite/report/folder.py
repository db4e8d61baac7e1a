"""A run folder as it was left: whole, broken off in the middle of a line, or with files missing."""

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from prewrite.errors import UserError

Line = dict[str, Any]
_LINES = ("metrics.jsonl", "log.jsonl", "dev.jsonl")
_WHOLES = ("config.json", "best.json", "totals.json")
_UNWRITTEN = {"sft": ("log.jsonl", "dev.jsonl", "best.json"), "solve": ("best.json",)}  # by method and objective


@dataclass
class RunFolder:
    """What a run folder holds, and what is wrong with it (`faults`, a sentence each).

    metrics, log, dev: the objects of those files; config, best, totals: those files, {} where there is none;
    evaluations: those of `evaluate.py`, by file name; wins_losses: the objects of that file, [] before the end;
    name: what the page calls the run.
    """

    path: Path
    metrics: list[Line] = field(default_factory=list)
    log: list[Line] = field(default_factory=list)
    dev: list[Line] = field(default_factory=list)
    config: Line = field(default_factory=dict)
    best: Line = field(default_factory=dict)
    totals: Line = field(default_factory=dict)
    evaluations: dict[str, Line] = field(default_factory=dict)
    wins_losses: list[Line] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    name: str = ""

    def series(self, key: str) -> tuple[list[float], list[float]]:
        """A metric's (steps, values), where both are finite numbers."""
        pairs = [(number(line.get("step")), number(line.get(key))) for line in self.metrics]
        kept = [(step, value) for step, value in pairs if step is not None and value is not None]
        return [step for step, _ in kept], [value for _, value in kept]

    def spent(self, name: str) -> float:
        """Steps, task_calls or seconds: of totals.json, which a stage's end writes, or those of the steps since."""
        steps, spent = self.series({"steps": "step", "seconds": "seconds/step"}.get(name, name))
        by_steps = max(steps, default=0.0) if name == "steps" else sum(spent)
        return max(number(self.totals.get(name)) or 0.0, by_steps)

    def stage_ends(self) -> list[float]:
        """The last step of each stage that another one followed."""
        last: dict[float, float] = {}
        for line in self.metrics:
            step, stage = number(line.get("step")), number(line.get("stage", 0))
            if step is not None and stage is not None:
                last[stage] = max(step, last.get(stage, step))
        return [last[stage] for stage in sorted(last)][:-1]

    def setting(self, section: str, key: str) -> Any:
        """A setting of the config; None where there is none."""
        part = self.config.get(section)
        return part.get(key) if isinstance(part, dict) else None

    @property
    def is_untrained(self) -> bool:
        """Whether nothing was to be trained, in no stage: a search among untrained rewrites."""
        stages = self.config.get("stages") or []
        own = [part for stage in stages if isinstance(stage, dict) and isinstance(part := stage.get("training"), dict)]
        if any(part.get("num_stage_steps") or part.get("num_train_epochs") for part in own):
            return False
        return 0 in (self.setting("training", "max_steps"), self.setting("training", "num_stage_steps"))


def read_folder(path: Path) -> RunFolder:
    """Reads a run folder. Raises UserError where nothing in it is a run's."""
    path = path.absolute()
    found = [name for name in (*_LINES, *_WHOLES) if os.path.isfile(path / name)]
    if not found:
        names = ", ".join((*_LINES, *_WHOLES))
        raise UserError(f"{path}: no run folder; one holds {names}, as train.py writes them to output_dir/run_name")
    run = RunFolder(path)
    for name in _LINES:
        setattr(run, name.partition(".")[0], list(_lines(run, name)))
    if (path / "wins_losses.jsonl").is_file():
        run.wins_losses = list(_lines(run, "wins_losses.jsonl"))
    for name in _WHOLES:
        setattr(run, name.partition(".")[0], _whole(run, path / name))
    unwritten = [_UNWRITTEN.get(text(run.config.get(key)), ()) for key in ("method", "objective")]
    if run.is_untrained:
        unwritten.append(("metrics.jsonl", "log.jsonl"))
    run.faults = [fault for fault in run.faults if fault.removesuffix(" is missing.") not in sum(unwritten, ())]
    entries = {row: entry for row, entry in run.best.items() if isinstance(entry, dict)}
    run.best = {row: entry for row, entry in entries.items() if isinstance(entry.get("baseline"), dict)}
    for file in sorted(path.glob("evaluation_*.json")):
        whole = _whole(run, file)
        parts = whole.get("reports")  # of a file of several rows
        reports = [one for one in parts if isinstance(one, dict)] if isinstance(parts, list) else []
        named = {f"{file.name}, {text(one.get('row'))}": one for one in reports}
        run.evaluations |= named or {file.name: whole}
    run.name = text(run.config.get("run_name")) or path.name
    return run


def read_folders(paths: Sequence[Path]) -> list[RunFolder]:
    """Reads several run folders; where two runs bear one name, all go by their paths, as far as these differ."""
    runs = [read_folder(path) for path in paths]
    if len({run.name for run in runs}) < len(runs):
        common = os.path.commonpath([run.path for run in runs])
        for run in runs:
            run.name = os.path.relpath(run.path, common)
    return runs


def number(value: Any) -> float | None:
    """A finite number as it is; None for all else."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not -1e300 < value < 1e300:
        return None
    return value


def text(value: Any) -> str:
    """A text as it is; "" for all else."""
    return value if isinstance(value, str) else ""


def interval(value: Any) -> tuple[float, float] | None:
    """(low, high); None where a value is no such pair."""
    if not isinstance(value, (list, tuple)) or len(value) != 2:
        return None
    low, high = map(number, value)
    return None if low is None or high is None else (low, high)


def _read(run: RunFolder, path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        run.faults.append(f"{path.name} is missing.")
    except OSError as error:
        run.faults.append(f"{path.name} could not be read ({error.strerror}).")
    return ""


def _lines(run: RunFolder, name: str) -> Iterator[Line]:
    lines = _read(run, run.path / name).split("\n")
    for index, line in enumerate(lines):
        try:
            value = json.loads(line) if line.strip() else None
        except (ValueError, RecursionError):
            fault = "the last line is cut" if index == len(lines) - 1 else f"line {index + 1} is no JSON"
            run.faults.append(f"{name}: {fault}; left out.")
            continue
        if isinstance(value, dict):
            yield value
        elif value is not None:
            run.faults.append(f"{name}: line {index + 1} is no JSON object; left out.")


def _whole(run: RunFolder, path: Path) -> Line:
    content = _read(run, path)
    try:
        value = json.loads(content) if content.strip() else {}
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        run.faults.append(f"{path.name} is no JSON object; left out.")
        return {}
    return value

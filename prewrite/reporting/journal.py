"""The run folder: what was asked (`config.json`), and everything that happened, flushed line by line."""

import contextlib
import itertools
import json
import logging
import math
import os
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from prewrite.config import Config
from prewrite.config.changes import refuse_changes
from prewrite.config.loading import dump_config, load_config
from prewrite.errors import UserError
from prewrite.reporting.trackers import Tracker, open_trackers
from prewrite.reporting.written import WRITTEN
from prewrite.types import InstructionRow, Rollout, Row
from prewrite.writing import HALVES, write_whole

logger = logging.getLogger(__name__)

Start = Literal["new", "resume", "overwrite"]
ANSWERS = "answers.jsonl"  # written by `prewrite.engine.answers`

_LINES = ("metrics.jsonl", "log.jsonl", "dev.jsonl")  # a folder with none of them is a start that failed
_OTHER_PLACE = "set output_dir and run_name"
_WAY_OUT = "make room or put its rights in order, then go on with --resume"


def refuse_unwritable(config: Config) -> None:
    """UserError where the run folder could not be made. Nothing stays written."""
    folder = run_folder(config)
    there = next(path for path in (folder, *folder.parents) if os.path.lexists(path))
    try:
        os.rmdir(tempfile.mkdtemp(dir=there, prefix=".prewrite-"))
    except OSError as error:
        raise UserError(
            f"run folder {folder}: cannot be written ({there}: {error.strerror}); {_OTHER_PLACE}"
        ) from error


def run_folder(config: Config) -> Path:
    """Where a run writes, as a path that holds on every rank."""
    return Path(config.output_dir, config.run_name).absolute()


class Journal:
    """Writes a run folder; rank 0 alone has one. Each line is flushed, so a killed run leaves a readable folder."""

    def __init__(self, config: Config, start: Start = "new"):
        """Opens the folder of a new run, or with "resume" that of an earlier start with these settings.

        overwrite: an earlier run is set aside. Raises UserError.
        """
        self.folder = run_folder(config)
        self.best: Mapping[str, Any] = {}
        self.row_names: Mapping[InstructionRow, str] = {}  # as dev.jsonl and best.json call them
        self._tracking = config.tracking
        self._trackers: list[Tracker] = []
        self._draft = self.folder.with_name(f".{self.folder.name}.part")  # of a folder to start over in
        with self._faults_told(_OTHER_PLACE):
            self._end_start_over()
            if self.holds_run and start == "overwrite":
                self.set_aside()
            if self.holds_run and start == "new":
                raise UserError(
                    f"run folder {self.folder} already holds a run; a run is never written over: go on with it "
                    "(--resume), set it aside (--overwrite), or give another name (--set run_name=...)"
                )
            if self.holds_run:
                refuse_changes(self._began_with(), config, f"run folder {self.folder}")
            _open(config, self.folder)

    def _began_with(self) -> Config:
        try:
            return load_config(self.folder / "config.json")
        except UserError as error:
            raise UserError(
                f"run folder {self.folder}: its own config.json, the settings that the run began with, cannot be read "
                f"({error.__cause__ or error}); --resume needs it: put it back as it was (a JSON config of the same "
                "settings does too), or set this run aside (--overwrite)"
            ) from error

    @property
    def holds_run(self) -> bool:
        """Whether an earlier start came as far as a first answer or line."""
        return self.has_lines or ((answers := self.folder / ANSWERS).exists() and bool(answers.stat().st_size))

    @property
    def has_lines(self) -> bool:
        """Whether an earlier start came as far as a first line."""
        return any((self.folder / name).exists() for name in _LINES)

    def set_aside(self) -> Path:
        """Renames the folder to the first free NAME.old-N, and says so. Nothing in it is touched."""
        names = (self.folder.with_name(f"{self.folder.name}.old-{n}") for n in itertools.count(1))
        target = next(path for path in names if not path.exists())
        os.replace(self.folder, target)
        print(f"the earlier run now lies in {target}", flush=True)
        return target

    def start_over(self, config: Config) -> None:
        """Sets the run aside and opens a folder in its place that has its answers, and what was asked with them.

        Killed anywhere, it leaves those where `_end_start_over` finds them.
        """
        with self._faults_told():
            _open(config, self._draft)
            _move_kept(self.folder, self._draft)
            self.set_aside()
            os.replace(self._draft, self.folder)

    def _end_start_over(self) -> None:
        if self._draft.exists() and not self.folder.exists():  # the run was set aside
            os.replace(self._draft, self.folder)
        elif self._draft.exists():
            _move_kept(self._draft, self.folder)

    def sizes(self) -> dict[str, int]:
        """The bytes of each file of lines: what `cut_back` cuts to."""
        paths = {name: self.folder / name for name in _LINES}
        return {name: path.stat().st_size if path.exists() else 0 for name, path in paths.items()}

    def cut_back(self, sizes: Mapping[str, int]) -> None:
        """Takes out every line that came after `sizes`, and what an end of the run wrote. UserError where one lacks."""
        for name, size in self.sizes().items():
            if size < sizes[name]:
                raise UserError(
                    f"{self.folder / name} has {size} bytes, and had {sizes[name]} at the checkpoint: put it back as "
                    f"it was, or move {self.folder / 'checkpoints'} elsewhere: --resume then starts at step 0, and "
                    "what the task model answered is not paid for again"
                )
        with self._faults_told():
            for name, size in sizes.items():
                if (self.folder / name).exists():
                    os.truncate(self.folder / name, size)
            (self.folder / "totals.json").unlink(missing_ok=True)

    def open_trackers(self, config: Config, *, resumed: bool) -> None:
        """Starts what mirrors this folder from now on. Raises UserError."""
        self._trackers = open_trackers(config, self.folder, resumed=resumed)

    def close_trackers(self) -> None:
        """Ends them, whichever way the run ends."""
        self._tell("close")

    def _tell(self, event: str, *args: Any) -> None:
        for tracker in list(self._trackers):
            try:
                getattr(tracker, event)(*args)
            except Exception as error:  # noqa: BLE001  # a mirror, of whose faults nothing that was paid for may die
                self._trackers.remove(tracker)
                fault = f"{type(tracker).__name__} is left out from here on: {type(error).__name__}: {error}"
                print(f"tracking.report_to: {fault}", file=sys.stderr, flush=True)

    def write_step(self, metrics: Mapping[str, Any]) -> None:
        """One object a step, into metrics.jsonl."""
        self._append("metrics.jsonl", [metrics])
        self._tell("log_step", plain(metrics))

    def write_rollouts(
        self, rollouts: Iterable[Rollout], *, step: int, stage: int, seed: int, gaps: Iterable[float | None]
    ) -> None:
        """One object a rollout, into log.jsonl; `evaluate.py --prompts` reads it. gaps: mean |l_old - l_sampler|.

        completion: what the policy wrote, where it is more than the rewrite that was found in it.
        """
        rows = [
            {
                "step": step,
                "stage": stage,
                **self._asked(rollout.row),
                **({} if rollout.shown is None else {"parent": rollout.shown}),
                "rewrite": rollout.output,
                **({} if rollout.sample.text == rollout.output else {"completion": rollout.sample.text}),
                "reward": rollout.reward,
                "reward_parts": dict(rollout.reward_parts),
                "advantage": rollout.advantage,
                "finish_reason": rollout.sample.finish_reason,
                "sampler_gap": gap,
                "group": rollout.group,
                "seed": seed,
            }
            for rollout, gap in zip(rollouts, gaps, strict=True)
        ]
        self._append("log.jsonl", rows)
        best_first = sorted(rows, key=lambda row: float("inf") if row["reward"] is None else -row["reward"])
        if shown := best_first[: self._tracking.rollout_rows]:
            self._tell("log_rollouts", step, plain(shown))

    def _asked(self, row: Row) -> dict[str, Any]:
        if not isinstance(row, InstructionRow):
            return {"problem": row.id}
        asked = {"dataset_name": row.dataset_name, "subject": row.subject, "level": row.level, "tags": list(row.tags)}
        return {"row": self.row_names.get(row), **asked, "instruction": row.instruction}

    def write_dev(self, judged: Mapping[str, Any]) -> None:
        """One object a judged rewrite, into dev.jsonl."""
        self._append("dev.jsonl", [judged])

    def write_best(self, best: Mapping[str, Any]) -> None:
        """The best instruction a task so far, into best.json, whole or not at all."""
        self.best = best
        self._write("best.json", best)
        self._tell("log_best", plain(best))

    def write_task_model(self, facts: Mapping[str, Any]) -> None:
        """How the task model is asked, as its probe found it, into task_model.json."""
        self._write("task_model.json", facts)

    def write_wins_losses(self, duels: Sequence[Mapping[str, Any]]) -> None:
        """An object a row and place (test, race), into wins_losses.jsonl: where best and initial instruction differ.

        Rows of earlier stages that these do not have stay in it; lines that cannot be read do not, which is told.
        """
        path, rows = self.folder / "wins_losses.jsonl", {duel["row"] for duel in duels}
        with self._faults_told():
            kept, num_damaged = [], 0
            for line in path.read_bytes().split(b"\n") if path.is_file() else ():
                try:
                    if line and json.loads(line)["row"] not in rows:
                        kept.append(line.decode())
                except (ValueError, LookupError, TypeError, RecursionError):
                    num_damaged += 1
            if num_damaged:
                logger.warning("%s: lines that cannot be read are left out: %d", path, num_damaged)
            write_whole(path, "".join(line + "\n" for line in [*kept, *map(_json, duels)]))

    def write_totals(self, totals: Mapping[str, Any]) -> None:
        """What the whole run cost, into totals.json, at its end."""
        self._write("totals.json", totals)

    def _write(self, name: str, content: Mapping[str, Any]) -> None:
        with self._faults_told():
            write_whole(self.folder / name, _json(content, indent=2) + "\n")

    def _append(self, name: str, rows: Iterable[Mapping[str, Any]]) -> None:
        path = self.folder / name
        with self._faults_told(), path.open("a", encoding="utf-8", errors=HALVES, newline="\n") as file:
            for row in rows:
                file.write(_json(row) + "\n")

    @contextlib.contextmanager
    def _faults_told(self, way_out: str = _WAY_OUT) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise UserError(f"run folder {self.folder}: cannot be written ({error}); {way_out}") from error


def _open(config: Config, folder: Path) -> None:
    (folder / "checkpoints").mkdir(parents=True, exist_ok=True)
    write_whole(folder / "config.json", dump_config(config))


def _move_kept(folder: Path, into: Path) -> None:
    for name in (WRITTEN, ANSWERS):
        if (folder / name).exists():
            os.replace(folder / name, into / name)


def _json(value: Any, indent: int | None = None) -> str:
    return json.dumps(plain(value), ensure_ascii=False, allow_nan=False, indent=indent)


def plain(value: Any) -> Any:
    """A value as JSON gives it back, which knows no NaN: what is not finite is null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value

"""The run folder: what was asked (`config.json`), and everything that happened, flushed line by line."""

import itertools
import json
import math
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

from prewrite.config import Config
from prewrite.config.changes import refuse_changes
from prewrite.config.loading import dump_config, load_config
from prewrite.errors import UserError
from prewrite.types import InstructionRow, Rollout, Row
from prewrite.writing import HALVES, write_whole

Start = Literal["new", "resume", "overwrite"]

_LINES = ("metrics.jsonl", "log.jsonl", "dev.jsonl")  # a folder with none of them is a start that failed


class Journal:
    """Writes a run folder; rank 0 alone has one. Each line is flushed, so a killed run leaves a readable folder."""

    def __init__(self, config: Config, start: Start = "new"):
        """Opens the folder of a new run, or with "resume" that of an earlier start with these settings.

        overwrite: an earlier run is set aside. Raises UserError.
        """
        self.folder = Path(config.output_dir, config.run_name).absolute()  # one that holds on every rank
        self.best: Mapping[str, Any] = {}
        try:
            if self.holds_run and start == "overwrite":
                self.set_aside()
            if self.holds_run and start == "new":
                raise UserError(
                    f"run folder {self.folder} already holds a run; a run is never written over: go on with it "
                    "(--resume), set it aside (--overwrite), or give another name (--set run_name=...)"
                )
            if self.holds_run:
                refuse_changes(load_config(self.folder / "config.json"), config, f"run folder {self.folder}")
            self._open(config)
        except OSError as error:
            raise UserError(
                f"run folder {self.folder}: cannot be written ({error}); set output_dir and run_name"
            ) from error

    @property
    def holds_run(self) -> bool:
        """Whether an earlier start came as far as a first line."""
        return any((self.folder / name).exists() for name in _LINES)

    def set_aside(self) -> Path:
        """Renames the folder to the first free NAME.old-N, and says so. Nothing in it is touched."""
        numbers = itertools.count(1)
        target = next(
            path for n in numbers if not (path := self.folder.with_name(f"{self.folder.name}.old-{n}")).exists()
        )
        os.replace(self.folder, target)
        print(f"the earlier run now lies in {target}", flush=True)
        return target

    def start_over(self, config: Config) -> None:
        """Sets the run aside and opens an empty folder in its place."""
        self.set_aside()
        self._open(config)

    def sizes(self) -> dict[str, int]:
        """The bytes of each file of lines: what `cut_back` cuts to."""
        paths = {name: self.folder / name for name in _LINES}
        return {name: path.stat().st_size if path.exists() else 0 for name, path in paths.items()}

    def cut_back(self, sizes: Mapping[str, int]) -> None:
        """Takes out every line that came after `sizes`, and what an end of the run wrote. UserError where one lacks."""
        for name, size in self.sizes().items():
            if size < sizes[name]:
                raise UserError(
                    f"{self.folder / name} has {size} bytes, and {sizes[name]} when the checkpoint was made"
                )
        for name, size in sizes.items():
            if (self.folder / name).exists():
                os.truncate(self.folder / name, size)
        (self.folder / "totals.json").unlink(missing_ok=True)

    def _open(self, config: Config) -> None:
        (self.folder / "checkpoints").mkdir(parents=True, exist_ok=True)
        write_whole(self.folder / "config.json", dump_config(config))

    def write_step(self, metrics: Mapping[str, Any]) -> None:
        """One object a step, into metrics.jsonl."""
        self._append("metrics.jsonl", [metrics])

    def write_rollouts(
        self, rollouts: Iterable[Rollout], *, step: int, seed: int, gaps: Iterable[float | None]
    ) -> None:
        """One object a rollout, into log.jsonl; `evaluate.py --prompts` reads it. gaps: mean |l_old - l_sampler|."""
        self._append(
            "log.jsonl",
            [
                {
                    "step": step,
                    "stage": 0,
                    **_asked(rollout.row),
                    **({} if rollout.shown is None else {"parent": rollout.shown}),
                    "rewrite": rollout.output,
                    "reward": rollout.reward,
                    "reward_parts": dict(rollout.reward_parts),
                    "advantage": rollout.advantage,
                    "finish_reason": rollout.sample.finish_reason,
                    "sampler_gap": gap,
                    "group": rollout.group,
                    "seed": seed,
                }
                for rollout, gap in zip(rollouts, gaps, strict=True)
            ],
        )

    def write_dev(self, judged: Mapping[str, Any]) -> None:
        """One object a judged rewrite, into dev.jsonl."""
        self._append("dev.jsonl", [judged])

    def write_best(self, best: Mapping[str, Any]) -> None:
        """The best instruction a task so far, into best.json, whole or not at all."""
        self.best = best
        write_whole(self.folder / "best.json", _json(best, indent=2) + "\n")

    def write_wins_losses(self, duels: Iterable[Mapping[str, Any]]) -> None:
        """An object a row and place (test, race), into wins_losses.jsonl: where best and initial instruction differ."""
        write_whole(self.folder / "wins_losses.jsonl", "".join(_json(duel) + "\n" for duel in duels))

    def write_totals(self, totals: Mapping[str, Any]) -> None:
        """What the whole run cost, into totals.json, at its end."""
        write_whole(self.folder / "totals.json", _json(totals, indent=2) + "\n")

    def _append(self, name: str, rows: Iterable[Mapping[str, Any]]) -> None:
        with (self.folder / name).open("a", encoding="utf-8", errors=HALVES, newline="\n") as file:
            for row in rows:
                file.write(_json(row) + "\n")


def _asked(row: Row) -> dict[str, str]:
    if isinstance(row, InstructionRow):
        return {"dataset_name": row.dataset_name, "instruction": row.instruction}
    return {"problem": row.id}


def _json(value: Any, indent: int | None = None) -> str:
    return json.dumps(_plain(value), ensure_ascii=False, allow_nan=False, indent=indent)


def _plain(value: Any) -> Any:
    """JSON knows no NaN: what is not finite is written as null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value

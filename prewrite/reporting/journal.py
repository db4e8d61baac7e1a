"""The run folder: what was asked (`config.json`), and everything that happened, flushed line by line."""

import json
import math
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from prewrite.config import Config
from prewrite.config.loading import dump_config
from prewrite.errors import UserError
from prewrite.types import InstructionRow, Rollout, Row

_LINES = ("metrics.jsonl", "log.jsonl", "dev.jsonl")  # a folder with none of them is a start that failed
_HALVES = "backslashreplace"  # a lone surrogate, which UTF-8 cannot say, becomes JSON's own escape of it


class Journal:
    """Writes a run folder; rank 0 alone has one. Each line is flushed, so a killed run leaves a readable folder."""

    def __init__(self, config: Config):
        self.folder = Path(config.output_dir, config.run_name).absolute()  # one that holds on every rank
        self.best: Mapping[str, Any] = {}
        if any((self.folder / name).exists() for name in _LINES):
            raise UserError(
                f"run folder {self.folder} already holds a run; a run is never written over: give another name "
                "(--set run_name=...) or move the folder away"
            )
        try:
            (self.folder / "checkpoints").mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(
                f"run folder {self.folder}: cannot be made ({error}); set output_dir and run_name"
            ) from error
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

    def write_totals(self, totals: Mapping[str, Any]) -> None:
        """What the whole run cost, into totals.json, at its end."""
        write_whole(self.folder / "totals.json", _json(totals, indent=2) + "\n")

    def _append(self, name: str, rows: Iterable[Mapping[str, Any]]) -> None:
        with (self.folder / name).open("a", encoding="utf-8", errors=_HALVES, newline="\n") as file:
            for row in rows:
                file.write(_json(row) + "\n")


def write_whole(path: Path, text: str) -> None:
    """Writes a file by way of a neighbour and a rename: a reader sees the old text or the new, never a part."""
    draft = path.with_name(path.name + ".part")
    draft.write_text(text, encoding="utf-8", errors=_HALVES, newline="\n")
    os.replace(draft, path)


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

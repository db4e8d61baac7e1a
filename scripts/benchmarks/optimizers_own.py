"""The project's own side of the head-to-head: a run of `train.py`, an untrained one, and best-of-K without a run."""

import json
import os
import random
import shutil
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from prewrite.engine.distributed import free_port
from prewrite.engine.processes import end_guarded, start_guarded
from prewrite.errors import UserError
from scripts.benchmarks.asking import REWRITE_TOKENS, Bench, Servers, as_marks, ask_and_grade, draw_rewrites
from scripts.benchmarks.asking import mean_of_marks as mean

ROOT = Path(__file__).parents[2]
FINALISTS = 4
LOG_TAIL = 12


def prewrite(bench: Bench, budget: int, *, name: str = "prewrite", settings: dict[str, Any] | None = None) -> dict:
    """A run as a user starts it, in a process of its own. Raises UserError with its last words where it fails."""
    folder = (bench.arguments.out / "runs" / f"{bench.task.name}-{name}-{budget}-seed{bench.seed}").resolve()
    if folder.exists():  # broken off: a run that ended well has its record, and is not run again
        folder.rename(folder.with_name(f"{folder.name}.broken-{time.time():.0f}"))
    folder.parent.mkdir(parents=True, exist_ok=True)
    command = run_command(bench, budget, folder, settings or {})
    log = folder.with_suffix(".log")
    with log.open("wb") as out:
        guard = start_guarded(command, env=os.environ, log=out)  # it ends with this process, however that ends
        try:
            code = guard.wait()
        finally:
            end_guarded(guard)
    if code:
        tail = "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-LOG_TAIL:])
        raise UserError(f"the run {folder.name} ended with exit code {code}. From its log, {log}:\n{tail}")
    best = json.loads((folder / "best.json").read_text(encoding="utf-8"))[bench.task.name]
    totals = json.loads((folder / "totals.json").read_text(encoding="utf-8"))
    calls = int(totals["task_calls"])
    shutil.rmtree(folder / "checkpoints", ignore_errors=True)  # of a 1.5B 22 GB: six runs filled a disk
    return {
        "instruction": best["instruction"],
        "paid": calls,
        "wire_calls": calls,
        "steps": totals["steps"],
        "finalists": [{"text": best["instruction"], "rows": best["n"], "mean": best["score"]}],
        "step_seconds": round(totals["seconds"], 1),
    }


def untrained(bench: Bench, budget: int) -> dict[str, Any]:
    """The same run without a step of training."""
    return prewrite(bench, budget, name="untrained", settings={"training.max_steps": 0})


def run_config(bench: Bench) -> Path:
    """The file of a run's config."""
    return bench.arguments.config or ROOT / "configs" / f"{bench.task.name}.json"


def run_settings(bench: Bench, budget: int, folder: Path, settings: dict[str, Any]) -> list[str]:
    """What is set over the config: --set, over that what all methods share, and last `settings`."""
    arguments = bench.arguments
    urls = arguments.base_urls
    shared: dict[str, Any] = {
        "seed": bench.seed,
        "run_name": folder.name,
        "output_dir": str(folder.parent),
        "data.tasks": [bench.task.name],
        "data.dev_size": len(bench.dev),
        "data.min_words": arguments.min_words,
        "task_model.base_url": urls[0] if len(urls) == 1 else urls,
        "task_model.model": arguments.model,
        "task_model.max_tokens": arguments.max_tokens,
        "task_model.scoring": arguments.scoring,
        "budget.max_task_calls": budget,
    }
    return [*arguments.set, *(f"{key}={json.dumps(value)}" for key, value in (shared | settings).items())]


def run_command(bench: Bench, budget: int, folder: Path, settings: dict[str, Any]) -> list[str]:
    """What starts the run."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").partition(",")[
        0
    ]  # the launcher does not heed it by --num_gpus
    device = ("--include", f"localhost:{visible}") if visible else ("--num_gpus", "1")
    return [
        *(sys.executable, "-m", "deepspeed.launcher.runner", *device, "--master_port", str(free_port())),
        *(str(ROOT / "train.py"), "--config", str(run_config(bench))),
        *(part for setting in run_settings(bench, budget, folder, settings) for part in ("--set", setting)),
    ]


def best_of_k(bench: Bench, budget: int) -> dict[str, Any]:
    """Successive halving over untrained rewrites, the initial instruction among them."""
    sizes = halving_sizes(budget)
    initial, most = bench.task.default_instruction, min(REWRITE_TOKENS, bench.arguments.proposal_tokens)
    with closing(Servers(bench.arguments, temperature=1.0, max_tokens=most)) as proposer:
        drawn, asked = draw_rewrites(proposer, initial, sizes[0][0] - 1, seed=bench.seed)
    rows = list(bench.train)
    random.Random(bench.seed).shuffle(rows)
    left, marks, spent, start = [initial, *drawn], {text: "" for text in (initial, *drawn)}, 0, 0
    num_drawn = len(left)
    for number, examples_each in sizes:
        left = sorted(left, key=lambda text: -mean(marks[text]))[:number]
        end = min(start + examples_each, len(rows))
        if start == end:  # a small task has no more rows; the order stands
            break
        graded = ask_and_grade(bench.servers, bench.task, left, rows[start:end])
        for text, (_, verdicts) in zip(left, graded, strict=True):
            marks[text] += as_marks(verdicts)
        spent, start = spent + len(left) * (end - start), end
    best = max(left, key=lambda text: mean(marks[text]))
    kept = [{"text": text, "rows": len(marks[text]), "mean": round(mean(marks[text]), 4)} for text in left]
    return {"instruction": best, "paid": spent, "rewriter_calls": asked, "drawn": num_drawn, "finalists": kept}


def halving_sizes(budget: int) -> list[tuple[int, int]]:
    """(rewrites, new rows for each) by round: the number halves, the rows double, each round costs about as much."""
    number = max(8, 2 ** round(np.log2(budget) - 5))  # 2,000 calls: 64 rewrites; 20,000: 512
    numbers = [number]
    while numbers[-1] > FINALISTS:
        numbers.append(numbers[-1] // 2)
    share = budget / len(numbers)
    return [(each, max(1, int(share / each))) for each in numbers]

"""Optimizers head to head on one task: the same rows, model and budget of calls, several seeds.

    PYTHONPATH=. python scripts/benchmarks/optimizers.py --task gsm8k --base-urls http://127.0.0.1:8000/v1 \
        --model NAME --out docs/runs --methods prewrite@20000 best_of_k@20000 gepa@2000 mipro@2000 --seeds 1 2 3 \
        --config configs/gsm8k.json --set policy.model=FOLDER

A method is a name, @, the calls to the task model that it may pay:
- prewrite: a run of train.py with --config, started as a user starts it; untrained: the same with no step of training.
- best_of_k: rewrites of the untrained rewriter by successive halving: every round all that are left answer the same new
  train rows, and the better half by all of its rows goes on.
- gepa (PyPI: gepa) and mipro (PyPI: dspy, optuna): with their own defaults; the model itself is their proposer.
- label_bias: no method, but what a win may be: the initial instruction with a constant for each label, fitted on as
  many calls. A classification task has it beside every budget, asked for or not; it needs an endpoint that gives
  log-probabilities, and is left out where it was not asked for and there are none.
Writes `optimizers-<task>.jsonl`: one record a run as soon as it ends, one a test pass; what is there is not run again.
`--table` prints what the file says and asks nothing.
"""

import argparse
import importlib.util
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from prewrite.config.loading import load_config
from prewrite.errors import UserError
from prewrite.tasks import get_task
from prewrite.tasks.base import Task
from prewrite.tasks.loading import load_examples
from prewrite.types import Example
from scripts.benchmarks.asking import (
    BY_HAND,
    Bench,
    Lines,
    Servers,
    add_arguments,
    as_marks,
    ask_and_grade,
    commit,
    exit_code,
)
from scripts.benchmarks.label_bias import biased_marks, label_bias, label_scores
from scripts.benchmarks.optimizers_own import best_of_k, prewrite, run_config, run_settings, untrained
from scripts.benchmarks.optimizers_peers import gepa, mipro
from scripts.benchmarks.optimizers_table import print_table

METHODS = {
    "prewrite": prewrite,
    "untrained": untrained,
    "best_of_k": best_of_k,
    "gepa": gepa,
    "mipro": mipro,
    "label_bias": label_bias,
}
DEFAULT_METHODS = [
    *("prewrite@2000", "best_of_k@2000", "gepa@2000", "mipro@2000"),
    *("prewrite@20000", "untrained@20000", "best_of_k@20000", "gepa@20000"),
]
LEAST_CALLS = 20
RUNS, PEERS = ("prewrite", "untrained"), {"gepa": ("gepa",), "mipro": ("dspy", "optuna")}  # and a peer's packages


class HeadToHead:
    """The runs and the test passes of one task. What is in `lines` is not done again."""

    def __init__(self, task: Task, arguments: argparse.Namespace, lines: Lines):
        self.task, self.arguments, self.lines = task, arguments, lines
        self.test = load_examples(task, "test")[: arguments.test_rows]
        self._passing = threading.Lock()
        if len(self.test) < 2:
            raise UserError(f"--test-rows: {len(self.test)} test rows have no interval: at least 2")
        rows = {len(record["marks"]) for record in lines.records if "marks" in record}
        models = {record["model"] for record in lines.records if "model" in record}
        scorings = {record.get("scoring", "forced_choice") for record in lines.records}
        settled = {
            "rows": (rows, len(self.test)),
            "model": (models, arguments.model),
            "scoring": (scorings, arguments.scoring),
        }
        for key, (known, own) in settled.items():
            if others := known - {own}:
                there = ", ".join(map(str, others))
                raise UserError(f"{lines.path} has runs of the {key} {there}, and this is {own}: give another --out")

    def run_all(self) -> None:
        """Raises UserError at the end where runs have failed; the others have their records."""
        arguments = self.arguments
        self._refuse_what_cannot_run()
        for text in (self.task.default_instruction, BY_HAND.get(self.task.name)):
            if text is not None:
                self._test(text)
        jobs = [(method, seed) for method in self._methods() for seed in arguments.seeds]
        # A run of ours has a model to train; a peer waits for one answer at a time; the others fill the servers alone.
        at_once = {RUNS: arguments.side_by_side, tuple(PEERS): len(jobs), ("best_of_k", "label_bias"): 1}
        pools = {names: ThreadPoolExecutor(number) for names, number in at_once.items()}
        started = [
            pools[names].submit(self._run, method, seed)
            for method, seed in jobs
            for names in pools
            if method.partition("@")[0] in names
        ]
        faults = [fault for job in started if (fault := job.result())]
        if faults:
            raise UserError(f"{len(faults)} of {len(jobs)} runs failed:\n" + "\n".join(faults))

    def _refuse_what_cannot_run(self) -> None:
        """UserError before anything is paid for: a config that is none, an endpoint that does not answer."""
        task, arguments = self.task, self.arguments
        asked = [(method, seed) for method in arguments.methods for seed in arguments.seeds]
        for method, seed in asked:
            name, _, budget = method.partition("@")
            if name in RUNS and not self._record(method, seed):
                bench = Bench(task, *self._rows(seed), servers=None, arguments=arguments, seed=seed)
                load_config(run_config(bench), run_settings(bench, int(budget), arguments.out / "run", {}))
        if not all(self._record(method, seed) for method, seed in asked):
            with closing(Servers(arguments, temperature=0.0, max_tokens=arguments.max_tokens)) as servers:
                servers.probe()

    def _rows(self, seed: int) -> tuple[Sequence[Example], Sequence[Example]]:
        """(train, dev), cut by the seed."""
        task, arguments = self.task, self.arguments
        cut = {"seed": seed, "words": (arguments.min_words, None)}
        cut["dev_size"] = min(arguments.dev_size, len(load_examples(task, "train", **cut)) // 2)
        return load_examples(task, "train", **cut), load_examples(task, "dev", **cut)

    def _methods(self) -> list[str]:
        """Those asked for, and in a forced choice the label bias at each of their budgets, where it can be had."""
        asked = self.arguments.methods
        methods = _with_bias(self.task, asked) if self.arguments.scoring == "forced_choice" else asked
        added = [(method, seed) for method in methods if method not in asked for seed in self.arguments.seeds]
        if all(self._record(method, seed) for method, seed in added):
            return methods
        try:
            _ = self._test_scores
        except UserError as error:
            print(f"{self.task.name}: the label bias, which was not asked for, is left out: {error}", flush=True)
            return asked
        return methods

    def _run(self, method: str, seed: int) -> str:
        """Runs a method and tests its instruction; returns why it failed, or ""."""
        try:
            record = self._record(method, seed) or self._search(method, seed)
            if "marks" not in record:
                self._test(record["instruction"])
        except UserError as error:
            print(f"{self.task.name} {method} seed {seed} FAILED: {error}", flush=True)
            return f"{method} seed {seed}: {error}"
        return ""

    def _record(self, method: str, seed: int) -> dict[str, Any] | None:
        return next((r for r in self.lines.records if (r.get("method"), r.get("seed")) == (method, seed)), None)

    def _search(self, method: str, seed: int) -> dict[str, Any]:
        task, arguments = self.task, self.arguments
        name, _, budget = method.partition("@")
        with closing(Servers(arguments, temperature=0.0, max_tokens=arguments.max_tokens)) as servers:
            bench = Bench(task, *self._rows(seed), servers, arguments, seed)
            started = time.monotonic()
            told = METHODS[name](bench, int(budget))
            told = {"wire_calls": servers.calls, "seconds": round(time.monotonic() - started, 1)} | told
        if "bias" in told:
            told["marks"] = biased_marks(task, self._test_scores, self.test, told["bias"])
        what = {"method": method, "seed": seed, "model": arguments.model, "scoring": arguments.scoring}
        told = what | {"commit": commit()} | told
        self.lines.append(told)
        print(
            f"{task.name} {method} seed {seed}: {told['wire_calls']} of {budget} calls, {told['seconds']} s", flush=True
        )
        return told

    @cached_property
    def _test_scores(self) -> np.ndarray:
        return label_scores(self.task, self.arguments, self.test)

    def _test(self, instruction: str) -> None:
        """The one pass over the test rows that an instruction gets."""
        with self._passing:  # one pass fills the servers
            if any(record.get("tested") == instruction for record in self.lines.records):
                return
            started = time.monotonic()
            with closing(Servers(self.arguments, temperature=0.0, max_tokens=self.arguments.max_tokens)) as servers:
                answers, verdicts = ask_and_grade(servers, self.task, [instruction], self.test)[0]
            self.lines.append(
                {
                    "tested": instruction,
                    "scoring": self.arguments.scoring,
                    "rows": len(self.test),
                    "marks": as_marks(verdicts),
                    "cut": sum(answer.finish_reason == "length" for answer in answers),
                    "seconds": round(time.monotonic() - started, 1),
                }
            )


def main(given: Sequence[str] | None = None) -> None:
    """Reads the flags, runs what is not there yet, prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser, asks=False)
    parser.add_argument("--task", required=True)
    parser.add_argument("--methods", nargs="+", help="default: ours and best_of_k, and the peers that are installed")
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    parser.add_argument("--dev-size", type=int, default=200, help="rows cut from train, for all (default 200)")
    parser.add_argument("--min-words", type=int, default=0, help="shorter train and dev rows are left out, for all")
    parser.add_argument("--test-rows", type=int, help="the first so many test rows (default: all)")
    parser.add_argument("--minutes", type=float, default=20.0, help="of one run of GEPA at most (default 20)")
    parser.add_argument(
        "--proposal-tokens", type=int, default=1024, help="of a peer's proposal; a rewrite has 256 at most"
    )
    parser.add_argument("--config", type=Path, help="of prewrite and untrained (default configs/<task>.json)")
    parser.add_argument("--set", action="append", default=[], metavar="key=value", help="passed on to train.py")
    parser.add_argument("--side-by-side", type=int, default=1, help="runs of ours at a time (default 1)")
    parser.add_argument("--table", action="store_true", help="only print the table of what is there")
    arguments = parser.parse_args(given)
    if not arguments.table and not (arguments.base_urls and arguments.model):
        parser.error("--base-urls and --model are needed, but for --table")
    missing = {
        peer: ", ".join(lacks)
        for peer, needed in PEERS.items()
        if (lacks := [package for package in needed if importlib.util.find_spec(package) is None])
    }
    if arguments.methods is None:
        arguments.methods = [method for method in DEFAULT_METHODS if method.partition("@")[0] not in missing]
        for peer, lacks in () if arguments.table else missing.items():
            print(f"{peer} is left out: pip install {lacks}", flush=True)
    for method in arguments.methods:
        name, _, budget = method.partition("@")
        if name not in METHODS or not budget.isdecimal() or int(budget) < LEAST_CALLS:
            rule = f"a method is one of {', '.join(METHODS)}, @, and {LEAST_CALLS} calls at least; as gepa@2000"
            raise UserError(f"--methods {method!r}: {rule}")
        if name in missing and not arguments.table:
            way_out = f"pip install {missing[name]}, or leave {name} out"
            raise UserError(f"--methods {method}: not installed: {missing[name]}: {way_out}")
        if name == "label_bias" and arguments.scoring != "forced_choice":
            raise UserError(f"--methods {method}: a label bias is one of a forced choice, and --scoring is free_text")
    task = get_task(arguments.task)
    if not task.labels and any(method.startswith("label_bias@") for method in arguments.methods):
        raise UserError(f"--methods label_bias: {task.name} has no labels")
    lines = Lines(arguments.out / f"optimizers-{task.name}.jsonl")
    if arguments.table and not lines.records:
        raise UserError(f"--table: {lines.path} is not there, or has nothing in it")
    try:
        if not arguments.table:
            HeadToHead(task, arguments, lines).run_all()
    finally:
        if lines.records:
            print_table(task, lines.records)


def _with_bias(task: Task, methods: Sequence[str]) -> list[str]:
    """The methods, and in a forced choice the label bias at each of their budgets."""
    budgets = dict.fromkeys(method.partition("@")[2] for method in methods) if task.labels else ()
    return list(dict.fromkeys([*methods, *(f"label_bias@{budget}" for budget in budgets)]))


if __name__ == "__main__":
    sys.exit(exit_code(main))

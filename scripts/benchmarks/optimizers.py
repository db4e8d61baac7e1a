"""Optimizers head to head: GEPA and best-of-K on one task, the same rows, model and budget of calls, several seeds.

    PYTHONPATH=. python scripts/benchmarks/optimizers.py --task gsm8k --base-urls http://127.0.0.1:8000/v1 \
        --model NAME --out docs/runs --methods best_of_k@2000 best_of_k@20000 gepa@2000 --seeds 1 2 3

A method is a name, @, the calls to the task model that it may pay. GEPA (PyPI: gepa) has its own defaults; its
reflection model is the model itself. Best-of-K draws rewrites of the untrained rewriter and chooses by successive
halving: every round all that are left answer the same new train rows, and the better half by all of its rows goes on.
Writes `optimizers-<task>.jsonl`: one record a run as soon as it ends, one a test pass; what is there is not run again.
`--table` prints what the file says and asks nothing.
"""

import argparse
import random
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from prewrite.errors import UserError
from prewrite.evaluation.statistics import mcnemar_test
from prewrite.tasks import get_task
from prewrite.tasks.base import Task, query
from prewrite.tasks.loading import load_examples
from prewrite.types import Call, Example
from scripts.benchmarks.asking import (
    BY_HAND,
    PROPOSAL_TOKENS,
    REWRITE_TOKENS,
    Lines,
    Servers,
    add_arguments,
    as_marks,
    ask_and_grade,
    commit,
    draw_rewrites,
    exit_code,
    mean_of_marks,
)

FINALISTS = 4


@dataclass(frozen=True)
class Bench:
    """One task's rows and servers. seed: of this run; train and dev are cut by it as a run of ours cuts them."""

    task: Task
    train: Sequence[Example]
    dev: Sequence[Example]
    servers: Servers
    arguments: argparse.Namespace
    seed: int


def best_of_k(bench: Bench, budget: int) -> dict[str, Any]:
    """Successive halving over untrained rewrites, the initial instruction among them."""
    sizes = halving_sizes(budget)
    proposer = Servers(bench.arguments, temperature=1.0, max_tokens=REWRITE_TOKENS)
    initial = bench.task.default_instruction
    drawn, asked = draw_rewrites(proposer, initial, sizes[0][0] - 1, seed=bench.seed)
    proposer.close()
    rows = list(bench.train)
    random.Random(bench.seed).shuffle(rows)
    left, marks, spent, start = [initial, *drawn], {text: "" for text in (initial, *drawn)}, 0, 0
    num_drawn = len(left)
    for number, examples_each in sizes:
        left = sorted(left, key=lambda text: -mean_of_marks(marks[text]))[:number]
        end = min(start + examples_each, len(rows))
        if start == end:  # a small task has no more rows; the order stands
            break
        graded = ask_and_grade(bench.servers, bench.task, left, rows[start:end])
        for text, (_, verdicts) in zip(left, graded, strict=True):
            marks[text] += as_marks(verdicts)
        spent, start = spent + len(left) * (end - start), end
    best = max(left, key=lambda text: mean_of_marks(marks[text]))
    kept = [{"text": text, "rows": len(marks[text]), "mean": round(mean_of_marks(marks[text]), 4)} for text in left]
    return {"instruction": best, "paid": spent, "rewriter_calls": asked, "drawn": num_drawn, "finalists": kept}


def halving_sizes(budget: int) -> list[tuple[int, int]]:
    """(rewrites, new rows for each) by round: the number halves, the rows double, each round costs about as much."""
    number = max(8, 2 ** round(np.log2(budget) - 5))  # 2,000 calls: 64 rewrites; 20,000: 512
    numbers = [number]
    while numbers[-1] > FINALISTS:
        numbers.append(numbers[-1] // 2)
    share = budget / len(numbers)
    return [(each, max(1, int(share / each))) for each in numbers]


def gepa(bench: Bench, budget: int) -> dict[str, Any]:
    """GEPA as it comes: its own defaults, our query, forced choice and grading, the dev rows as its validation set."""
    try:
        import gepa as peer  # type: ignore[import-not-found]  # the peer is no requirement of ours
    except ImportError as error:
        raise UserError("gepa is not installed: pip install gepa, or leave gepa out of --methods") from error
    from gepa.core.adapter import EvaluationBatch  # type: ignore[import-not-found]  # as above
    from gepa.utils import TimeoutStopCondition  # type: ignore[import-not-found]  # as above

    task, seen = bench.task, {"reflections": 0}
    proposer = Servers(bench.arguments, temperature=1.0, max_tokens=PROPOSAL_TOKENS)

    class Adapter:
        propose_new_texts = None

        def evaluate(self, batch: list[Example], candidate: dict[str, str], capture_traces: bool = False) -> Any:
            answers, verdicts = ask_and_grade(bench.servers, task, [candidate["instruction"]], batch)[0]
            texts = [answer.text or "" for answer in answers]
            scores = [float(bool(verdict.correct)) for verdict in verdicts]
            traces = list(zip(batch, texts, scores, strict=True)) if capture_traces else None
            return EvaluationBatch(outputs=texts, scores=scores, trajectories=traces)

        def make_reflective_dataset(self, candidate: Any, eval_batch: Any, components_to_update: list[str]) -> Any:
            records = [
                {
                    "Inputs": query(task, "", example).strip(),
                    "Generated Outputs": text,
                    "Feedback": _feedback(example, right=score == 1.0),
                }
                for example, text, score in eval_batch.trajectories
            ]
            return {name: records for name in components_to_update}

    def reflect(prompt: Any) -> str:
        text = prompt if isinstance(prompt, str) else prompt[-1]["content"]
        seen["reflections"] += 1
        answer = proposer.ask([Call(text, sample_index=bench.seed * 1_000_000 + seen["reflections"])])[0]
        if answer.text is None:
            raise UserError(f"the reflection model gave nothing: {answer.error}")
        return answer.text

    class Quiet:
        def log(self, message: str) -> None:
            pass

    result = peer.optimize(
        seed_candidate={"instruction": task.default_instruction},
        trainset=list(bench.train),
        valset=list(bench.dev),
        adapter=Adapter(),  # type: ignore[arg-type]  # its protocol, kept by shape alone
        reflection_lm=reflect,
        max_metric_calls=budget,
        stop_callbacks=TimeoutStopCondition(60.0 * bench.arguments.minutes),
        logger=Quiet(),
        seed=bench.seed,
    )
    proposer.close()
    best = result.best_candidate
    assert isinstance(best, dict)
    kept = [
        {"text": candidate["instruction"], "rows": len(bench.dev), "mean": round(score, 4)}
        for candidate, score in zip(result.candidates, result.val_aggregate_scores, strict=True)
    ]
    return {
        "instruction": best["instruction"],
        "paid": result.total_metric_calls,
        "rewriter_calls": seen["reflections"],
        "finalists": kept,
    }


def _feedback(example: Example, *, right: bool) -> str:
    if right:
        return "The answer is right."
    golds = example.target if isinstance(example.target, str) else " or ".join(example.target)
    solution = f" A solution: {example.solution}" if example.solution else ""
    return f"The answer is wrong. The right answer is {golds!r}.{solution}"


METHODS = {"best_of_k": best_of_k, "gepa": gepa}


def main() -> None:
    """Reads the flags, runs what is not there yet, prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser)
    parser.add_argument("--task", required=True)
    parser.add_argument("--methods", nargs="+", default=["best_of_k@2000", "gepa@2000", "best_of_k@20000"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    parser.add_argument("--dev-size", type=int, default=200, help="rows cut from train (default 200)")
    parser.add_argument("--test-rows", type=int, help="the first so many test rows (default: all)")
    parser.add_argument("--minutes", type=float, default=20.0, help="of one run of GEPA at most (default 20)")
    parser.add_argument("--table", action="store_true", help="only print the table of what is there")
    arguments = parser.parse_args()
    for method in arguments.methods:
        name, _, budget = method.partition("@")
        if name not in METHODS or not budget.isdigit():
            raise UserError(f"--methods {method!r}: a method is one of {', '.join(METHODS)}, @, calls; as gepa@2000")
    task = get_task(arguments.task)
    lines = Lines(arguments.out / f"optimizers-{task.name}.jsonl")
    if not arguments.table:
        _run_all(task, arguments, lines)
    print_table(task, lines.records)


def _run_all(task: Task, arguments: argparse.Namespace, lines: Lines) -> None:
    test = load_examples(task, "test")[: arguments.test_rows]
    passing = threading.Lock()

    def testify(instruction: str) -> None:
        """The one pass over the test rows that an instruction gets."""
        with passing:  # one pass fills the servers
            if any(record.get("tested") == instruction for record in lines.records):
                return
            servers = Servers(arguments, temperature=0.0, max_tokens=arguments.max_tokens)
            started = time.monotonic()
            answers, verdicts = ask_and_grade(servers, task, [instruction], test)[0]
            servers.close()
            lines.append(
                {
                    "tested": instruction,
                    "rows": len(test),
                    "marks": as_marks(verdicts),
                    "cut": sum(answer.finish_reason == "length" for answer in answers),
                    "seconds": round(time.monotonic() - started, 1),
                }
            )

    def run(job: tuple[str, int]) -> None:
        method, seed = job
        name, _, budget = method.partition("@")
        there = [r for r in lines.records if (r.get("method"), r.get("seed")) == job]
        if not there:
            split = {"seed": seed, "dev_size": min(arguments.dev_size, _pool(task, seed) // 2)}
            servers = Servers(arguments, temperature=0.0, max_tokens=arguments.max_tokens)
            train, dev = load_examples(task, "train", **split), load_examples(task, "dev", **split)
            started = time.monotonic()
            told = METHODS[name](Bench(task, train, dev, servers, arguments, seed), int(budget))
            told |= {"wire_calls": servers.calls, "seconds": round(time.monotonic() - started, 1)}
            servers.close()
            lines.append({"method": method, "seed": seed, "model": arguments.model, "commit": commit()} | told)
            there = [r for r in lines.records if (r.get("method"), r.get("seed")) == job]
            print(f"{task.name} {method} seed {seed}: {told['paid']} calls, {told['seconds']} s", flush=True)
        testify(there[0]["instruction"])

    # GEPA waits for one answer at a time: its runs go side by side. A look of best-of-K fills the servers: one by one.
    jobs = [(method, seed) for method in arguments.methods for seed in arguments.seeds]
    lone = [job for job in jobs if job[0].startswith("gepa@")]
    with ThreadPoolExecutor(len(lone) + 1) as threads:
        started = [threads.submit(run, job) for job in lone]
        for text in (task.default_instruction, BY_HAND[task.name]):
            testify(text)
        for job in jobs:
            if job not in lone:
                run(job)
        for future in started:
            future.result()


def _pool(task: Task, seed: int) -> int:
    return len(load_examples(task, "train", seed=seed))


def print_table(task: Task, records: Sequence[dict[str, Any]]) -> None:
    """Accuracy on the test rows, gain over the initial instruction, interval over rows, p, calls, seconds."""
    tested = {record["tested"]: record["marks"] for record in records if "tested" in record}
    initial = task.default_instruction
    if initial not in tested:
        print("the initial instruction has no test pass yet")
        return
    fixed = [("initial", initial), ("by hand", BY_HAND[task.name])]
    rows = [(name, None, text, 0, 0.0) for name, text in fixed if text in tested]
    rows += [
        (record["method"], record["seed"], record["instruction"], record["paid"], record["seconds"])
        for record in sorted(
            (r for r in records if "method" in r and r["instruction"] in tested), key=lambda r: (r["method"], r["seed"])
        )
    ]
    print("| method | seed | test accuracy | gain (95% over rows) | p | calls | seconds |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for name, seed, text, paid, seconds in rows:
        ours, first = (np.array([c == "1" for c in tested[t]], dtype=float) for t in (text, initial))
        gain, error = ours - first, 1.96 * (ours - first).std(ddof=1) / np.sqrt(len(ours))
        p = mcnemar_test([bool(x) for x in ours], [bool(x) for x in first]).p_value
        shown = f"{100 * gain.mean():+.1f} ± {100 * error:.1f}"
        print(f"| {name} | {seed or ''} | {100 * ours.mean():.1f} | {shown} | {p:.2g} | {paid} | {seconds:.0f} |")


if __name__ == "__main__":
    sys.exit(exit_code(main, "optimizers.py"))

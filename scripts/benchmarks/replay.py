"""Choosing among rewrites, tried on verdict tables for nothing: estimates, examples a rewrite, ways to spend calls.

    PYTHONPATH=. python scripts/benchmarks/replay.py docs/runs/verdicts-*.jsonl

Prints one table a task. The truth of a rewrite is its mean on examples that the choice has not seen. "estimate" and
"race" are the package's own. Where a file has them, the probabilities of the right labels stand beside right and wrong,
and the rewrites of each meta-instruction beside one another; of a task with labels (PREWRITE_DATA has its rows) also
examples drawn by luck beside a run of the package's own order.
Legend: R rewrites, E examples; y_RE is 1 right, 0 wrong, nan no verdict; p_RE the probability of the right label.
"""

import argparse
import json
import random
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.stats import spearmanr

from prewrite.errors import UserError
from prewrite.tasks import TASKS
from prewrite.tasks.loading import load_examples
from prewrite.tasks.loading import spread as spread_labels
from prewrite.training.objectives.estimate import estimate_worth
from prewrite.training.objectives.race import plan_race, run_race
from prewrite.types import Example
from scripts.benchmarks.asking import exit_code

GROUP = 8  # rewrites that share their examples in training
KS = (4, 8, 16, 32)
BUDGETS = (400, 800, 1600, 3200)
VALUES = {"1": 1.0, "0": 0.0, "-": np.nan}
Way = Callable[[np.ndarray, int], np.ndarray]  # (columns that may be seen, k) -> a mean of each rewrite


@dataclass(frozen=True)
class Table:
    """The verdicts of a task. fixed: means of the initial instruction and the hand's.

    p_RE: None where they were not kept. asked_by_R: the number of the meta-instruction that asked for each rewrite.
    examples_E: None for a task without labels.
    """

    task: str
    y_RE: np.ndarray
    fixed: dict[str, float]
    p_RE: np.ndarray | None
    asked_by_R: list[str]
    meta_instructions: list[str]
    examples_E: list[Example] | None


@dataclass(frozen=True)
class Spread:
    """Variances of a table's parts: between rewrites, between examples, and what is left."""

    rewrite: float
    example: float
    rest: float


def load(path: Path) -> Table:
    """The table in a file of `verdicts.py`; rewrites not asked yet are left out. UserError for another file."""
    try:
        head, *rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        if not head.keys() >= {"task"} or not rows:
            raise ValueError("it has no table in it")
    except (OSError, ValueError, AttributeError) as error:
        raise UserError(f"{path}: {error}; give files of scripts/benchmarks/verdicts.py") from error
    y = {row["rewrite"]: [VALUES[mark] for mark in row["marks"]] for row in rows}
    fixed = {name: float(np.nanmean(y.pop(name))) for name in ("initial", "by_hand") if name in y}
    logprobs = {row["rewrite"]: row.get("target_logprobs") for row in rows if row["rewrite"] in y}
    known = all(logprobs.values())
    p = np.exp(np.array(list(logprobs.values()), dtype=float) / 100) if known else None
    asked_by = [name.partition("/")[0] for name in y]
    task, examples = TASKS.get(head["task"]), None
    if task is not None and task.labels:
        own = {example.id: example for example in load_examples(task, "train")}
        examples = [own[name] for name in head["examples"]]
    return Table(
        head["task"], np.array(list(y.values())), fixed, p, asked_by, head.get("meta_instructions", []), examples
    )


def spread(y_RE: np.ndarray) -> Spread:
    """Two-way analysis of variance without repeats (expected mean squares), on the rows and columns without nan."""
    y = y_RE[:, ~np.isnan(y_RE).any(axis=0)]
    rows, columns = y.shape
    rest = y - y.mean(1, keepdims=True) - y.mean(0, keepdims=True) + y.mean()
    noise = (rest**2).sum() / ((rows - 1) * (columns - 1))
    return Spread(
        rewrite=max(1e-5, y.mean(1).var(ddof=1) - noise / columns),
        example=max(1e-5, y.mean(0).var(ddof=1) - noise / rows),
        rest=noise,
    )


def examples_seen(y_RE: np.ndarray, k: int, per_draw: int, rng: np.random.Generator) -> np.ndarray:
    """Which verdicts are paid for, [R, E]: each `per_draw` rewrites in turn share k examples of their own."""
    seen = np.zeros(y_RE.shape, dtype=bool)
    for first in range(0, len(y_RE), per_draw):
        seen[first : first + per_draw, rng.choice(y_RE.shape[1], k, replace=False)] = True
    return seen & ~np.isnan(y_RE)


def rank_correlation(estimate_R: np.ndarray, truth_R: np.ndarray) -> float:
    """Spearman's; 0 where the estimates are all the same."""
    return float(spearmanr(estimate_R, truth_R)[0]) if np.ptp(estimate_R) else 0.0  # type: ignore[arg-type]  # untyped


def judged(y_RE: np.ndarray, seen_RE: np.ndarray) -> dict[str, tuple[float, float]]:
    """Of each estimate: (rank correlation with the truth, truth of the 5% picked above the mean of all)."""
    truth_R = np.nanmean(np.where(seen_RE, np.nan, y_RE), axis=1)
    scores = {str(r): {e: float(y_RE[r, e]) for e in np.flatnonzero(seen)} for r, seen in enumerate(seen_RE)}
    worth = estimate_worth(scores, dict.fromkeys(scores, 0))
    estimates = {
        "mean": np.nanmean(np.where(seen_RE, y_RE, np.nan), axis=1),
        "estimate": np.array([worth[name].mean for name in scores]),
    }
    picked = max(1, len(y_RE) // 20)
    return {
        name: (
            rank_correlation(estimate, truth_R),
            float(truth_R[np.argsort(-estimate, kind="stable")[:picked]].mean() - truth_R.mean()),
        )
        for name, estimate in estimates.items()
    }


def by_probability(table: Table, p_RE: np.ndarray, draws: int, rng: np.random.Generator) -> None:
    """Of right and wrong, and of the right label's probability."""

    def first(value_RE: np.ndarray) -> Way:
        return lambda seen, k: value_RE[:, seen[:k]].mean(axis=1)

    y = table.y_RE
    shared_means(y, {"right or wrong": first(y), "probability": first(p_RE)}, draws, rng)


def by_label(table: Table, examples_E: Sequence[Example], draws: int, rng: np.random.Generator) -> None:
    """Of examples drawn by luck, and of a run of them in the order that spreads their labels."""
    place = {example.id: column for column, example in enumerate(examples_E)}

    def run(seen: np.ndarray, k: int) -> np.ndarray:
        order = spread_labels([examples_E[column] for column in seen], random.Random(int(seen[0])))
        return table.y_RE[:, [place[example.id] for example in order[:k]]].mean(axis=1)

    ways = {"by luck": lambda seen, k: table.y_RE[:, seen[:k]].mean(axis=1), "labels spread": run}
    shared_means(table.y_RE, ways, draws, rng)


def shared_means(y_RE: np.ndarray, ways: dict[str, Way], draws: int, rng: np.random.Generator) -> None:
    """Prints how well each way's means on k examples of one half, the same for all rewrites, tell the share of right
    answers on the other half. Rewrites without all verdicts are left out."""
    whole_R = ~np.isnan(y_RE).any(axis=1)
    y = y_RE[whole_R]
    picked, half = max(1, len(y) // 20), y.shape[1] // 2
    print("\n| examples, shared | rank corr.: " + " | ".join(ways) + " | picked 5%: " + " | ".join(ways) + " |")
    print("| --- " * (1 + 2 * len(ways)) + "|")
    for k in (k for k in (*KS, half) if k <= half):
        told: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
        for _ in range(draws):
            order = rng.permutation(y.shape[1])
            truth_R = y[:, order[half:]].mean(axis=1)
            for name, way in ways.items():
                mean_R = way(order[:half], k)[whole_R]
                best = np.argsort(-mean_R, kind="stable")[:picked]
                told[name].append((rank_correlation(mean_R, truth_R), float(truth_R[best].mean() - truth_R.mean())))
        means = [np.mean(one, axis=0) for one in told.values()]
        shown = [f"{mean[0]:.2f}" for mean in means] + [f"{100 * mean[1]:+.1f}" for mean in means]
        print(f"| {k} | {' | '.join(shown)} |")


def by_meta_instruction(table: Table) -> None:
    """Prints what the rewrites of each meta-instruction are worth, as observed."""
    print("\n| rewrites | mean | sd | best quarter | best | meta-instruction |\n" + "| --- " * 6 + "|")
    means, asked_by = 100 * np.nanmean(table.y_RE, axis=1), np.array(table.asked_by_R)
    for number, text in enumerate(table.meta_instructions):
        own = np.sort(means[asked_by == str(number)])[::-1]
        if len(own):
            quarter = own[: max(1, len(own) // 4)].mean()
            told = [f"{value:.1f}" for value in (own.mean(), own.std(), quarter, own[0])]
            print(f"| {len(own)} | {' | '.join(told)} | {text} |")


def flat(y_RE: np.ndarray, k: int, budget: int) -> int:
    """The best of budget / k rewrites by their mean on the same k examples."""
    return int(np.argmax(np.nanmean(y_RE[: budget // k, :k], axis=1)))


def race(y_RE: np.ndarray, candidates: int, budget: int) -> int:
    """The winner of the package's race among the first `candidates`, by their means on the examples they share."""
    asked = dict.fromkeys(map(str, range(candidates)), 0)

    def ask(names: Sequence[str], examples: int) -> None:
        asked.update(dict.fromkeys(names, examples))

    def rank(names: Sequence[str]) -> Sequence[str]:
        return sorted(names, key=lambda name: -np.nanmean(y_RE[int(name), : asked[name]]))

    return int(run_race(list(asked), plan_race(budget, candidates, y_RE.shape[1]), ask, rank)[0])


def allocation(y_RE: np.ndarray, budget: int, draws: int, rng: np.random.Generator) -> dict[str, float]:
    """Truth of the chosen above the mean of all, by way of spending `budget` verdicts; half the examples are unseen."""
    count, half = len(y_RE), y_RE.shape[1] // 2
    ways = {f"flat k={k}": (flat, k) for k in (*KS, 64) if k <= half and 2 <= budget // k <= count}
    ways |= {f"race n={n}": (race, n) for n in (16, 32, 64, 128) if n <= count and plan_race(budget, n, half)}
    gains: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(draws):
        y = y_RE[rng.permutation(count)][:, rng.permutation(y_RE.shape[1])]
        truth_R = np.nanmean(y[:, half:], axis=1)
        for name, (way, size) in ways.items():
            gains[name].append(float(truth_R[way(y[:, :half], size, budget)] - truth_R.mean()))
    return {name: float(np.mean(gain)) for name, gain in gains.items()}


def report(table: Table, draws: int, rng: np.random.Generator) -> None:
    """Prints what the table says."""
    y, by = table.y_RE, spread(table.y_RE)
    count, examples = y.shape
    print(f"\n## {table.task}: {count} rewrites x {examples} examples")
    fixed = ", ".join(f"{name} {mean:.3f}" for name, mean in table.fixed.items())
    print(f"{fixed}; rewrites: mean {np.nanmean(y):.3f}, best {np.nanmean(y, axis=1).max():.3f} (as observed)")
    print(f"sd between rewrites {by.rewrite**0.5:.3f}, between examples {by.example**0.5:.3f}, rest {by.rest**0.5:.3f}")
    if len(table.meta_instructions) > 1:
        by_meta_instruction(table)
    if table.p_RE is not None:
        by_probability(table, table.p_RE, 5 * draws, rng)
    if table.examples_E is not None:
        by_label(table, table.examples_E, 5 * draws, rng)
    print("\n| examples | shared by | rank corr. mean | estimate | picked 5% mean | estimate |")
    print("| --- | --- | --- | --- | --- | --- |")
    for k in (k for k in KS if k < examples):
        for shared, per_draw in (
            ("none (own)", 1),
            (f"a group of {GROUP}", GROUP),
            ("four groups", 4 * GROUP),
            ("all", count),
        ):
            told = [
                judged(shuffled, examples_seen(shuffled, k, per_draw, rng))
                for shuffled in (y[rng.permutation(count)] for _ in range(draws))
            ]
            mean, ours = (np.mean([one[name] for one in told], axis=0) for name in ("mean", "estimate"))
            print(f"| {k} | {shared} | {mean[0]:.2f} | {ours[0]:.2f} | {100 * mean[1]:+.1f} | {100 * ours[1]:+.1f} |")
    print("\n| verdicts | points above the mean rewrite, by way of choosing |\n| --- | --- |")
    for budget in BUDGETS:
        told = ", ".join(f"{n} {100 * gain:+.1f}" for n, gain in allocation(y, budget, 10 * draws, rng).items())
        print(f"| {budget} | {told} |")


def main(arguments: Sequence[str] | None = None) -> None:
    """Reads the flags and reports on each table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="+", type=Path)
    parser.add_argument("--draws", type=int, default=40, help="of orders and examples; ten times as many in the second")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(arguments)
    if given.draws < 1:
        parser.error("--draws: at least 1")
    for path in given.tables:
        report(load(path), given.draws, np.random.default_rng(given.seed))


if __name__ == "__main__":
    sys.exit(exit_code(main))

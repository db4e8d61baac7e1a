"""The table of the head-to-head: gains over the initial instruction, sure over rows and over seeds.

Legend: S seeds, N test rows.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

from prewrite.errors import UserError
from prewrite.evaluation.statistics import mcnemar_test
from prewrite.tasks.base import Task
from scripts.benchmarks.asking import BY_HAND


@dataclass(frozen=True)
class Gain:
    """A mean difference in accuracy, half the width of its 95% interval, and the two-sided p of no difference."""

    mean: float
    error: float
    p_value: float


def crossed_gain(gain_SN: np.ndarray) -> Gain:
    """The mean of all entries where both the seeds and the rows are a sample of more.

    The variances of the seeds' means and of the rows' means, what is left counted once (expected mean squares of two
    crossed random effects), and Student's t by Satterthwaite's degrees of freedom: three seeds that differ say little,
    and the interval shows it. With one seed it is sure over the rows alone.
    """
    seeds, rows = gain_SN.shape
    mean = float(gain_SN.mean())
    row_N, seed_S = gain_SN.mean(axis=0), gain_SN.mean(axis=1)
    of_rows = row_N.var(ddof=1) / rows
    of_seeds, freedom = 0.0, float(rows - 1)
    if seeds > 1:
        rest_SN = gain_SN - row_N - seed_S[:, None] + mean
        rest = (rest_SN**2).sum() / ((seeds - 1) * (rows - 1)) / rows / seeds
        of_seeds = max(0.0, seed_S.var(ddof=1) / seeds - rest)
        if of_seeds:
            freedom = (of_rows + of_seeds) ** 2 / (of_rows**2 / (rows - 1) + of_seeds**2 / (seeds - 1))
    error = float(np.sqrt(of_rows + of_seeds))
    if not error:
        return Gain(mean, 0.0, 1.0 if mean == 0 else 0.0)
    half = float(stats.t.ppf(0.975, freedom)) * error
    return Gain(mean, half, float(2 * stats.t.sf(abs(mean) / error, freedom)))


def print_table(task: Task, records: Sequence[dict[str, Any]]) -> None:
    """A line a run (interval over rows, McNemar's p), a line a method over its seeds; what a label bias explains.

    UserError where the records are of different test rows.
    """
    sizes = sorted({len(record["marks"]) for record in records if "marks" in record})
    if len(sizes) > 1:
        counts = " and ".join(map(str, sizes))
        raise UserError(f"a table is of the same test rows, and these records are of {counts}: keep them in two files")
    tested = {record["tested"]: record["marks"] for record in records if "tested" in record}
    initial = task.default_instruction
    failed = {text: marks.count("-") for text, marks in tested.items() if "-" in marks}
    if initial not in tested:
        print("the initial instruction has no test pass yet")
        return
    first_N = _right(tested[initial])
    print("| method | seed | test accuracy | gain (95%) | p | calls | seconds |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for name, text in (("initial", initial), ("by hand", BY_HAND.get(task.name))):
        if text in tested:
            _print_run(name, "", _right(tested[text]), first_N, {"wire_calls": 0, "seconds": 0.0})
    runs: Mapping[str, list[tuple[dict[str, Any], np.ndarray]]] = defaultdict(list)
    for record in sorted((r for r in records if "method" in r), key=lambda r: (r["method"], r["seed"])):
        marks = record.get("marks") or tested.get(record["instruction"])
        if marks is not None:
            runs[record["method"]].append((record, _right(marks)))
    for method, own in runs.items():
        for record, right_N in own:
            _print_run(method, record["seed"], right_N, first_N, record)
        if len(own) > 1:
            right_SN = np.array([right_N for _, right_N in own])
            calls, seconds = (np.mean([record[key] for record, _ in own]) for key in ("wire_calls", "seconds"))
            shown = _shown(gain := crossed_gain(right_SN - first_N))
            print(
                f"| {method} | mean of {len(own)} | {100 * right_SN.mean():.1f} | {shown}, over rows and seeds | "
                f"{gain.p_value:.2g} | {calls:.0f} | {seconds:.0f} |"
            )
    for method in runs:
        _print_against_bias(method, runs)
    for text, count in failed.items():
        print(f"{count} of {len(tested[text])} calls stayed failed, and count as wrong, on the test of: {text[:60]!r}")


def _print_run(name: str, seed: Any, right_N: np.ndarray, first_N: np.ndarray, record: Mapping[str, Any]) -> None:
    p = mcnemar_test([bool(x) for x in right_N], [bool(x) for x in first_N]).p_value
    shown = _shown(crossed_gain((right_N - first_N)[None]))
    spent = f"{record['wire_calls']} | {record['seconds']:.0f}"
    print(f"| {name} | {seed} | {100 * right_N.mean():.1f} | {shown} | {p:.2g} | {spent} |")


def _print_against_bias(method: str, runs: Mapping[str, list[tuple[dict[str, Any], np.ndarray]]]) -> None:
    """Whether a method's instructions do more than a label bias fitted on the same calls, seed by seed."""
    name, _, budget = method.partition("@")
    biased = {record["seed"]: right_N for record, right_N in runs.get(f"label_bias@{budget}", [])}
    pairs = [(right_N, biased[record["seed"]]) for record, right_N in runs[method] if record["seed"] in biased]
    if name == "label_bias" or not pairs:
        return
    gain = crossed_gain(np.array([ours - theirs for ours, theirs in pairs]))
    more = gain.mean > gain.error
    verdict = "more than a label bias" if more else "its gain, where it has one, may be a label bias alone"
    print(f"{method} against the initial instruction with a label bias, {len(pairs)} seeds: {_shown(gain)}: {verdict}")


def _right(marks: str) -> np.ndarray:
    return np.array([mark == "1" for mark in marks], dtype=float)


def _shown(gain: Gain) -> str:
    return f"{100 * gain.mean:+.1f} ± {100 * gain.error:.1f}"

"""What partial rollouts could save, from the lengths of a run's answers: turns of the engine, a token for each answer.

    python -m scripts.benchmarks.partial RUN_FOLDER                            of a run of `solve`, from its log.jsonl
    python -m scripts.benchmarks.partial --mean 930 --longest 2048             of answers that end at any token alike

A turn counts the same however many answers take part in it, as for a small model, whose turn waits for Python and for
weights; where a turn is dearer the more answers it has, less is saved. pushes: seen by a group since it began, to when
it is trained on.
"""

import argparse
import json
import math
import random
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

from prewrite.config.loading import load_config
from prewrite.engine.policy import load_tokenizer
from prewrite.training.partial_rollouts import MAX_PUSHES
from scripts.benchmarks.asking import exit_code
from scripts.benchmarks.common import show_table

SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)
STEPS = 200


def simulate(
    groups: Iterator[int], groups_per_batch: int, engines: int, share: float, steps: int
) -> tuple[float, float]:
    """(turns, mean pushes) a step. groups: turns of each group that begins, those of its longest answer."""
    ready: list[int] = []  # complete groups, as the pushes that they have seen
    carried: list[tuple[int, int]] = []  # (turns that are left, pushes)
    turns, pushes = 0, []
    for _ in range(steps):
        missing = groups_per_batch - len(ready)
        begun = max(0, missing + math.ceil(share * groups_per_batch) - len(carried)) if missing > 0 else 0
        pool = carried + [(next(groups), 0) for _ in range(begun)]
        longest, after = 0, []
        for engine in range(engines):
            mine, wanted = pool[engine::engines], len(range(max(0, missing))[engine::engines])
            overdue = [left for left, seen in mine if seen >= MAX_PUSHES]
            end = max([*sorted(left for left, _ in mine)[:wanted][-1:], *overdue], default=0)
            longest = max(longest, end)
            ready += [seen for left, seen in mine if left <= end]
            after += [(left - end, seen + 1) for left, seen in mine if left > end]
        pushes += ready[:groups_per_batch]
        ready = [seen + 1 for seen in ready[groups_per_batch:]]
        carried, turns = after, turns + longest
    return turns / steps, statistics.fmean(pushes)


def lengths_of(run: Path) -> list[int]:
    """Tokens of the longest answer of each group of a run's log.jsonl, as its tokenizer counts the text."""
    tokenizer = load_tokenizer(load_config(run / "config.json").policy)
    longest: dict[tuple[int, int], int] = defaultdict(int)
    for line in (run / "log.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        tokens = len(tokenizer(row.get("completion", row["rewrite"]), add_special_tokens=False)["input_ids"]) + 1
        key = row["step"], row["group"]
        longest[key] = max(longest[key], tokens)
    return list(longest.values())


def drawn(mean: float, longest: int, generations: int, generator: random.Random) -> Iterator[int]:
    """Groups of answers whose every token may be the last alike, `longest` at most; mean: of what comes of that."""
    free = mean
    while free * -math.expm1(-longest / free) < mean:  # the mean of an exponential that is cut at `longest`
        free *= 1.001
    while True:
        lengths = [min(longest, 1 + int(generator.expovariate(1 / free))) for _ in range(generations)]
        yield max(lengths)


def repeated(groups: Sequence[int], generator: random.Random) -> Iterator[int]:
    while True:
        yield generator.choice(groups)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, nargs="?", help="run folder")
    parser.add_argument("--mean", type=float, default=930, help="without a run: tokens of an answer in the mean")
    parser.add_argument("--longest", type=int, default=2048, help="without a run: tokens of an answer at most")
    parser.add_argument("--generations", type=int, default=8, help="without a run: answers of a group")
    parser.add_argument("--groups", type=int, default=32, help="groups of a batch (default 32)")
    parser.add_argument("--engines", type=int, default=2, help="vLLM engines (default 2)")
    arguments = parser.parse_args()
    if arguments.run is None and not 0 < arguments.mean < arguments.longest:
        parser.error("--mean: above 0 and below --longest")
    if not 1 <= arguments.engines <= arguments.groups or arguments.generations < 1:
        parser.error("--engines: at least 1, and a group for each; --generations: at least 1")
    known = lengths_of(arguments.run) if arguments.run else None
    columns: dict[str, dict[str, float | None]] = {"turns a step": {}, "share of 0's": {}, "pushes": {}}
    first = 0.0
    for share in SHARES:
        generator = random.Random(1)
        groups = (
            repeated(known, generator)
            if known
            else drawn(arguments.mean, arguments.longest, arguments.generations, generator)
        )
        turns, pushes = simulate(groups, arguments.groups, arguments.engines, share, STEPS)
        first = first or turns
        for column, value in zip(columns.values(), (turns, turns / first, pushes), strict=True):
            column[f"partial_rollouts {share}"] = value
    show_table("Partial rollouts", columns)


if __name__ == "__main__":
    sys.exit(exit_code(main))

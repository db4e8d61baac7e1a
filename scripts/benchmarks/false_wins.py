"""How often a whole run claims a win where there is none, and how often it finds a real one: a simulation that drives
the package's own choosing (`prewrite.training.objectives.selection`), from the first look to the test.

    PYTHONPATH=. python scripts/benchmarks/false_wins.py --runs 2000 --processes 2

Worlds: `equal` (every rewrite is as good as the initial instruction), `initial_best` (the initial one is 5 points
better than all), `gain` (one rewrite in 16 is 5 points better), `inherits` (a rewrite is about as good as what it was
made of: six in ten within a point or two, the others 12 points worse, give or take 6; what `--races` are for). Answers
are right or wrong by a worth, a difficulty of the example and luck of the pair.
"""

import argparse
import random
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from prewrite.config import Config
from prewrite.config.loading import validated
from prewrite.errors import UserError
from prewrite.tasks import get_task
from prewrite.training.objectives.base import weighted_rewards
from prewrite.training.objectives.call_plan import (
    least_for_race,
    num_races,
    pays_for_race,
    race_calls,
    race_reserve,
)
from prewrite.training.objectives.rewrite_data import RewriteData
from prewrite.training.objectives.selection import Selection
from prewrite.training.progress import Progress
from prewrite.types import Answer, Call, Example, InstructionRow, Rollout, Sample, Verdict
from scripts.benchmarks.asking import exit_code

INITIAL, BASE, GAIN = "Initial", 0.6, 0.05
WORLDS = ("equal", "initial_best", "gain", "inherits")
GROUPS, GROUP_SIZE, EXAMPLES = 4, 16, 8
LUCK = 0.45  # the pair's share in whether an answer is right; the rest is the example's difficulty


class World:
    """The task model of a simulation. Also stands for the journal, which keeps nothing."""

    folder, best = Path("."), {}

    def __init__(self, name: str, seed: int):
        self.name, self.seed, self.calls = name, seed, 0

    def worth(self, instruction: str) -> float:
        """The chance of a right answer."""
        if self.name == "inherits" and instruction != INITIAL:
            return float(instruction.split()[-1])
        if self.name == "gain" and instruction != INITIAL:
            return BASE + GAIN * (random.Random(f"{self.seed}/{instruction}").random() < 1 / 16)
        return BASE - GAIN * (self.name == "initial_best" and instruction != INITIAL)

    def rewrite(self, parent: str, number: str) -> str:
        """A rewrite of an instruction; number: of its own."""
        if self.name != "inherits":
            return f"rewrite {number}"
        rng = random.Random(f"{self.seed}/{number}")
        change = rng.gauss(-0.006, 0.01) if rng.random() < 0.6 else rng.gauss(-0.12, 0.06)
        return f"rewrite {number} {min(0.99, max(0.01, self.worth(parent) + change)):.4f}"

    def is_right(self, instruction: str, example: str) -> bool:
        """The same answer every time, as at temperature 0."""
        hard = random.Random(f"{self.seed}/{example}").random()
        luck = random.Random(f"{self.seed}/{instruction}/{example}").random()
        return (1 - LUCK) * hard + LUCK * luck < quantile(self.worth(instruction))

    def ask(self, calls: Sequence[Call], *, progress: Any = None) -> list[Answer]:
        self.calls += len(calls)
        pairs = [call.query.split("\n", 1) for call in calls]
        return [Answer("positive" if self.is_right(*pair) else "negative") for pair in pairs]

    calls_left, num_refused = float("inf"), 0

    def body(self, call: Call) -> dict[str, Any]:
        return {}

    def num_missing(self, calls: Iterable[Call]) -> int:
        return len(list(calls))

    def ask_ahead(self, calls: Sequence[Call]) -> None: ...

    def check_failure_share(self) -> None: ...

    def write_dev(self, line: Any) -> None: ...

    def write_best(self, best: Any) -> None: ...

    def write_wins_losses(self, duels: Any) -> None: ...


def quantile(chance: float) -> float:
    """The number below which (1 - LUCK) U + LUCK V, with U and V uniform on [0, 1], lies with this chance."""
    small, large = sorted((LUCK, 1 - LUCK))
    if chance < small / (2 * large):
        return (2 * small * large * chance) ** 0.5
    if chance <= 1 - small / (2 * large):
        return chance * large + small / 2
    return 1 - (2 * small * large * (1 - chance)) ** 0.5


def setup(calls: int, dev_size: int, races: int, race_share: float | None, seed: int = 0) -> tuple[Config, RewriteData]:
    """What a run is given: the settings and its rows."""
    config = validated(
        Config,
        {
            "seed": seed,
            "policy": {"model": "none"},
            "data": {"tasks": ["sst2"], "dev_size": dev_size},
            "reward": {"reward_funcs": ["accuracy_classification_reward"], "examples_per_rewrite": EXAMPLES},
            "task_model": {"model": "none"},
            "training": {"max_steps": 1000},
            "selection": {"num_races": races, "num_parents": 4, "race_share": race_share},
            "budget": {"max_task_calls": calls},
        },
        "a run of --calls, --races and --race-share",
    )
    row = InstructionRow(INITIAL, "sst2")
    train, dev = (
        [Example(f"{part}-{i}", {"text": f"{part} {i}"}, "positive") for i in range(count)]
        for part, count in (("train", 4000), ("dev", dev_size))
    )
    data = RewriteData(
        [row], [row], {"sst2": get_task("sst2")}, weighted_rewards(config.reward), {"sst2": train}, {"sst2": dev}
    )
    return config, data


def simulate(
    world_name: str, calls: int, dev_size: int, races: int, race_share: float | None, seed: int
) -> tuple[bool, float, int]:
    """(whether a win was claimed, the true gain of what was chosen, calls paid) of one whole run."""
    world = World(world_name, seed)
    config, data = setup(calls, dev_size, races, race_share, seed)
    (row,), train = data.rows, data.train["sst2"]
    selection = Selection(config, data, world, world, Progress())  # type: ignore[arg-type]  # a journal by shape alone
    selection.evaluate_initial(0)
    per_step, step, rng = GROUPS * GROUP_SIZE * EXAMPLES, 0, random.Random(seed)
    while world.calls + per_step <= calls - race_reserve(config, data, calls):
        selection.remember(_rollouts(world, row, train, step, rng), step)
        world.calls += per_step
        step += 1
        if step % 10 == 0:
            look = [world.rewrite(INITIAL, f"look {step} {i}") for i in range(5)]
            selection.evaluate(step, [look[:1]], [look[1:]])
    left = race_calls(config, data, calls, world.calls)
    races = num_races(config, data, left)
    for race in range(races):  # as `Rewrite.finish` has them
        share = left // (races - race)
        parents = selection.parents()[0] if race else [INITIAL]
        wanted = range(selection.wanted_samples(share))
        fresh = [[world.rewrite(rng.choice(parents), f"{race} {i}") for i in wanted]]
        if race < races - 1:
            left -= selection.race(step, fresh, share)
        else:
            selection.finish(step, fresh, share, calls)
    memory = selection.ledger.of(0)
    assert memory.best is not None
    claimed = memory.claim is not None and memory.claim.proven
    return claimed, world.worth(memory.best) - world.worth(INITIAL), world.calls


def _rollouts(
    world: World, row: InstructionRow, train: Sequence[Example], step: int, rng: random.Random
) -> list[Rollout]:
    rollouts = []
    for group in range(GROUPS):
        examples = rng.sample(train, EXAMPLES)
        for copy in range(GROUP_SIZE):
            text = world.rewrite(INITIAL, f"{step} {group} {copy}")
            verdicts = tuple(
                Verdict(e.id, e.target, "", world.is_right(text, f"Sentence: {e.fields['text']}"), well_formed=True)
                for e in examples
            )
            reward = sum(bool(v.correct) for v in verdicts) / EXAMPLES
            parts = {"accuracy_classification_reward": reward}
            sample = Sample((), (), (), text, "stop")
            rollouts.append(Rollout(sample, row, group, text, reward, parts, 0.0, verdicts=verdicts))
    return rollouts


def main(given: Sequence[str] | None = None) -> None:
    """Reads the flags and prints a line a world."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=200, help="of each world (default 200)")
    parser.add_argument("--calls", type=int, default=20_000, help="a run's budget (default 20000)")
    parser.add_argument("--dev-size", type=int, default=800, help="dev rows (default 800)")
    parser.add_argument("--races", type=int, default=1, help="of a run (default 1)")
    parser.add_argument("--race-share", type=float, help="of all calls, those of the races (default: as a run has it)")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--worlds", nargs="+", choices=WORLDS, default=WORLDS)
    arguments = parser.parse_args(given)
    if arguments.runs < 1:
        parser.error("--runs: at least 1")
    config, data = setup(arguments.calls, arguments.dev_size, arguments.races, arguments.race_share)
    if not pays_for_race(config, data, arguments.calls):
        raise UserError(f"--calls {arguments.calls} pays for no race: give {least_for_race(config, data)} at least")
    print("| world | runs | wins claimed | mean true gain of the chosen, points | calls, at most |")
    print("| --- | --- | --- | --- | --- |")
    for name in arguments.worlds:
        run = partial(simulate, name, arguments.calls, arguments.dev_size, arguments.races, arguments.race_share)
        with ProcessPoolExecutor(arguments.processes) as pool:
            results = list(pool.map(run, range(arguments.runs), chunksize=4))
        claimed, gains, calls = zip(*results, strict=True)
        share, gain = sum(claimed) / len(claimed), 100 * sum(gains) / len(gains)
        print(f"| {name} | {len(results)} | {share:.1%} | {gain:+.1f} | {max(calls):,} |", flush=True)


if __name__ == "__main__":
    sys.exit(exit_code(main))

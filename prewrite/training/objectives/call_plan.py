"""What a rewriting run spends its task calls on: training, looks, the race, the test. The same on every rank."""

from collections.abc import Sequence

from prewrite.config import Config
from prewrite.evaluation.statistics import paired_power
from prewrite.training.objectives.rewrite_data import RewriteData
from prewrite.types import Example, InstructionRow

TEST_SHARE = 0.1  # of all calls, at most
LOOK_SHARE = 0.05  # of all calls, at most, of one rewrite of each row
TYPICAL_GAIN, TYPICAL_DISCORDANT = 0.05, 0.27  # of which the power is told


def dev_parts(config: Config, data: RewriteData, row: InstructionRow) -> tuple[Sequence[Example], Sequence[Example]]:
    """A row's dev examples: those of looks and races, and those of the test, which nothing else reads."""
    pool, settings = data.asking_of(row).pool(row, data.dev[row.dataset_name]), config.selection
    cut = len(pool) - min(settings.test_size, max(len(pool) // 2, len(pool) - settings.eval_examples))
    return pool[:cut], pool[cut:]


def race_examples(config: Config, data: RewriteData, row: InstructionRow) -> Sequence[Example]:
    """What a race may ask on, in this order: the row's first part of dev, then its train examples.

    Few rewrites meet any one train example in training, and none that decides: what speaks for the winner is the test.
    """
    train = data.asking_of(row).pool(row, data.train.get(row.dataset_name, ()))
    return [*dev_parts(config, data, row)[0], *train]


def look_examples(config: Config, data: RewriteData, row: InstructionRow) -> Sequence[Example]:
    """The first examples of a race, which a look asks on too: eval_examples, or as many as LOOK_SHARE pays for."""
    wanted, most = config.selection.eval_examples, config.budget.max_task_calls
    if most is not None:
        wanted = max(1, min(wanted, int(LOOK_SHARE * most / len(data.rows))))
    return race_examples(config, data, row)[:wanted]


def test_rows(config: Config, data: RewriteData, row: InstructionRow) -> int:
    """Examples of a row's test: its part of dev, or as many as TEST_SHARE of the calls pays for."""
    kept, most = len(dev_parts(config, data, row)[1]), config.budget.max_task_calls
    return kept if most is None else min(kept, int(TEST_SHARE * most / 2 / len(data.rows)))


def look_calls(config: Config, data: RewriteData) -> int:
    """Calls of one look, at most."""
    rewrites = 1 + config.selection.num_sampled
    if not data.dev:
        return rewrites * len(data.held_out_rows)
    return sum(rewrites * len(look_examples(config, data, row)) for row in data.rows)


def race_calls(config: Config, data: RewriteData, spent: int) -> int:
    """What the race may spend after `spent` calls: all that is left but for the test, or race_share of all calls."""
    if not data.dev:
        return 0
    most, share = config.budget.max_task_calls, config.selection.race_share
    if most is not None:
        return max(0, most - spent - sum(2 * test_rows(config, data, row) for row in data.rows))
    return int(spent * share / (1 - share))


def reserve(config: Config, data: RewriteData) -> int:
    """Of max_task_calls, what training leaves: a last look, the race, the test."""
    most = config.budget.max_task_calls
    assert most is not None
    test = sum(2 * test_rows(config, data, row) for row in data.rows) if data.dev else 0
    race = int(config.selection.race_share * most) if data.dev else 0
    return look_calls(config, data) + race + test


def outlook(config: Config, data: RewriteData, steps: int, calls_per_step: int) -> str:
    """What will be spent, in words, before the first call."""
    most = config.budget.max_task_calls
    parts = [f"training at most {steps} x {calls_per_step:,}", f"a look {look_calls(config, data):,}"]
    if data.dev:
        race = race_calls(config, data, steps * calls_per_step) if most is None else config.selection.race_share * most
        parts.append(f"the race about {race:,.0f}")
    if most is not None:
        parts.append(f"all together at most {most:,}")
    told = f"task calls: {', '.join(parts)}"
    if not data.dev:
        return told
    rows = min(test_rows(config, data, row) for row in data.rows)
    if not rows:
        return f"{told}\nno test at the end: selection.test_size is 0, or the calls are too few"
    power = paired_power(rows, TYPICAL_GAIN, TYPICAL_DISCORDANT)
    return (
        f"{told}\nthe test at the end, on {rows} dev examples that no race reads, finds a true gain of "
        f"{100 * TYPICAL_GAIN:.0f} points with a chance of {power:.0%} (if {TYPICAL_DISCORDANT:.0%} of answers differ)"
    )

"""What a rewriting run spends its task calls on: training, looks, the race, the test. The same on every rank."""

from collections.abc import Sequence
from dataclasses import dataclass

from prewrite.config import Config
from prewrite.engine.spending import Spending
from prewrite.errors import UserError
from prewrite.evaluation.statistics import paired_power
from prewrite.training.objectives.race import plan_race, race_cost, races_paid_for
from prewrite.training.objectives.rewrite_data import RewriteData
from prewrite.types import Example, InstructionRow

TEST_SHARE = 0.1  # of all calls, at most
LOOK_SHARE = 0.1  # of all calls, at most, of the looks before and after training
RACE_SHARE = 0.3  # of all calls, where selection.race_share is not given
# A race of few calls picks by luck, whatever training did: on the tables of docs/runs 800 to 1,600 get most there is.
LEAST_RACE = 1200  # calls of a row's race
LEAST_SHARE = 0.6  # of all calls, which LEAST_RACE does not pass
AS_MANY = 1 << 20  # candidates of a race that fresh rewrites fill up
TYPICAL_GAIN, TYPICAL_DISCORDANT = 0.05, 0.27  # of which the power is told


def dev_parts(config: Config, data: RewriteData, row: InstructionRow) -> tuple[Sequence[Example], Sequence[Example]]:
    """A row's dev examples: those of looks and races, and those of the test, which nothing else reads."""
    pool, settings = data.dev_of(row), config.selection
    cut = len(pool) - min(settings.test_size, max(len(pool) // 2, len(pool) - settings.eval_examples))
    return pool[:cut], pool[cut:]


def race_examples(config: Config, data: RewriteData, row: InstructionRow) -> Sequence[Example]:
    """What a race may ask on, in this order: the row's first part of dev, then its train examples.

    Few rewrites meet any one train example in training, and none that decides: what speaks for the winner is the test.
    """
    return [*dev_parts(config, data, row)[0], *data.train_of(row)]


def look_examples(config: Config, data: RewriteData, row: InstructionRow) -> Sequence[Example]:
    """The first examples of a race, which a look asks on too: eval_examples, or as many as LOOK_SHARE pays for."""
    wanted, most = config.selection.eval_examples, config.budget.max_task_calls
    if most is not None:
        rewrites = 1 + 2 * (1 + config.selection.num_sampled)  # the initial one; greedy and sampled ones, twice
        wanted = max(1, min(wanted, _answers(config, LOOK_SHARE * most / len(data.rows) / rewrites)))
    return race_examples(config, data, row)[:wanted]


def test_rows(config: Config, data: RewriteData, row: InstructionRow, most: int | None) -> int:
    """Examples of a row's test: its part of dev, or as many as TEST_SHARE of the `most` calls of a run pays for."""
    kept = len(dev_parts(config, data, row)[1])
    return kept if most is None else max(0, min(kept, _answers(config, TEST_SHARE * most / 2 / len(data.rows))))


def _answers(config: Config, calls: float) -> int:
    """Queries that so many calls answer."""
    return int(calls / config.task_model.samples_per_query)


def calls_each(config: Config, data: RewriteData) -> int:
    """Calls of one rewrite in training, at most."""
    examples = sum(config.reward.examples_per_rewrite if way.uses_examples else 1 for way in data.ways)
    return config.task_model.samples_per_query * examples


def look_calls(config: Config, data: RewriteData) -> int:
    """Calls of one look, at most."""
    return (1 + config.selection.num_sampled) * _initial_calls(config, data)


def _initial_calls(config: Config, data: RewriteData) -> int:
    samples = config.task_model.samples_per_query
    if not data.dev:
        return samples * len(data.held_out_rows)
    return samples * sum(len(look_examples(config, data, row)) for row in data.rows)


def test_calls(config: Config, data: RewriteData, most: int | None) -> int:
    """Calls of the tests, at most."""
    if not data.dev:
        return 0
    return sum(2 * test_rows(config, data, row, most) for row in data.rows) * config.task_model.samples_per_query


def race_calls(config: Config, data: RewriteData, most: int | None, spent: int) -> int:
    """What the race may spend after `spent` calls: all that is left but for the test, or race_share of all calls."""
    if not data.dev:
        return 0
    if most is not None:
        return max(0, most - spent - test_calls(config, data, most))
    share = RACE_SHARE if config.selection.race_share is None else config.selection.race_share
    return int(spent * share / (1 - share))


def race_reserve(config: Config, data: RewriteData, most: int) -> int:
    """Of `most` calls, those that training leaves to the race."""
    if not data.dev:
        return 0
    if config.selection.race_share is not None:
        return int(config.selection.race_share * most)
    return int(max(RACE_SHARE * most, min(LEAST_RACE * len(data.rows), LEAST_SHARE * most)))


def reserve(config: Config, data: RewriteData, most: int) -> int:
    """Of `most` calls, what training leaves: a last look, the race, the test."""
    return look_calls(config, data) + race_reserve(config, data, most) + test_calls(config, data, most)


@dataclass(frozen=True)
class Part:
    """A part of a run's calls: expected where no two rewrites are alike and no call is tried again, and at most."""

    name: str
    expected: int
    most: int


def planned(config: Config, data: RewriteData, steps: int, world_size: int) -> list[Part]:
    """The calls of a run by part, before any is made."""
    batches, looks = _training(config, data, steps, world_size)
    rollouts, most = batches * config.rollouts_per_generation(world_size), config.budget.max_task_calls
    size, samples = config.reward.examples_per_rewrite, config.task_model.samples_per_query
    ways = [way for row in data.rows for way in data.ways if data.asks_about(row, way)]
    asked = samples * sum(size if way.uses_examples else 1 for way in ways)
    refills = 1 + config.loss.dynamic_sampling_refills
    training = Part("training", round(rollouts * asked / len(data.rows)), rollouts * calls_each(config, data) * refills)
    tests = test_calls(config, data, most)
    parts = [training, Part("looks", looks, looks)]
    if data.dev:
        race = _expected_race(config, data, race_calls(config, data, most, training.expected + looks))
        at_most = race_calls(config, data, most, training.most + looks) if most is None else race
        parts += [Part("race", race, max(race, at_most)), Part("test", tests, tests)]
    together = Part("together", sum(part.expected for part in parts), sum(part.most for part in parts))
    return [*parts, together]


def _training(config: Config, data: RewriteData, steps: int, world_size: int) -> tuple[int, int]:
    """(rollout batches that the steps need, or that the budget allows; calls of all looks)."""
    updates, every = config.updates_per_generation() * config.training.num_iterations, config.selection.eval_steps
    batch = config.rollouts_per_generation(world_size) * calls_each(config, data)
    most, look = config.budget.max_task_calls, look_calls(config, data)
    first = _first_looks(config, data)
    kept = 0 if most is None else reserve(config, data, most)

    def looks_before(batches: int) -> int:
        """Calls of the looks before the last of so many batches: a batch has one at most, whatever it passes."""
        passed = max(0, batches - 1)
        return first + look * (min(passed, passed * updates // every) if every else 0)

    def is_over(batches: int) -> bool:
        spent = looks_before(batches) + batches * batch
        return batches * updates >= steps or (most is not None and spent + batch + kept > most)

    least, enough = 0, -(-steps // updates)
    while least < enough:  # the first number of batches after which training is over
        middle = (least + enough) // 2
        least, enough = (least, middle) if is_over(middle) else (middle + 1, enough)
    return least, looks_before(least) + (look if least else 0)


def _first_looks(config: Config, data: RewriteData) -> int:
    return _initial_calls(config, data) + (look_calls(config, data) if config.selection.num_sampled else 0)


def _expected_race(config: Config, data: RewriteData, calls: int) -> int:
    samples, total = config.task_model.samples_per_query, 0
    races = num_races(config, data, calls // samples)
    share = calls // samples // len(data.rows) // races
    for row in data.rows:
        plan = plan_race(share, AS_MANY, len(race_examples(config, data, row)), beside=1)
        total += race_cost(plan, beside=1)
    return races * samples * total


def num_races(config: Config, data: RewriteData, answers: int) -> int:
    """Races that so many answers are shared out to: selection.num_races, or as many as they pay for."""
    return races_paid_for(answers // max(1, len(data.rows)), config.selection.num_races, beside=1)


def refuse_no_race(config: Config, data: RewriteData, stages: int = 1) -> None:
    """UserError where a stage trains nothing and its share of the calls pays for no race. stages: of the run."""
    given = config.budget.max_task_calls
    if config.training.takes_steps or given is None or not data.dev or pays_for_race(config, data, given):
        return
    of_each = f", shared out among {stages} stages," if stages > 1 else ""
    raise UserError(
        f"budget.max_task_calls {given * stages}{of_each} pays for no race, and with no steps nothing is trained: in "
        "a race of a row two rewrites and the initial instruction answer 6 examples each, beside a first question, a "
        f"look and the test; give max_task_calls {least_for_race(config, data) * stages} at least, or steps"
    )


def least_for_race(config: Config, data: RewriteData) -> int:
    """The fewest calls for which `pays_for_race` holds."""
    short, enough = 0, 1
    while not pays_for_race(config, data, enough):
        short, enough = enough, 2 * enough
    while enough - short > 1:
        middle = (short + enough) // 2
        short, enough = (short, middle) if pays_for_race(config, data, middle) else (middle, enough)
    return enough


def pays_for_race(config: Config, data: RewriteData, most: int) -> bool:
    """Whether so many calls pay, by the plan and without training, for a race of each row."""
    budget = config.budget.model_copy(update={"max_task_calls": most})
    config = config.model_copy(update={"budget": budget})
    asked = max(1, len(config.task_model.base_urls)) + _first_looks(config, data)  # a first question an endpoint
    answers = race_calls(config, data, most, asked) // config.task_model.samples_per_query
    return bool(plan_race(answers // len(data.rows), AS_MANY, 1, beside=1))


def outlook(config: Config, data: RewriteData, steps: int, world_size: int) -> str:
    """What will be spent, in words, before the first call."""
    parts, limit = planned(config, data, steps, world_size), config.budget.max_task_calls
    lines = ["task calls by plan   expected      at most"]
    lines += [f"  {part.name:<12}{part.expected:>15,}{part.most:>13,}" for part in parts]
    if limit is not None:
        lines.append(f"  budget.max_task_calls {limit:,}, the first question and retries included, is the limit of all")
    if not data.dev:
        return "\n".join(lines)
    if steps and not parts[0].expected:
        lines.append("the calls are too few to train: untrained rewrites race, if the race has any calls")
    training, looks, *_ = parts
    answers = race_calls(config, data, limit, training.expected + looks.expected) // config.task_model.samples_per_query
    if (wanted := config.selection.num_races) > 1:
        races = num_races(config, data, answers)
        told = "they share the calls of the race" if races == wanted else f"the calls pay for {races}"
        lines.append(f"selection.num_races {wanted}: {told}")
    rows = min(test_rows(config, data, row, limit) for row in data.rows)
    if not rows:
        lines.append("no test at the end: selection.test_size is 0, or the calls or the dev examples are too few")
        return "\n".join(lines)
    power = paired_power(rows, TYPICAL_GAIN, TYPICAL_DISCORDANT)
    lines.append(
        f"the test at the end, on {rows} dev examples that no race reads, finds a true gain of "
        f"{100 * TYPICAL_GAIN:.0f} points with a chance of {power:.0%} (if {TYPICAL_DISCORDANT:.0%} of answers differ)"
    )
    return "\n".join(lines)


def forecast(config: Config, calls: int, spending: Spending, policy_tokens: tuple[int, int]) -> str:
    """Tokens, money and time of about `calls` calls, by those that are back.

    policy_tokens: that the policy reads and writes at most.
    """
    stats, budget = spending.stats, config.budget
    back = stats.requests - spending.under_way
    each = (stats.prompt_tokens / back, stats.completion_tokens / back)
    total = (calls * each[0], calls * each[1])
    seconds = calls * stats.seconds / back / config.task_model.concurrency
    told = [
        f"by the {back} calls so far ({each[0]:.0f} tokens in, {each[1]:.0f} out, {stats.seconds / back:.2f} s each) "
        f"about {calls:,} calls take {_short(total[0])} tokens in and {_short(total[1])} out",
        f"{seconds / 60:,.1f} minutes of asking, {config.task_model.concurrency} at once",
    ]
    if budget.has_price:
        task, policy = budget.task_cost(*total), budget.policy_cost(*policy_tokens)
        told.append(f"they cost {task:,.2f}, and the policy's own tokens at most {policy:,.2f}")
        if budget.max_cost is not None and task + policy > budget.max_cost:
            told.append(f"budget.max_cost {budget.max_cost:,.2f} may end training before")
    if budget.max_task_tokens is not None and sum(total) > budget.max_task_tokens:
        told.append(f"budget.max_task_tokens {budget.max_task_tokens:,} ends training before")
    return "; ".join(told)


def _short(number: float) -> str:
    return f"{number / 1e6:.2f} million" if number >= 1e6 else f"{number:,.0f}"

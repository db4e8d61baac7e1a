"""A race among instructions: halving rounds on shared dev examples, so that most calls go to those that may be best."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

FINALISTS = 4
LEAST_EXAMPLES = 6  # of the first round, for each contender
LEAST_FIELD = 16  # of a race that others follow


@dataclass(frozen=True)
class Round:
    """contenders: how many take part; examples: how many dev examples each has been asked on when it ends."""

    contenders: int
    examples: int


def plan_race(calls: int, candidates: int, examples: int, *, beside: int = 0) -> list[Round]:
    """The rounds of a race that spends at most `calls`, among at most `candidates`, on at most `examples`.

    Successive halving (Karnin, Koren and Somekh 2013, "Almost optimal exploration in multi-armed bandits"): rounds cost
    alike, the better half goes on. It begins with all candidates, or with as many of them, a power of two, as leave
    LEAST_EXAMPLES to each in the first round. beside: instructions that run along in every round, at their own cost, as
    the initial one does. [] where there are not even two to compare.
    """
    contenders = min(2, candidates)
    if not contenders or contenders + beside < 2 or not examples or _cost(contenders, beside) > calls:
        return []
    while contenders < candidates and _cost(min(2 * contenders, candidates), beside) <= calls:
        contenders = min(2 * contenders, candidates)
    sizes = _sizes(contenders)
    rounds, asked, share = [], 0, calls // len(sizes)
    for size in sizes:
        asked = min(examples, asked + share // (size + beside))
        rounds.append(Round(size, asked))
        if asked == examples:
            break
    return rounds


def races_paid_for(calls: int, most: int, *, beside: int = 0) -> int:
    """How many races one after another so many calls pay for, of `most` at most: each with a field worth a race of its
    own. 1 where they are few."""
    return max(1, min(most, calls // _cost(LEAST_FIELD, beside)))


def race_cost(plan: Sequence[Round], *, beside: int = 0) -> int:
    """Calls of a race, at most."""
    asked = [0, *(planned.examples for planned in plan)]
    return sum((r.contenders + beside) * (r.examples - before) for r, before in zip(plan, asked, strict=False))


def course(plan: Sequence[Round], held: Sequence[Round], examples: int) -> tuple[str, str]:
    """The rounds that were held, and why the race ended, in words. examples: all there are."""
    rounds = ", ".join(f"{r.contenders} on {r.examples}" for r in held) or "none on the first"
    if len(held) < len(plan):
        return rounds, f"the budget ended in round {len(held) + 1} of {len(plan)}"
    return rounds, "there are no more examples" if plan[-1].examples == examples else "its calls were spent"


def run_race(
    contenders: Sequence[str],
    rounds: Sequence[Round],
    ask: Callable[[Sequence[str], int], None],
    rank: Callable[[Sequence[str]], Sequence[str]],
) -> list[str]:
    """The contenders of the last round, best first.

    contenders: best first by what is known before. ask(instructions, n): sees to it that each has been asked on the
    first n dev examples. rank: best first by all that is known then.
    """
    left = list(contenders)
    for planned in rounds:
        left = left[: planned.contenders]
        ask(left, planned.examples)
        left = list(rank(left))
    return left


def _sizes(contenders: int) -> list[int]:
    """Contenders by round: halved, down to FINALISTS or a few more."""
    sizes = [contenders]
    while sizes[-1] >= 2 * FINALISTS:
        sizes.append(sizes[-1] // 2)
    return sizes


def _cost(contenders: int, beside: int) -> int:
    return len(_sizes(contenders)) * (contenders + beside) * LEAST_EXAMPLES

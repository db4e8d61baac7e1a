"""The race: what it spends, and that a good one wins it."""

import numpy as np
import pytest

from prewrite.training.objectives.race import Round, plan_race, race_cost, run_race


@pytest.mark.parametrize("calls", [17, 18, 30, 47, 48, 500, 1000, 6000, 20000])
@pytest.mark.parametrize("candidates", [1, 2, 7, 100, 2000])
@pytest.mark.parametrize("examples", [5, 60, 500])
@pytest.mark.parametrize("beside", [0, 1])
def test_a_plan_keeps_within_its_means(calls: int, candidates: int, examples: int, beside: int) -> None:
    plan = plan_race(calls, candidates, examples, beside=beside)
    assert race_cost(plan, beside=beside) <= calls
    assert all(r.contenders <= candidates and r.examples <= examples for r in plan)
    assert [r.contenders for r in plan] == sorted((r.contenders for r in plan), reverse=True)
    assert [r.examples for r in plan] == sorted(r.examples for r in plan)


def test_more_calls_make_a_larger_field_and_a_longer_end() -> None:
    small, large = plan_race(1000, 2000, 5000), plan_race(8000, 2000, 5000)
    assert small[0].contenders < large[0].contenders
    assert small[-1].examples < large[-1].examples
    assert race_cost(large) > 0.9 * 8000


def test_no_race_without_two_candidates_or_calls() -> None:
    assert plan_race(10_000, 1, 100) == []
    assert plan_race(5, 100, 100) == []
    assert plan_race(1000, 100, 0) == []
    assert plan_race(10_000, 0, 100, beside=1) == []
    assert plan_race(17, 100, 100, beside=1) == []


def test_what_runs_along_costs_its_own_and_no_race_of_few_calls_is_left_out() -> None:
    assert plan_race(18, 100, 100, beside=1) == [Round(2, 6)]
    assert plan_race(200, 1, 500, beside=1) == [Round(1, 100)]
    assert plan_race(400, 3, 500, beside=1) == [Round(3, 100)], "one short of a power of two"


def test_the_best_of_many_wins_mostly_and_most_calls_go_to_the_good() -> None:
    rng, gains = np.random.default_rng(0), []
    for _ in range(40):
        truth = {str(i): 0.5 + 0.08 * rng.standard_normal() for i in range(64)}
        right: dict[str, list[float]] = {name: [] for name in truth}

        def ask(names, n, right=right, truth=truth):
            for name in names:
                right[name] += (rng.random(n - len(right[name])) < truth[name]).astype(float).tolist()

        def worst_last(name, right=right):
            return -np.mean(right[name])

        def rank(names, key=worst_last):
            return sorted(names, key=key)

        plan = plan_race(3000, 64, 2000)
        best = run_race(list(truth), plan, ask, rank)[0]
        gains.append(truth[best] - np.mean(list(truth.values())))
        assert sum(map(len, right.values())) == race_cost(plan)
    assert np.mean(gains) > 0.10  # of the best of 64 it is 0.19

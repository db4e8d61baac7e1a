"""Intervals and paired tests, against numbers worked by hand."""

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats

from prewrite.evaluation.statistics import (
    Interval,
    holm,
    label_counts,
    macro_f1_interval,
    mcnemar_test,
    mean_interval,
    paired_permutation_test,
    paired_power,
    pass_at_k,
    rows_needed,
    wilson_interval,
)
from prewrite.grading import macro_f1


def test_wilson_at_zero_of_thirty() -> None:
    # z = 1.959964; at 0 successes the upper end is z^2 / (n + z^2) = 3.841459 / 33.841459 = 0.113513
    interval = wilson_interval(0, 30)
    assert interval.low == 0
    assert interval.high == pytest.approx(0.113513, abs=1e-6)


def test_wilson_in_the_middle() -> None:
    # p = 8/10, z^2 = 3.841459: centre (0.8 + 0.19207295) / 1.3841459 = 0.716740,
    # half width 1.959964 * sqrt(0.8 * 0.2 / 10 + 3.841459 / 400) / 1.3841459 = 0.226578
    interval = wilson_interval(8, 10)
    assert interval.low == pytest.approx(0.490162, abs=1e-5)
    assert interval.high == pytest.approx(0.943318, abs=1e-5)


def test_wilson_mirrors() -> None:
    low, high = wilson_interval(3, 20), wilson_interval(17, 20)
    assert low.low == pytest.approx(1 - high.high)
    assert low.high == pytest.approx(1 - high.low)


def test_mcnemar_by_hand() -> None:
    # 5 wins, 1 loss, 2 ties: p = 2 * (C(6,5) + C(6,6)) / 2^6 = 2 * 7 / 64 = 0.21875
    first = [True] * 5 + [False] + [True, False]
    second = [False] * 5 + [True] + [True, False]
    test = mcnemar_test(first, second)
    assert (test.wins, test.losses, test.ties) == (5, 1, 2)
    assert test.p_value == pytest.approx(0.21875)
    mirrored = mcnemar_test(second, first)
    assert (mirrored.wins, mirrored.losses, mirrored.p_value) == (1, 5, pytest.approx(0.21875))


def test_mcnemar_leaves_out_what_has_no_verdict() -> None:
    test = mcnemar_test([True, None, True], [False, False, None])
    assert (test.wins, test.losses, test.ties) == (1, 0, 0)


def test_mcnemar_without_a_difference() -> None:
    assert mcnemar_test([True, False], [True, False]).p_value == 1
    assert mcnemar_test([], []).p_value == 1


def test_paired_permutation_is_exact_on_few() -> None:
    # differences 1, 0.5, 0.25, 0.25 and a tie: of 16 sign patterns only ++++ and ---- reach |sum| 2: p = 2/16
    test = paired_permutation_test([1, 0.5, 0.25, 0.25, 0.3], [0, 0, 0, 0, 0.3])
    assert (test.wins, test.losses, test.ties) == (4, 0, 1)
    assert test.p_value == pytest.approx(2 / 16)
    # differences 1, -0.5, 0.25: sum 0.75; |sum| >= 0.75 for (+++) 1.75, (++-) 1.25, (+-+) 0.75 and mirrors: 6/8
    assert paired_permutation_test([1, 0, 0.25], [0, 0.5, 0]).p_value == pytest.approx(6 / 8)


def test_paired_permutation_of_many_agrees_with_the_normal_one() -> None:
    difference = np.random.default_rng(3).normal(0.03, 1, 1000)
    z = difference.mean() / np.sqrt((difference**2).mean() / 1000)
    normal_p = math.erfc(abs(z) / math.sqrt(2))
    p = paired_permutation_test(list(difference), [0.0] * 1000).p_value
    assert 0.01 < normal_p < 0.9
    assert p == pytest.approx(normal_p, abs=0.02)
    assert paired_permutation_test([1.0] * 30, [0.0] * 30).p_value == pytest.approx(2e-4)  # (1 of 10,000), both sides


def test_paired_permutation_without_a_difference() -> None:
    assert paired_permutation_test([0.5, None], [0.5, 1.0]).p_value == 1


def test_label_counts() -> None:
    counts = label_counts(["a", "a", "a", "b", "b"], ["a", "a", "b", "b", None], ["a", "b"])
    assert counts.tolist() == [[2, 1, 0], [0, 1, 1]]


def test_macro_f1_interval_is_that_of_examples_drawn_anew_where_both_labels_are_common() -> None:
    rng = np.random.default_rng(1)
    targets = [str(label) for label in rng.choice(["a", "b"], 300)]
    predictions = [str(rng.choice([target, "a", "b"])) if rng.random() > 0.1 else None for target in targets]

    def drawn_anew() -> float:
        drawn = rng.integers(300, size=300)
        return macro_f1([targets[i] for i in drawn], [predictions[i] for i in drawn], ["a", "b"])

    slow = np.quantile([drawn_anew() for _ in range(2000)], [0.025, 0.975])
    fast = macro_f1_interval(label_counts(targets, predictions, ["a", "b"]))
    assert [fast.low, fast.high] == pytest.approx(list(slow), abs=0.01)


def test_macro_f1_interval_counts_no_label_as_wrong() -> None:
    assert macro_f1_interval(label_counts(["a", "b"] * 50, [None, "nonsense"] * 50, ["a", "b"])).high < 0.05


def test_nothing_has_no_interval() -> None:
    assert mean_interval([]) == mean_interval([0.5]) == Interval(0, 1)
    with pytest.raises(ValueError, match="no examples"):
        macro_f1_interval(label_counts([], [], ["a", "b"]))


def test_mean_interval_by_hand() -> None:
    # 8 scores, mean 0.5, with 0 and 1 beside: p = 0.5, s^2 = (4 * 1/16 + 4 * 1/16 + 2 * 1/4) / 9 = 1/9;
    # size = 8 * 0.25 * 9 = 18; t for 7 = 2.364624, t^2 = 5.591448; half = 2.364624 * sqrt(0.25/18 + 5.591448/1296)
    # / (1 + 5.591448/18) = 2.364624 * 0.134920 / 1.310636 = 0.243420
    interval = mean_interval([0.25, 0.75] * 4)
    assert (interval.low, interval.high) == pytest.approx((0.5 - 0.243420, 0.5 + 0.243420), abs=1e-5)
    # of many scores it is the normal interval, of right or wrong ones scipy's Wilson interval
    scores = np.random.default_rng(0).uniform(size=4000)
    normal = stats.norm.interval(0.95, scores.mean(), stats.sem(scores))
    assert (mean_interval(list(scores)).low, mean_interval(list(scores)).high) == pytest.approx(normal, abs=1e-4)
    wilson = stats.binomtest(300, 4000).proportion_ci(method="wilson")
    interval = mean_interval([1.0] * 300 + [0.0] * 3700)
    assert (interval.low, interval.high) == pytest.approx((wilson.low, wilson.high), abs=1e-4)


def covered(interval: Callable[[], Interval], truth: float, times: int) -> float:
    drawn = [interval() for _ in range(times)]
    return sum(one.low <= truth <= one.high for one in drawn) / times


@pytest.mark.parametrize(("problems", "samples"), [(30, 4), (30, 16), (200, 8)])
@pytest.mark.parametrize("beta", [(0.3, 0.3), (2, 2), (0.1, 2)], ids=["either", "middling", "hard"])
def test_the_interval_over_problems_covers_what_it_says(problems: int, samples: int, beta: tuple[float, float]) -> None:
    rng = np.random.default_rng(0)

    def draw() -> Interval:
        return mean_interval(list(rng.binomial(samples, rng.beta(*beta, problems)) / samples))

    assert covered(draw, beta[0] / sum(beta), 1500) >= 0.94


def test_wilson_covers_what_it_says() -> None:
    """Exact, not drawn: over all successes, on the mean over true shares, since it swings with each of them."""
    for n in (30, 100, 400):
        intervals = [wilson_interval(k, n) for k in range(n + 1)]
        shares = np.linspace(0.02, 0.98, 97)
        coverage = [
            sum(stats.binom.pmf(k, n, p) for k, one in enumerate(intervals) if one.low <= p <= one.high) for p in shares
        ]
        assert np.mean(coverage) >= 0.945


def test_macro_f1_interval_covers_what_it_says() -> None:
    rng, shares = np.random.default_rng(0), []
    for gold, right in (((0.5, 0.5), (0.7, 0.8)), ((0.5, 0.5), (0.99, 0.98)), ((0.9, 0.1), (0.95, 0.5))):
        table = np.array(
            [[gold[0] * right[0], gold[0] * (1 - right[0]), 0], [gold[1] * (1 - right[1]), gold[1] * right[1], 0]]
        )
        truth = float(np.mean([2 * table[i, i] / (table[i].sum() + table[:, i].sum()) for i in (0, 1)]))

        def draw(table: np.ndarray = table) -> Interval:
            return macro_f1_interval(rng.multinomial(300, table.ravel()).reshape(2, 3))

        shares.append(covered(draw, truth, 1000))
    assert np.mean(shares) >= 0.94
    assert min(shares) >= 0.92


def test_pass_at_k_is_the_share_of_draws_with_a_right_one() -> None:
    for n, correct, k in itertools.product((5, 6), range(6), (1, 2, 4, 5)):
        answers = [True] * correct + [False] * (n - correct)
        draws = list(itertools.combinations(answers, k))
        assert pass_at_k(n, correct, k) == pytest.approx(sum(map(any, draws)) / len(draws))
    # Chen et al.'s own way to reckon it: 1 - prod over i = n - c + 1 .. n of (1 - k / i)
    assert pass_at_k(200, 13, 100) == pytest.approx(1 - np.prod(1 - 100 / np.arange(188, 201)))


def test_pass_at_k_has_no_bias() -> None:
    mean = sum(stats.binom.pmf(c, 10, 0.3) * pass_at_k(10, c, 4) for c in range(11))
    assert mean == pytest.approx(1 - 0.7**4)


def test_holm_by_hand() -> None:
    # sorted 0.01 x 4 = 0.04; 0.02 x 3 = 0.06; 0.03 x 2 = 0.06; 0.5 x 1
    assert holm([0.5, 0.01, 0.03, 0.02]) == pytest.approx([0.5, 0.04, 0.06, 0.06])
    assert holm([0.04, 0.03]) == pytest.approx([0.06, 0.06])  # never in another order than the p-values
    assert holm([0.9, 0.8]) == [1, 1]
    assert holm([]) == []


def test_holm_agrees_with_statsmodels() -> None:
    multitest = pytest.importorskip("statsmodels.stats.multitest", reason="NOT RUN: statsmodels is not installed")
    p_values = np.random.default_rng(0).uniform(size=20) ** 3
    assert holm(list(p_values)) == pytest.approx(list(multitest.multipletests(p_values, method="holm")[1]))


def test_rows_needed_have_the_power_and_fewer_have_not() -> None:
    n = rows_needed(0.05, 0.27)
    assert paired_power(n, 0.05, 0.27) >= 0.8 > paired_power(n - 40, 0.05, 0.27)
    # against the normal approximation: (z_level sqrt(d) + z_power sqrt(d - g^2))^2 / g^2
    z_level, z_power = stats.norm.ppf(0.95), stats.norm.ppf(0.8)
    assert n == pytest.approx((z_level * 0.27**0.5 + z_power * (0.27 - 0.05**2) ** 0.5) ** 2 / 0.05**2, rel=0.1)

"""Intervals and paired tests, against numbers worked by hand."""

import itertools
import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from scipy import stats

from prewrite.evaluation.statistics import (
    Alternative,
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
    share_interval,
)
from prewrite.grading import macro_f1


def test_share_interval_by_hand() -> None:
    # 0 of 30: all misses have the chance (1 - p)^30 = 0.025 at p = 1 - 0.025^(1/30) = 0.115703
    assert share_interval(0, 30).low == 0
    assert share_interval(0, 30).high == pytest.approx(0.115703, abs=1e-6)
    assert share_interval(0, 0) == Interval(0, 1)
    few, many = share_interval(3, 20), share_interval(17, 20)
    assert (few.low, few.high) == pytest.approx((1 - many.high, 1 - many.low))


def test_share_interval_agrees_with_scipy() -> None:
    for right, n in ((1, 8), (8, 10), (312, 400), (1319, 1319)):
        exact = stats.binomtest(right, n).proportion_ci(0.9, method="exact")
        interval = share_interval(right, n, 0.9)
        assert (interval.low, interval.high) == pytest.approx((exact.low, exact.high))


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


@pytest.mark.parametrize(
    ("first", "alternative", "p"), [(1.0, "two-sided", 1), (1.0, "greater", 0.5), (0.0, "greater", 1)]
)
def test_paired_permutation_of_one_difference(first: float, alternative: Alternative, p: float) -> None:
    test = paired_permutation_test([first, 0.25], [0.5, 0.25], alternative=alternative)
    assert (test.wins + test.losses, test.ties, test.p_value) == (1, 1, p)


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
    interval = macro_f1_interval(label_counts(["a", "b"] * 50, [None, "nonsense"] * 50, ["a", "b"]))
    assert interval.low == 0
    assert interval.high < 0.14  # of each label at most 1 - 0.025^(1/50) = 0.071 are right, which is an F1 of 0.133


def test_nothing_has_no_interval() -> None:
    assert mean_interval([]) == mean_interval([0.5]) == Interval(0, 1)
    with pytest.raises(ValueError, match="no examples"):
        macro_f1_interval(label_counts([], [], ["a", "b"]))


def test_mean_interval_by_hand() -> None:
    # 8 scores, mean 0.5, with 0 and 1 beside: p = 0.5, s^2 = (4 * 1/16 + 4 * 1/16 + 2 * 1/4) / 9 = 1/9;
    # 8 * 0.25 * 9 = 18; t for 7 = 2.364624, (2.364624 / 1.959964)^2 = 1.455551; size = 18 / 1.455551 = 12.366455
    interval = mean_interval([0.25, 0.75] * 4)
    low, high = stats.beta.ppf(0.025, 6.183228, 7.183228), stats.beta.ppf(0.975, 7.183228, 6.183228)
    assert (interval.low, interval.high) == pytest.approx((low, high), abs=1e-6)
    # of many scores it is the normal interval, of right or wrong ones that of their share
    scores = np.random.default_rng(0).uniform(size=4000)
    normal = stats.norm.interval(0.95, scores.mean(), stats.sem(scores))
    assert (mean_interval(list(scores)).low, mean_interval(list(scores)).high) == pytest.approx(normal, abs=3e-4)
    exact, interval = share_interval(300, 4000), mean_interval([1.0] * 300 + [0.0] * 3700)
    assert (interval.low, interval.high) == pytest.approx((exact.low, exact.high), abs=1e-4)


def covered(interval: Callable[[], Interval], truth: float, times: int) -> float:
    drawn = [interval() for _ in range(times)]
    return sum(one.low <= truth <= one.high for one in drawn) / times


TIMES = 4000  # simulations a population; the share of 4,000 has a standard error of 0.34 points at 95%


@pytest.mark.parametrize(("problems", "samples"), [(30, 4), (30, 16), (200, 8), (400, 4)])
@pytest.mark.parametrize("beta", [(0.3, 0.3), (2, 2), (0.1, 2)], ids=["either", "middling", "hard"])
def test_the_interval_over_problems_covers_what_it_says(problems: int, samples: int, beta: tuple[float, float]) -> None:
    rng = np.random.default_rng(0)

    def draw() -> Interval:
        return mean_interval(rng.binomial(samples, rng.beta(*beta, problems)) / samples)

    assert covered(draw, beta[0] / sum(beta), TIMES) >= 0.94


@pytest.mark.parametrize("n", [1, 10, 30, 100, 400])
def test_the_interval_of_a_share_covers_what_it_says(n: int) -> None:
    """Exact, not drawn: for each true share the chance of all numbers of successes whose interval holds it."""
    intervals = [share_interval(k, n) for k in range(n + 1)]
    for p in np.linspace(0.001, 0.999, 999):
        assert sum(stats.binom.pmf([k for k, one in enumerate(intervals) if one.low <= p <= one.high], n, p)) >= 0.95


def answers(gold: Sequence[float], right: Sequence[float], no_label: float = 0.0) -> np.ndarray:
    """The shares of a table [C, C + 1]: how often each label is the gold, and right then; other labels err alike."""
    count = len(gold)
    wrong_C1 = (1 - np.array(right)[:, None] - no_label) / (count - 1)
    shares = np.full((count, count + 1), no_label)
    shares[:, :-1] = np.where(np.eye(count) == 1, np.array(right)[:, None], wrong_C1)
    return np.array(gold)[:, None] * shares


POPULATIONS = {  # examples, and the shares of golds and answers
    "two labels": (300, answers((0.5, 0.5), (0.7, 0.8))),
    "nearly no errors": (300, answers((0.5, 0.5), (0.99, 0.98))),
    "60 rows, nearly no errors": (60, answers((0.5, 0.5), (0.99, 0.98))),
    "one in ten": (300, answers((0.9, 0.1), (0.95, 0.5))),
    "60 rows, one in ten": (60, answers((0.9, 0.1), (0.95, 0.5))),
    "30 rows, one in ten": (30, answers((0.9, 0.1), (0.95, 0.5))),
    "100 rows, one in fifty": (100, answers((0.98, 0.02), (0.99, 0.5))),
    "20 rows": (20, answers((0.5, 0.5), (0.9, 0.6))),
    "one label never given": (30, answers((0.7, 0.3), (1.0, 0.0))),
    "one label hardly given": (100, np.array([[0.594, 0.006, 0], [0.38, 0.02, 0]])),
    "no label for one in five": (100, answers((0.5, 0.5), (0.6, 0.5), no_label=0.2)),
    "CB, 56 rows": (56, answers((0.41, 0.5, 0.09), (0.7, 0.8, 0.3))),
    "CB, 250 rows": (250, answers((0.41, 0.5, 0.09), (0.7, 0.8, 0.3))),
    "three, one never given": (60, np.array([[0.32, 0.08, 0, 0], [0.12, 0.28, 0, 0], [0.1, 0.1, 0, 0]])),
    "four labels": (400, answers((0.25,) * 4, (0.9, 0.95, 0.7, 0.75))),
    "four, 40 rows": (40, answers((0.25,) * 4, (0.9, 0.95, 0.7, 0.75))),
    "four, nearly no errors": (100, answers((0.25,) * 4, (0.99, 0.99, 0.97, 0.98))),
    "four, one in twenty": (100, answers((0.6, 0.25, 0.1, 0.05), (0.9, 0.7, 0.5, 0.4))),
    "ten labels": (200, answers((0.1,) * 10, np.linspace(0.4, 0.95, 10))),
}


def macro_f1_coverage(n: int, shares_CC: np.ndarray) -> tuple[float, float]:
    """How often the interval holds the true macro-F1, and its mean width."""
    rng, count = np.random.default_rng(0), len(shares_CC)
    truth = np.mean([2 * shares_CC[i, i] / (shares_CC[i].sum() + shares_CC[:, i].sum()) for i in range(count)])
    drawn = rng.multinomial(n, shares_CC.ravel() / shares_CC.sum(), TIMES).reshape(TIMES, *shares_CC.shape)
    intervals = [macro_f1_interval(counts_CC) for counts_CC in drawn]
    held = np.mean([one.low <= truth + 1e-9 and truth - 1e-9 <= one.high for one in intervals])
    return float(held), float(np.mean([one.high - one.low for one in intervals]))


@pytest.mark.parametrize("population", POPULATIONS)
def test_macro_f1_interval_covers_what_it_says(population: str) -> None:
    assert macro_f1_coverage(*POPULATIONS[population])[0] >= 0.94


def test_macro_f1_interval_by_hand() -> None:
    # 3 of 4 "a" and 3 of 4 "b" are right: of each label J = 3/5, F1 = 6/8. Limits of 3 of 5: 0.146633 and 0.947255,
    # as F1 2 J / (1 + J): 0.255763 and 0.972913. With 1/6 in each cell: right 19/6, mistaken 7/6 + 7/6 = 7/3, F1 =
    # (19/3) / (26/3 + 1/6) = 38/53 = 0.716981, occurrences 53/6; variance (2 - 2 F1)^2 19/6 + F1^2 (53/6 - 19/3) =
    # 1.014596 + 1.285155 = 2.299751, covariance F1^2 7/3 = 1.199478, correlation 0.521569. Below: sqrt((1 + 1 + 2 *
    # 0.521569) / 4) = 0.872230 times 0.75 - 0.255763, above times 0.972913 - 0.75
    interval = macro_f1_interval(np.array([[3, 1, 0], [1, 3, 0]]))
    assert (interval.low, interval.high) == pytest.approx((0.75 - 0.431089, 0.75 + 0.194431), abs=1e-5)


def test_the_tests_find_a_difference_where_none_is_no_oftener_than_they_say() -> None:
    rng, found, found_means = np.random.default_rng(0), 0, 0
    for _ in range(500):
        first, second = rng.random((2, 200)) < rng.beta(1, 1, 200)
        found += mcnemar_test(list(first), list(second)).p_value <= 0.05
        means = rng.binomial(4, rng.beta(0.5, 0.5, 12), (2, 12)) / 4
        found_means += paired_permutation_test(list(means[0]), list(means[1])).p_value <= 0.05
    assert max(found, found_means) <= 0.06 * 500


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


def test_power_by_hand() -> None:
    # 5 of 10 examples differ, each won with (0.5 + 0.3) / (2 x 0.5); the test wants all 5: 1/32, and 6/32 with 4.
    assert paired_power(10, 0.3, 0.5) == pytest.approx(0.8**5)
    assert paired_power(10, 0.3, 0.5, level=6 / 32) == pytest.approx(0.8**5 + 5 * 0.8**4 * 0.2)
    assert paired_power(8, 0.3, 0.5) == 0.0, "all 4 of 4 are luck once in 16 times"
    assert paired_power(0, 0.3, 0.5) == 0.0


def test_rows_needed_have_the_power_and_fewer_have_not() -> None:
    n = rows_needed(0.05, 0.27)
    assert paired_power(n, 0.05, 0.27) >= 0.8 > paired_power(n - 40, 0.05, 0.27)
    # against the normal approximation: (z_level sqrt(d) + z_power sqrt(d - g^2))^2 / g^2
    z_level, z_power = stats.norm.ppf(0.95), stats.norm.ppf(0.8)
    assert n == pytest.approx((z_level * 0.27**0.5 + z_power * (0.27 - 0.05**2) ** 0.5) ** 2 / 0.05**2, rel=0.1)

"""Intervals and paired tests, against numbers worked by hand."""

import math

import numpy as np
import pytest

from prewrite.evaluation.statistics import (
    bootstrap_macro_f1_interval,
    bootstrap_mean_interval,
    label_counts,
    mcnemar_test,
    paired_permutation_test,
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


def test_bootstrap_mean_agrees_with_the_normal_interval() -> None:
    scores = np.random.default_rng(0).uniform(size=400)
    interval = bootstrap_mean_interval(list(scores))
    half_width = 1.96 * scores.std() / 20
    assert interval.low == pytest.approx(scores.mean() - half_width, abs=0.004)
    assert interval.high == pytest.approx(scores.mean() + half_width, abs=0.004)
    assert bootstrap_mean_interval(list(scores)) == interval
    assert bootstrap_mean_interval(list(scores), seed=1) != interval


def test_label_counts() -> None:
    counts = label_counts(["a", "a", "a", "b", "b"], ["a", "a", "b", "b", None], ["a", "b"])
    assert counts.tolist() == [[2, 1, 0], [0, 1, 1]]


def test_bootstrap_macro_f1_agrees_with_resampling_examples_one_by_one() -> None:
    rng = np.random.default_rng(1)
    targets = [str(label) for label in rng.choice(["a", "b"], 60)]
    predictions = [str(rng.choice([target, "a", "b"])) if rng.random() > 0.1 else None for target in targets]

    def resampled() -> float:
        drawn = rng.integers(60, size=60)
        return macro_f1([targets[i] for i in drawn], [predictions[i] for i in drawn], ["a", "b"])

    slow = np.quantile([resampled() for _ in range(2000)], [0.025, 0.975])
    fast = bootstrap_macro_f1_interval(label_counts(targets, predictions, ["a", "b"]))
    assert [fast.low, fast.high] == pytest.approx(list(slow), abs=0.02)


def test_bootstrap_macro_f1_counts_no_label_as_wrong() -> None:
    interval = bootstrap_macro_f1_interval(label_counts(["a", "b"] * 5, [None, "nonsense"] * 5, ["a", "b"]))
    assert (interval.low, interval.high) == (0, 0)
    # always "a" on a balanced pair: F1 of a at most 1 (only a drawn), of b 0: never above 1/2
    assert bootstrap_macro_f1_interval(label_counts(["a", "b"] * 5, ["a"] * 10, ["a", "b"])).high <= 0.5


def test_nothing_has_no_interval() -> None:
    with pytest.raises(ValueError, match="no scores"):
        bootstrap_mean_interval([])
    with pytest.raises(ValueError, match="no examples"):
        bootstrap_macro_f1_interval(label_counts([], [], ["a", "b"]))

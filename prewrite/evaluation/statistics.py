"""How sure a score is, and whether two instructions differ: intervals and paired tests.

Every function is pure; what is random takes a seed. Shapes: N examples, R resamples, C labels.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy import stats

RESAMPLES = 2000
PERMUTATIONS = 9999


Alternative = Literal["two-sided", "greater"]  # greater: the first is better


@dataclass(frozen=True)
class Interval:
    """A two-sided confidence interval, ends included."""

    low: float
    high: float


@dataclass(frozen=True)
class PairedTest:
    """Two instructions on the same examples: the test's p_value; wins, losses, ties are examples, for the first.

    Examples on which one of the two has no verdict are left out; n = wins + losses + ties.
    """

    p_value: float
    wins: int
    losses: int
    ties: int


def wilson_interval(successes: int, n: int, confidence: float = 0.95) -> Interval:
    """The score interval of a share successes / n.

    Unlike the normal approximation it never leaves [0, 1] and says something at 0 of n: 0 of 30 gives [0, 0.114].
    Source: Wilson 1927, "Probable inference, the law of succession, and statistical inference", JASA 22.
    """
    interval = stats.binomtest(successes, n).proportion_ci(confidence, method="wilson")
    return Interval(float(interval.low), float(interval.high))


def bootstrap_mean_interval(scores: Sequence[float], *, confidence: float = 0.95, seed: int = 0) -> Interval:
    """The percentile bootstrap interval of the mean of N continuous scores, as token F1.

    Where all scores are equal the interval is that one point, which says nothing: for right or wrong use Wilson's.
    Source: Efron and Tibshirani 1993, "An Introduction to the Bootstrap", chapter 13.
    """
    score_N, rng = np.asarray(scores, dtype=np.float64), np.random.default_rng(seed)
    if score_N.size == 0:
        raise ValueError("no scores: a mean of nothing has no interval")
    mean_R = np.array([rng.choice(score_N, score_N.size).mean() for _ in range(RESAMPLES)])
    return _percentiles(mean_R, confidence)


def label_counts(targets: Sequence[str], predictions: Sequence[str | None], labels: Sequence[str]) -> np.ndarray:
    """How often each target met each prediction, [C, C + 1]; the last column is for predictions that are no label."""
    class_count, index = len(labels), {label: i for i, label in enumerate(labels)}
    counts_CC = np.zeros((class_count, class_count + 1), dtype=np.int64)
    for target, prediction in zip(targets, predictions, strict=True):
        column = class_count if prediction is None else index.get(prediction, class_count)
        counts_CC[index[target], column] += 1
    return counts_CC


def bootstrap_macro_f1_interval(counts_CC: np.ndarray, *, confidence: float = 0.95, seed: int = 0) -> Interval:
    """The percentile bootstrap interval of macro-F1, examples resampled. counts_CC: of `label_counts`.

    Drawing N examples with replacement is drawing the table from a multinomial, which is what is done. Macro-F1 is that
    of `prewrite.grading.macro_f1`, here for all resamples at once.
    """
    n = counts_CC.sum()
    if n == 0:
        raise ValueError("no examples: a macro-F1 of nothing has no interval")
    counts_RK = np.random.default_rng(seed).multinomial(n, counts_CC.ravel() / n, size=RESAMPLES)
    counts_RCC = counts_RK.reshape(RESAMPLES, *counts_CC.shape)
    hits_RC = np.diagonal(counts_RCC, axis1=1, axis2=2)
    gold_RC, predicted_RC = counts_RCC.sum(axis=2), counts_RCC.sum(axis=1)[:, :-1]
    f1_RC = 2 * hits_RC / np.maximum(gold_RC + predicted_RC, 1)
    return _percentiles(f1_RC.mean(axis=1), confidence)


def mcnemar_test(
    first: Sequence[bool | None], second: Sequence[bool | None], *, alternative: Alternative = "two-sided"
) -> PairedTest:
    """Exact McNemar test: are the examples on which only one is right split evenly? None = no verdict.

    p is that of a binomial test of the wins among wins + losses at 1/2; 1 where nothing differs.
    Source: McNemar 1947, Psychometrika 12; its exact form in Dietterich 1998, Neural Computation 10.
    """
    pairs = [(a, b) for a, b in zip(first, second, strict=True) if a is not None and b is not None]
    wins, losses = sum(a and not b for a, b in pairs), sum(b and not a for a, b in pairs)
    p_value = float(stats.binomtest(wins, wins + losses, 0.5, alternative).pvalue) if wins + losses else 1.0
    return PairedTest(p_value, wins, losses, len(pairs) - wins - losses)


def paired_permutation_test(
    first: Sequence[float | None],
    second: Sequence[float | None],
    *,
    alternative: Alternative = "two-sided",
    seed: int = 0,
) -> PairedTest:
    """Sign-flip test of the mean difference of paired continuous scores, as token F1. None = no verdict.

    Exact where 2^(wins + losses) is at most `PERMUTATIONS`, else that many random flips with the observed one counted
    in, so that p is never 0. Sources: Fisher 1935, "The Design of Experiments", section 21; Phipson and Smyth 2010,
    "Permutation p-values should never be zero".
    """
    difference_N = np.array(
        [a - b for a, b in zip(first, second, strict=True) if a is not None and b is not None], dtype=np.float64
    )
    changed = difference_N[difference_N != 0]  # flipping the sign of a tie changes nothing
    wins, losses = int((changed > 0).sum()), int((changed < 0).sum())
    p_value = 1.0
    if changed.size:
        test = stats.permutation_test(
            (changed,),
            lambda x, axis: x.mean(axis=axis),
            permutation_type="samples",
            alternative=alternative,
            vectorized=True,
            n_resamples=PERMUTATIONS,
            batch=500,
            rng=np.random.default_rng(seed),
        )
        p_value = float(test.pvalue)
    return PairedTest(p_value, wins, losses, difference_N.size - wins - losses)


def paired_power(n: int, gain: float, discordant: float, *, level: float = 0.05) -> float:
    """The chance that McNemar's one-sided test at `level` on n examples finds a true gain.

    gain: difference of the two accuracies; discordant: share of the examples on which only one of the two is right.
    Exact over the wins, for the expected number of discordant examples.
    """
    changed = round(n * discordant)
    needed = next((w for w in range(changed + 1) if stats.binom.sf(w - 1, changed, 0.5) <= level), changed + 1)
    return float(stats.binom.sf(needed - 1, changed, (discordant + gain) / (2 * discordant)))


def _percentiles(statistic_R: np.ndarray, confidence: float) -> Interval:
    low, high = np.quantile(statistic_R, [(1 - confidence) / 2, (1 + confidence) / 2])
    return Interval(float(low), float(high))

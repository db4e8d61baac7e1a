"""How sure a score is, and whether two instructions differ: intervals and paired tests.

Every function is pure; what is random takes a seed. Shapes: N examples, R draws, C labels, K cells of a table.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy import stats

DRAWS = 10_000
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

    Examples on which one of the two has no verdict are left out; n = wins + losses + ties. adjusted: the p-value that
    counts where several were tested together (`holm`).
    """

    p_value: float
    wins: int
    losses: int
    ties: int
    adjusted: float | None = None


def wilson_interval(successes: int, n: int, confidence: float = 0.95) -> Interval:
    """The score interval of a share successes / n.

    Unlike the normal approximation it never leaves [0, 1] and says something at 0 of n: 0 of 30 gives [0, 0.114].
    Source: Wilson 1927, "Probable inference, the law of succession, and statistical inference", JASA 22.
    """
    interval = stats.binomtest(successes, n).proportion_ci(confidence, method="wilson")
    return Interval(float(interval.low), float(interval.high))


def pass_at_k(n: int, correct: int, k: int) -> float:
    """The chance that one of k answers is right, estimated without bias from n answers of which `correct` are.

    1 - C(n - correct, k) / C(n, k), k <= n: equation 1 of Chen et al. 2021, "Evaluating large language models trained
    on code", arXiv 2107.03374.
    """
    return 1 - math.comb(n - correct, k) / math.comb(n, k)


def mean_interval(score_N: Sequence[float], confidence: float = 0.95) -> Interval:
    """The interval of the mean of N scores in [0, 1]: of a token F1, or of what several answers to a problem came to.

    Answers to one problem are alike, so the problems are counted, and the spread between them says for how many right
    or wrong ones they stand: Wilson's interval at p (1 - p) / (s^2 / N) observations, N at least, with Student's
    quantile for N - 1. Spread and p in that are those with one score of 0 and one of 1 beside: of rare successes the
    spread would else be underrated.
    Sources: Korn and Graubard 1998, "Confidence intervals for proportions with small expected number of positive
    counts", Survey Methodology 24; Franco et al. 2019, J. Survey Statistics and Methodology 7 (with Wilson's).
    """
    n, mean = len(score_N), float(np.mean(score_N)) if len(score_N) else 0.0
    if n < 2:
        return Interval(0.0, 1.0)  # one score says nothing of others
    beside = np.array([*score_N, 0.0, 1.0])
    p, variance = float(beside.mean()), float(beside.var(ddof=1))
    size, t = max(n, n * p * (1 - p) / variance), float(stats.t.ppf((1 + confidence) / 2, n - 1))
    centre, half = mean + t * t / (2 * size), t * math.sqrt(mean * (1 - mean) / size + t * t / (4 * size * size))
    scale = 1 + t * t / size
    return Interval(max(0.0, (centre - half) / scale), min(1.0, (centre + half) / scale))


def holm(p_values: Sequence[float]) -> list[float]:
    """The p-values of M tests as they count together, in the order given: the chance that any of them is below a level
    while nothing differs is at most that level.

    Source: Holm 1979, "A simple sequentially rejective multiple test procedure", Scandinavian J. of Statistics 6.
    """
    order = sorted(range(len(p_values)), key=lambda index: p_values[index])
    adjusted, highest = [0.0] * len(p_values), 0.0
    for place, index in enumerate(order):
        highest = max(highest, min(1.0, (len(order) - place) * p_values[index]))
        adjusted[index] = highest
    return adjusted


def label_counts(targets: Sequence[str], predictions: Sequence[str | None], labels: Sequence[str]) -> np.ndarray:
    """How often each target met each prediction, [C, C + 1]; the last column is for predictions that are no label."""
    class_count, index = len(labels), {label: i for i, label in enumerate(labels)}
    counts_CC = np.zeros((class_count, class_count + 1), dtype=np.int64)
    for target, prediction in zip(targets, predictions, strict=True):
        column = class_count if prediction is None else index.get(prediction, class_count)
        counts_CC[index[target], column] += 1
    return counts_CC


def macro_f1_interval(counts_CC: np.ndarray, *, confidence: float = 0.95, seed: int = 0) -> Interval:
    """The credible interval of macro-F1. counts_CC: of `label_counts`.

    What the shares of the table's cells may be, given the counts, is drawn from their Dirichlet posterior with a prior
    that weighs as much as one example (Perks 1947); each draw has its macro-F1, as `prewrite.grading.macro_f1`. The
    bootstrap, which this replaces, covers far less where errors are few (58% in place of 95% at 1 error of 60).
    Source: Goutte and Gaussier 2005, "A probabilistic interpretation of precision, recall and F-score", ECIR.
    """
    if counts_CC.sum() == 0:
        raise ValueError("no examples: a macro-F1 of nothing has no interval")
    weights_K = counts_CC.ravel() + 1 / counts_CC.size
    share_RCC = np.random.default_rng(seed).dirichlet(weights_K, size=DRAWS).reshape(DRAWS, *counts_CC.shape)
    hits_RC = np.diagonal(share_RCC, axis1=1, axis2=2)
    f1_RC = 2 * hits_RC / np.maximum(share_RCC.sum(axis=2) + share_RCC.sum(axis=1)[:, :-1], 1e-300)
    low, high = np.quantile(f1_RC.mean(axis=1), [(1 - confidence) / 2, (1 + confidence) / 2])
    return Interval(float(low), float(high))


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


def rows_needed(gain: float, discordant: float, *, level: float = 0.05, power: float = 0.8) -> int:
    """The fewest examples, in steps of 10, on which `paired_power` is at least `power` there and from there on."""
    high = 10
    while min(paired_power(n, gain, discordant, level=level) for n in (high, high + 10, high + 20)) < power:
        high *= 2
    low = high // 2
    while high - low > 10:  # the power swings a little with n, as whole numbers do; the search ends on a rise
        middle = (low + high) // 20 * 10
        if paired_power(middle, gain, discordant, level=level) < power:
            low = middle
        else:
            high = middle
    return high

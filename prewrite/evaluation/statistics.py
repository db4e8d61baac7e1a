"""How sure a score is, and whether two instructions differ: intervals and paired tests.

Every function is pure; what is random takes a seed. Shapes: N examples, C labels, M tests.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy import special, stats

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


def share_interval(successes: float, n: float, confidence: float = 0.95) -> Interval:
    """The exact interval of a share successes / n: never covers less than it says, whatever the true share is.

    0 of 30 gives [0, 0.116], 0 of 0 all there is. Either may be no whole number, as in `mean_interval`.
    Source: Clopper and Pearson 1934, "The use of confidence or fiducial limits", Biometrika 26; as quantiles of the
    beta distribution.
    """
    tail, misses = (1 - confidence) / 2, n - successes
    low = special.betaincinv(successes, misses + 1, tail) if successes > 0 else 0.0
    high = special.betaincinv(successes + 1, misses, 1 - tail) if misses > 0 else 1.0
    return Interval(float(low), float(high))


def pass_at_k(n: int, correct: int, k: int) -> float:
    """The chance that one of k answers is right, estimated without bias from n answers of which `correct` are.

    1 - C(n - correct, k) / C(n, k), k <= n: equation 1 of Chen et al. 2021, "Evaluating large language models trained
    on code", arXiv 2107.03374.
    """
    return 1 - math.comb(n - correct, k) / math.comb(n, k)


def mean_interval(score_N: Sequence[float], confidence: float = 0.95) -> Interval:
    """The interval of the mean of N scores in [0, 1]: of a token F1, or of what several answers to a problem came to.

    Answers to one problem are alike, so the problems are counted, and the spread between them says for how many right
    or wrong ones they stand: the exact interval at p (1 - p) / (s^2 / N) observations, N at least, less what Student's
    quantile for N - 1 is wider than the normal one. Spread and p in that are those with one score of 0 and one of 1
    beside: of rare successes the spread would else be underrated.
    Source: Korn and Graubard 1998, "Confidence intervals for proportions with small expected number of positive
    counts estimated from survey data", Survey Methodology 24.
    """
    n = len(score_N)
    if n < 2:
        return Interval(0.0, 1.0)  # one score says nothing of others
    beside = np.append(score_N, [0.0, 1.0])
    p, variance, tail = float(beside.mean()), float(beside.var(ddof=1)), (1 - confidence) / 2
    wider = special.stdtrit(n - 1, tail) / special.ndtri(tail)
    size = max(n, n * p * (1 - p) / variance) / wider**2
    return share_interval(float(np.mean(score_N)) * size, size, confidence)


def holm(p_values: Sequence[float]) -> list[float]:
    """The p-values of M tests as they count together, in the order given: the chance that any of them is below a level
    while nothing differs is at most that level.

    Source: Holm 1979, "A simple sequentially rejective multiple test procedure", Scandinavian J. of Statistics 6.
    """
    p_M = np.array(p_values, dtype=np.float64)
    order_M, adjusted_M = np.argsort(p_M, kind="stable"), np.empty_like(p_M)
    adjusted_M[order_M] = np.minimum(1.0, np.maximum.accumulate(np.arange(len(p_M), 0, -1) * p_M[order_M]))
    return adjusted_M.tolist()


def label_counts(targets: Sequence[str], predictions: Sequence[str | None], labels: Sequence[str]) -> np.ndarray:
    """How often each target met each prediction, [C, C + 1]; the last column is for predictions that are no label."""
    class_count, index = len(labels), {label: i for i, label in enumerate(labels)}
    counts_CC = np.zeros((class_count, class_count + 1), dtype=np.int64)
    for target, prediction in zip(targets, predictions, strict=True):
        column = class_count if prediction is None else index.get(prediction, class_count)
        counts_CC[index[target], column] += 1
    return counts_CC


def macro_f1_interval(counts_CC: np.ndarray, confidence: float = 0.95) -> Interval:
    """The interval of macro-F1, as `prewrite.grading.macro_f1`. counts_CC: of `label_counts`.

    A label's F1 is 2 J / (1 + J), where J is the share of right ones among the examples that have the label or were
    given it; so it has the exact interval of J, also where that is one of few or of none. Its distances to the limits
    are put together as standard deviations of a mean are (MOVER), with the correlations of the F1s by the delta method;
    1 / cells is added to each cell there, so that a table without errors has some.
    Sources: Zou and Donner 2008, "Construction of confidence limits about effect measures", Statistics in Medicine 27;
    Takahashi et al. 2022, "Confidence interval for micro-averaged F1 and macro-averaged F1 scores", Applied
    Intelligence 52 (the covariances).
    """
    if counts_CC.sum() == 0:
        raise ValueError("no examples: a macro-F1 of nothing has no interval")
    right_C, occurrences_C, f1_C = _f1_by_label(counts_CC)
    shares = [share_interval(*pair, confidence) for pair in zip(right_C, occurrences_C - right_C, strict=True)]
    low_C, high_C = (2 * limit / (1 + limit) for limit in np.array([[one.low, one.high] for one in shares]).T)

    smooth_CC = counts_CC + 1 / counts_CC.size
    right, occurrences, f1 = _f1_by_label(smooth_CC)
    mistaken_CC = smooth_CC[:, :-1] + smooth_CC[:, :-1].T
    covariance_CC = np.outer(f1, f1) * mistaken_CC  # each row and column times its label's occurrences
    np.fill_diagonal(covariance_CC, (2 - 2 * f1) ** 2 * right + f1**2 * (occurrences - 2 * right))
    deviation_C = np.sqrt(np.diagonal(covariance_CC))
    correlation_CC = covariance_CC / np.outer(deviation_C, deviation_C)
    distances = (f1_C - low_C, high_C - f1_C)
    below, above = (float(np.sqrt(away_C @ correlation_CC @ away_C)) / len(f1_C) for away_C in distances)
    return Interval(max(0.0, float(f1_C.mean()) - below), min(1.0, float(f1_C.mean()) + above))


def _f1_by_label(counts_CC: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of each label: right ones, occurrences as gold and as prediction, and F1, 0 where there are none."""
    right_C = np.diagonal(counts_CC)
    occurrences_C = counts_CC.sum(axis=1) + counts_CC.sum(axis=0)[:-1]
    return right_C, occurrences_C, 2 * right_C / np.maximum(occurrences_C, 1e-300)


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
    pairs = [(a, b) for a, b in zip(first, second, strict=True) if a is not None and b is not None]
    difference_N = np.array([a - b for a, b in pairs], dtype=np.float64)
    changed = difference_N[difference_N != 0]  # flipping the sign of a tie changes nothing
    wins, losses = int((changed > 0).sum()), int((changed < 0).sum())
    p_value = 1.0
    if changed.size == 1:
        changed = np.append(changed, 0.0)  # scipy refuses one alone; a tie beside it changes no sum
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
    or_more = stats.binom.sf(np.arange(-1, changed + 1), changed, 0.5)  # 0 wins or more, ..., changed + 1: never
    needed = int(np.argmax(or_more <= level))
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

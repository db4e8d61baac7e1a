"""What instructions are worth, estimated from every verdict that was paid for."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

_ROUNDS = 60  # of the fit; the order of candidates stands still long before
_LEAST_VARIANCE = {"instruction": 1e-4, "example": 1e-3, "rest": 1e-2, "source": 1e-4}


@dataclass(frozen=True)
class Estimate:
    """An instruction's mean score on examples of average difficulty, and how unsure that is (standard deviation)."""

    mean: float
    sd: float


def estimate_worth(scores: Mapping[str, Mapping[Any, float]], sources: Mapping[str, Hashable]) -> dict[str, Estimate]:
    """The worth of each instruction in `sources`, those without any score included.

    scores: by instruction, then by example; no two need to share any. sources: where each instruction came from (a
    training step, the row itself): what has few scores is drawn to the mean of its source, and a source of few
    instructions to the mean of all.

    The model: score = worth[instruction] + difficulty[example] + noise, worth ~ N(mean[source], v), difficulty ~
    N(0, w): a crossed random-effects model, whose best linear unbiased prediction (Henderson 1975, Biometrics 31) is
    found by backfitting, and its variances by the mean-field EM algorithm beside it.
    """
    names, source_names = list(sources), list(dict.fromkeys(sources.values()))
    examples = list(dict.fromkeys(example for own in scores.values() for example in own))
    place = {name: index for index, name in enumerate(names)}
    example_place = {name: index for index, name in enumerate(examples)}
    observed = [(place[name], example_place[e], y) for name, own in scores.items() for e, y in own.items()]
    source_R = np.array([source_names.index(sources[name]) for name in names], dtype=np.int64)
    if not observed:
        return {name: Estimate(0.5, 0.5) for name in names}
    rewrite_O, example_O = (np.array([one[k] for one in observed], dtype=np.int64) for k in (0, 1))
    worth_R, variance_R = _fit(
        rewrite_O, example_O, np.array([one[2] for one in observed]), source_R, len(examples), len(source_names)
    )
    return {
        name: Estimate(float(mean), float(variance) ** 0.5)
        for name, mean, variance in zip(names, worth_R, variance_R, strict=True)
    }


def _fit(
    rewrite_O: np.ndarray, example_O: np.ndarray, y_O: np.ndarray, source_R: np.ndarray, examples: int, sources: int
) -> tuple[np.ndarray, np.ndarray]:
    """(worth, its variance) of each instruction. Legend: O observed scores, R instructions, E examples, S sources."""
    count = len(source_R)
    seen_R, seen_E = np.bincount(rewrite_O, minlength=count), np.bincount(example_O, minlength=examples)
    members_S = np.bincount(source_R, minlength=sources)
    overall = y_O.mean()
    worth_R, spread_R = np.full(count, overall), np.zeros(count)
    difficulty_E, source_S = np.zeros(examples), np.full(sources, overall)
    by_instruction = by_example = by_source = max(_LEAST_VARIANCE["example"], y_O.var() / 4)
    rest, precision_S = max(_LEAST_VARIANCE["rest"], y_O.var() / 2), np.ones(sources)
    for _ in range(_ROUNDS):
        precision_R = seen_R / rest + 1 / by_instruction
        left_R = np.bincount(rewrite_O, y_O - difficulty_E[example_O], count)
        worth_R = (left_R / rest + source_S[source_R] / by_instruction) / precision_R
        spread_R = 1 / precision_R
        source_sum_S = np.bincount(source_R, worth_R, sources)
        precision_S = members_S / by_instruction + 1 / by_source
        source_S = (source_sum_S / by_instruction + overall / by_source) / precision_S
        precision_E = seen_E / rest + 1 / by_example
        difficulty_E = np.bincount(example_O, y_O - worth_R[rewrite_O], examples) / rest / precision_E
        overall = float(source_S.mean())
        residual_O = y_O - worth_R[rewrite_O] - difficulty_E[example_O]
        rest = max(
            _LEAST_VARIANCE["rest"],
            float(np.mean(residual_O**2 + spread_R[rewrite_O] + 1 / precision_E[example_O])),
        )
        within = (worth_R - source_S[source_R]) ** 2 + spread_R
        by_instruction = max(_LEAST_VARIANCE["instruction"], float(within[seen_R > 0].mean()))
        by_example = max(_LEAST_VARIANCE["example"], float(np.mean(difficulty_E**2 + 1 / precision_E)))
        if sources > 1:
            by_source = max(_LEAST_VARIANCE["source"], float(np.mean((source_S - overall) ** 2 + 1 / precision_S)))
    return worth_R, spread_R + np.where(seen_R > 0, 0.0, 1 / precision_S[source_R])


def ranked(estimates: Mapping[str, Estimate], *, caution: float = 0.0) -> Sequence[str]:
    """The instructions, best first, by mean - caution x sd; equals in the order given."""
    return sorted(estimates, key=lambda name: -(estimates[name].mean - caution * estimates[name].sd))

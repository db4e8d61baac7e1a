"""The estimate: difficulty taken out, shrunk where little is known, calibrated."""

import numpy as np
import pytest
from scipy.stats import spearmanr

from prewrite.training.objectives.estimate import estimate_worth, ranked


def world(seed: int, rewrites: int = 96, examples: int = 400, k: int = 8, group: int = 8):
    """(scores, sources, truth): groups of rewrites, each asked on k examples of the group's own."""
    rng = np.random.default_rng(seed)
    truth = 0.5 + 0.08 * rng.standard_normal(rewrites)
    difficulty = 0.35 * rng.standard_normal(examples)
    scores, sources = {}, {}
    for first in range(0, rewrites, group):
        drawn = rng.choice(examples, k, replace=False)
        for index in range(first, first + group):
            noise = 0.2 * rng.standard_normal(k)
            scores[str(index)] = dict(zip(drawn.tolist(), truth[index] - difficulty[drawn] + noise, strict=True))
            sources[str(index)] = 0
    return scores, sources, truth


def test_it_tells_rewrites_apart_that_were_asked_on_different_examples() -> None:
    by_mean, by_estimate = [], []
    for seed in range(8):
        scores, sources, truth = world(seed)
        estimates = estimate_worth(scores, sources)
        by_mean.append(spearmanr([np.mean(list(own.values())) for own in scores.values()], truth)[0])
        by_estimate.append(spearmanr([estimates[name].mean for name in scores], truth)[0])
    assert np.mean(by_estimate) > 0.6
    assert np.mean(by_estimate) > np.mean(by_mean) + 0.1


def test_its_uncertainty_is_that_of_its_errors() -> None:
    errors = []
    for seed in range(8):
        scores, sources, truth = world(seed)
        estimates = estimate_worth(scores, sources)
        mean = np.mean([one.mean for one in estimates.values()])
        errors += [
            (estimates[name].mean - mean - (truth[int(name)] - truth.mean())) / estimates[name].sd for name in scores
        ]
    assert 0.8 < np.std(errors) < 1.4


def test_little_evidence_does_not_beat_much() -> None:
    lucky, solid = {0: 1.0, 1: 1.0}, {e: float(e % 10 < 8) for e in range(100)}
    poor = {f"poor{i}": {e: float((e + i) % 10 < 5) for e in range(100)} for i in range(6)}
    estimates = estimate_worth({"lucky": lucky, "solid": solid, **poor}, dict.fromkeys(["lucky", "solid", *poor], 0))
    assert ranked(estimates)[0] == "solid"
    assert estimates["lucky"].sd > 2 * estimates["solid"].sd


def test_what_was_never_asked_stands_at_the_mean_of_its_source() -> None:
    scores = {
        f"{source}{i}": {e: float((7 * e + i) % 10 < 3 + 4 * source) for e in range(50)}
        for source in (0, 1)
        for i in range(8)
    }
    sources = {name: int(name[0]) for name in scores} | {"new0": 0, "new1": 1}
    estimates = estimate_worth(scores, sources)
    assert estimates["new0"].mean == pytest.approx(0.3, abs=0.05)
    assert estimates["new1"].mean == pytest.approx(0.7, abs=0.05)
    assert estimates["new0"].sd > estimates["00"].sd


def test_nothing_known_is_no_order() -> None:
    estimates = estimate_worth({}, {"a": 0, "b": 0})
    assert list(ranked(estimates)) == ["a", "b"]
    assert estimates["a"].mean == estimates["b"].mean

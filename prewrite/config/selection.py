"""Choosing among rewrites."""

from typing import Annotated, Literal

from pydantic import Field

from prewrite.config.base import Count, Positive, Section


class SelectionSettings(Section):
    """Choosing the best rewrite on held-out (dev) examples: looks on the way, a race at the end, and one test."""

    eval_steps: Count = 0
    """look at rewrites, in SFT at the held-out loss, every so many steps and after the last; 0 = only after the last"""
    eval_examples: Positive = 64
    """dev examples of a look, in SFT rows, the same ones every time"""
    num_sampled: Count = 0
    """rewrites sampled anew and judged at a look; their mean is the policy's own score, without choosing"""
    race_share: Annotated[float, Field(ge=0, le=0.9)] | None = None
    """of all task calls, those of the race, which picks the best by halving; null = 0.3, of a small budget up to 0.6"""
    test_size: Count = 700
    """dev examples kept for the one test of the best against the initial: all but those of a look, or half; 0 = none"""
    metric: Literal["accuracy", "balanced_accuracy", "f1"] | None = None
    """what the best is best in; null = the run's own rewards, in looks and every round of a race (built-in macro-F1 by
    itself: balanced accuracy until the last ones). balanced_accuracy: mean recall over the labels of a classification;
    f1: of tokens, in open questions; other tasks of the run go by accuracy"""
    num_parents: Positive = 1
    """instructions that groups start from: the row's own and the best so far that are no near-copies of one another"""
    num_races: Positive = 1
    """races, which share the race's calls; for each but the first the policy rewrites the best of the one before"""

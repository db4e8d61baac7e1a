"""Rewards for solving: the completion's own correctness and form. Rows are the problems themselves (`Example`).

A length is in tokens where the samples have token ids, else in characters.
"""

import math
from collections.abc import Sequence

import Levenshtein

from prewrite.errors import UserError
from prewrite.grading import grade_math, strip_thinking
from prewrite.rewards.base import NOT_MY_ROW, Score
from prewrite.types import Example, Sample


def accuracy_reward(samples: Sequence[Sample], rows: Sequence[Example]) -> list[Score]:
    """1 if the completion's final answer equals the row's gold, else 0; None for a gold that cannot be read.

    Range [0, 1]. Thinking is cut, the last box counts (`prewrite.grading.grade_math`). A row with several golds (open
    questions) is another reward's. Named as in open-r1.
    """
    scores: list[Score] = [NOT_MY_ROW] * len(samples)
    mine = [index for index, row in enumerate(rows) if isinstance(row.target, str)]
    verdicts = grade_math([(samples[index].text, str(rows[index].target)) for index in mine])
    for index, correct in zip(mine, verdicts, strict=True):
        scores[index] = None if correct is None else float(correct)
    return scores


def cosine_scaled_reward(
    samples: Sequence[Sample],
    rows: Sequence[Example],
    *,
    min_value_wrong: float = -1.0,
    max_value_wrong: float = -0.5,
    min_value_correct: float = 0.5,
    max_value_correct: float = 1.0,
    max_len: int = 1000,
) -> list[Score]:
    """Right answers are worth more the shorter they are, wrong ones the longer (`cosine_scaled`).

    None for a gold that cannot be read. Range by default [-1, 1].
    """
    if max_len < 1:
        raise UserError(f"reward cosine_scaled_reward: max_len={max_len} must be at least 1.")
    ends = {1.0: (min_value_correct, max_value_correct), 0.0: (max_value_wrong, min_value_wrong)}
    return [
        cosine_scaled(length_of(sample), max_len, *ends[accuracy]) if isinstance(accuracy, float) else accuracy
        for sample, accuracy in zip(samples, accuracy_reward(samples, rows), strict=True)
    ]


def cosine_scaled(length: int, max_len: int, value_at_max: float, value_at_zero: float) -> float:
    """value_at_max + (value_at_zero - value_at_max) (1 + cos(pi L / max_len)) / 2, with L = min(length, max_len).

    Yeo et al. 2025, "Demystifying Long Chain-of-Thought Reasoning", eq. 1. Clamped: open-r1's turns round past max_len.
    """
    share = min(length, max_len) / max_len
    return value_at_max + 0.5 * (value_at_zero - value_at_max) * (1.0 + math.cos(math.pi * share))


def repetition_penalty_reward(
    samples: Sequence[Sample], rows: Sequence[Example], *, ngram_size: int = 3, max_penalty: float = -1.0
) -> list[Score]:
    """(1 - different n-grams / n-grams) x max_penalty; 0 for fewer than n words. Range [max_penalty, 0].

    Words are split at white space, without case; a script without spaces is never punished. As open-r1's (Yeo et al.
    2025).
    """
    if max_penalty > 0 or ngram_size < 1:
        given = f"max_penalty={max_penalty} must not be positive, and ngram_size={ngram_size} must be at least 1."
        raise UserError(f"reward repetition_penalty_reward: {given}")
    return [_repeated_share(sample.text, ngram_size) * max_penalty + 0.0 for sample in samples]  # no -0.0


def _repeated_share(text: str, ngram_size: int) -> float:
    words = text.lower().split()
    total = len(words) - ngram_size + 1
    if total < 1:
        return 0.0
    return 1.0 - len({tuple(words[start : start + ngram_size]) for start in range(total)}) / total


def soft_overlong_punishment(
    samples: Sequence[Sample], rows: Sequence[Example], *, max_completion_len: int, soft_punish_cache: int
) -> list[Score]:
    """0 up to max_completion_len - soft_punish_cache, then down in a straight line to -1 at max_completion_len.

    Range [-1, 0]. DAPO (Yu et al. 2025), eq. 13.
    """
    if not 0 < soft_punish_cache <= max_completion_len:
        rule = f"soft_punish_cache={soft_punish_cache} must lie in (0, max_completion_len={max_completion_len}]."
        raise UserError(f"reward soft_overlong_punishment: {rule}")
    return [soft_overlong(length_of(sample), max_completion_len, soft_punish_cache) for sample in samples]


def soft_overlong(length: int, max_completion_len: int, soft_punish_cache: int) -> float:
    """((max - cache) - length) / cache, held within [-1, 0]."""
    return max(-1.0, min(0.0, (max_completion_len - soft_punish_cache - length) / soft_punish_cache))


def levenshtein_reward(samples: Sequence[Sample], rows: Sequence[Example], *, measure: str = "ratio") -> list[Score]:
    """How alike are what follows `</think>` and the row's `solution`, without white space around them? Range [0, 1].

    measure: "ratio", the Levenshtein package's (insertions and deletions only), or "distance" (`distance_likeness`).
    Code points are compared: a composed letter and its decomposed form differ. A row without a solution is another's.
    """
    measures = {"ratio": Levenshtein.ratio, "distance": distance_likeness}
    if measure not in measures:
        raise UserError(f"reward levenshtein_reward: measure is {measure!r}; it must be one of {', '.join(measures)}.")
    likeness = measures[measure]
    return [
        NOT_MY_ROW if row.solution is None else likeness(strip_thinking(sample.text).strip(), row.solution.strip())
        for sample, row in zip(samples, rows, strict=True)
    ]


def distance_likeness(one: str, other: str) -> float:
    """1 - Levenshtein distance / the longer length; 1 for two empty texts."""
    return 1.0 - Levenshtein.distance(one, other) / (max(len(one), len(other)) or 1)


def length_of(sample: Sample) -> int:
    """Tokens where the sample has token ids, else characters."""
    return len(sample.completion_ids) or len(sample.text)

"""Rewards for rewriting: what the task model made of the rewrite. All of them read one evaluation a rewrite, and see
the rows of their own kind of task alone (the table in `prewrite.rewards`).

A rewrite with a fault (no evaluation) is worth 0. One call that stayed failed, or one gold that cannot be read, leaves
the rollout without a verdict: rollouts of a group are compared on the same examples or not at all.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import cast

from prewrite.asking.template import has_right_tags
from prewrite.errors import UserError
from prewrite.grading import macro_f1
from prewrite.rewards.base import Score
from prewrite.rewards.solving import soft_overlong
from prewrite.tasks.base import Task
from prewrite.tasks.rows import own_examples
from prewrite.types import Evaluation, Example, InstructionRow, Sample, Verdict

Samples = Sequence[Sample]
Rows = Sequence[InstructionRow]
Evaluations = Sequence[Evaluation | None]
WRONG_TAGS = -1.0


def accuracy(samples: Samples, rows: Rows, *, evaluations: Evaluations) -> list[Score]:
    """Share of the mini-batch's examples that the task model gets right with the rewrite. Range [0, 1].

    Where the rewrite alone is the whole query it is 1 or 0: the accuracy reward of PRewrite (Kong et al. 2024).
    """
    return [_score(evaluation, _accuracy) for evaluation in evaluations]


def accuracy_math_reward_split(
    samples: Samples, rows: Rows, *, evaluations: Evaluations, examples: Sequence[Sequence[Example]]
) -> list[Score]:
    """`accuracy` over the problems of the row's `subject` (and `level`) alone. Range [0, 1].

    A mini-batch without a problem of the subject gives no verdict (draw it from `own_examples`).
    """
    ids = [{example.id for example in own_examples(row, drawn)} for row, drawn in zip(rows, examples, strict=True)]
    return [
        _score(evaluation, lambda verdicts, own=own: _accuracy([v for v in verdicts if v.example_id in own]))
        for evaluation, own in zip(evaluations, ids, strict=True)
    ]


def template_accuracy_math_reward(
    samples: Samples, rows: Rows, *, evaluations: Evaluations, rewrites: Sequence[str]
) -> list[Score]:
    """`accuracy` of a rewrite that is a template: its tags, {problem}, are filled by each example.

    -1 where its brace tags are not the row's `tags`. Range [-1, 1].
    """
    return [
        WRONG_TAGS if rewrite and not has_right_tags(rewrite, row.tags) else _score(evaluation, _accuracy)
        for rewrite, row, evaluation in zip(rewrites, rows, evaluations, strict=True)
    ]


def f1_classification_reward(
    samples: Samples, rows: Rows, *, evaluations: Evaluations, tasks: Sequence[Task]
) -> list[Score]:
    """Macro-F1 over the task's fixed labels, pooled over the mini-batch; no label = wrong. Range [0, 1].

    A label that no example of a small mini-batch has counts as 0 for every rollout of the group.
    """

    def pooled(verdicts: Sequence[Verdict], labels: Sequence[str]) -> float:
        if unknown := {str(v.target) for v in verdicts}.difference(labels):
            raise UserError(f"reward f1_classification_reward: {min(unknown)!r} is none of the labels {list(labels)}.")
        return macro_f1([str(v.target) for v in verdicts], [v.prediction for v in verdicts], labels)

    pairs = zip(evaluations, tasks, strict=True)
    return [_score(evaluation, partial(pooled, labels=task.labels)) for evaluation, task in pairs]


def f1_nq_open_instruction_prewrite_reward(samples: Samples, rows: Rows, *, evaluations: Evaluations) -> list[Score]:
    """Mean token F1 (the best over the golds) of the mini-batch's answers. Range [0, 1]."""
    return [_score(evaluation, lambda verdicts: _mean([v.f1 or 0.0 for v in verdicts])) for evaluation in evaluations]


def length_penalty(
    samples: Samples, rows: Rows, *, rewrites: Sequence[str], free_length: int = 800, max_length: int = 2400
) -> list[Score]:
    """0 up to `free_length` characters of the cleaned rewrite, then down in a straight line to -1 at `max_length`.

    Range [-1, 0]. Characters, so that it does not depend on the policy's tokenizer; DAPO's eq. 13 in shape.
    """
    if not 0 <= free_length < max_length:
        raise UserError(f"reward length_penalty: free_length={free_length} must lie in [0, max_length={max_length}).")
    return [soft_overlong(len(rewrite), max_length, max_length - free_length) for rewrite in rewrites]


def _score(evaluation: Evaluation | None, score: Callable[[Sequence[Verdict]], float | None]) -> float | None:
    if evaluation is None:
        return 0.0
    has_all = all(verdict.correct is not None for verdict in evaluation.verdicts)
    return score(evaluation.verdicts) if has_all else None


def _accuracy(verdicts: Sequence[Verdict]) -> float | None:
    return _mean([cast(float, verdict.score) for verdict in verdicts])


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None

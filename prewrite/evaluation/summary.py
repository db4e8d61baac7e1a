"""What the verdicts on one instruction say: scores with intervals, and paired tests between two instructions."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from prewrite.evaluation.statistics import (
    Interval,
    PairedTest,
    bootstrap_macro_f1_interval,
    bootstrap_mean_interval,
    label_counts,
    mcnemar_test,
    paired_permutation_test,
    wilson_interval,
)
from prewrite.grading import macro_f1
from prewrite.tasks.base import Task
from prewrite.types import Evaluation, Verdict

NO_LABEL = "no label"


@dataclass(frozen=True)
class Score:
    """A share or mean in [0, 1] with its 95% interval."""

    value: float
    interval: Interval


@dataclass(frozen=True)
class Summary:
    """The scores of one evaluation, over the examples that have a verdict; failed counts the others.

    num_cut: answers that max_tokens ended.
    accuracy: share of right answers (open questions: exact match) with Wilson's interval, that of a bootstrap where
        several answers were averaged; None without any verdict.
    format_compliance: share of answers in the form that the task asks for, right or not.
    f1: mean token F1; open questions only.
    macro_f1, recall (by label; None where no example has the label), majority (the label given most often and its share
    of the answers): classification only. An answer that is no label is wrong.
    """

    n: int
    failed: int
    num_cut: int
    accuracy: Score | None
    format_compliance: float | None
    f1: Score | None = None
    macro_f1: Score | None = None
    recall: dict[str, float | None] | None = None
    majority: tuple[str, float] | None = None


def summarise(task: Task, evaluation: Evaluation) -> Summary:
    """Every score that applies to the task's kind."""
    n = len(evaluation.verdicts)
    judged = [verdict for verdict in evaluation.verdicts if verdict.correct is not None]
    if not judged:
        return Summary(n, failed=n, num_cut=evaluation.num_cut, accuracy=None, format_compliance=None)
    summary = Summary(
        n,
        failed=n - len(judged),
        num_cut=evaluation.num_cut,
        accuracy=_accuracy(judged),
        format_compliance=sum(verdict.well_formed for verdict in judged) / len(judged),
    )
    if task.kind == "classification":
        return _with_labels(summary, judged, task.labels)
    if task.kind == "open_question":
        f1 = [verdict.f1 for verdict in judged if verdict.f1 is not None]
        return replace(summary, f1=Score(sum(f1) / len(f1), bootstrap_mean_interval(f1)))
    return summary


def compare(first: Evaluation, second: Evaluation) -> PairedTest:
    """Are the right answers of two instructions on the same examples equally many? McNemar's exact test; where several
    answers were averaged, that of `compare_f1`."""
    _check_same_examples(first, second)
    if any(verdict.share is not None for verdict in (*first.verdicts, *second.verdicts)):
        return paired_permutation_test([v.score for v in first.verdicts], [v.score for v in second.verdicts])
    return mcnemar_test([v.correct for v in first.verdicts], [v.correct for v in second.verdicts])


def compare_f1(first: Evaluation, second: Evaluation) -> PairedTest:
    """Is the mean token F1 of two instructions on the same examples the same? Sign-flip permutation test."""
    _check_same_examples(first, second)
    return paired_permutation_test([v.f1 for v in first.verdicts], [v.f1 for v in second.verdicts])


def _accuracy(judged: Sequence[Verdict]) -> Score:
    scores = [verdict.score or 0.0 for verdict in judged]
    if any(verdict.share is not None for verdict in judged):
        return Score(sum(scores) / len(scores), bootstrap_mean_interval(scores))
    right = int(sum(scores))
    return Score(right / len(judged), wilson_interval(right, len(judged)))


def _with_labels(summary: Summary, judged: Sequence[Verdict], labels: Sequence[str]) -> Summary:
    targets, predictions = [str(v.target) for v in judged], [v.prediction for v in judged]
    counts_CC = label_counts(targets, predictions, labels)
    recall = {
        label: float(counts_CC[i, i] / total) if (total := counts_CC[i].sum()) else None
        for i, label in enumerate(labels)
    }
    given = Counter(prediction if prediction in labels else NO_LABEL for prediction in predictions)
    label, count = given.most_common(1)[0]
    return replace(
        summary,
        macro_f1=Score(macro_f1(targets, predictions, labels), bootstrap_macro_f1_interval(counts_CC)),
        recall=recall,
        majority=(str(label), count / len(judged)),
    )


def _check_same_examples(first: Evaluation, second: Evaluation) -> None:
    ids = [[verdict.example_id for verdict in evaluation.verdicts] for evaluation in (first, second)]
    assert ids[0] == ids[1], "a paired test needs the same examples in the same order"

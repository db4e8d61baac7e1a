"""What the verdicts on one instruction say: scores with intervals, and paired tests between two instructions."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from prewrite.evaluation.statistics import (
    Interval,
    PairedTest,
    label_counts,
    macro_f1_interval,
    mcnemar_test,
    mean_interval,
    paired_permutation_test,
    pass_at_k,
    share_interval,
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

    samples: answers to each example. num_cut: answers that max_tokens ended.
    accuracy: share of right answers (open questions: exact match) with `share_interval`, or with several samples, kept
    apart or averaged in the verdicts, the mean over examples with `mean_interval`; None without any verdict.
    pass_at: with several samples, by k: the chance that one of k answers is right (`pass_at_k`).
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
    samples: int = 1
    pass_at: dict[int, Score] | None = None


def summarise(task: Task, evaluation: Evaluation, *more: Evaluation) -> Summary:
    """Every score that applies to the task's kind. more: further samples of the same answers."""
    samples = (evaluation, *more)
    n, num_cut = len(evaluation.verdicts), sum(one.num_cut for one in samples)
    by_example = [[v for v in own if v.correct is not None] for own in by_examples(samples)]
    judged = [verdict for own in by_example for verdict in own]
    if not judged:
        return Summary(n, failed=n, num_cut=num_cut, accuracy=None, format_compliance=None, samples=len(samples))
    summary = Summary(
        n=n,
        failed=sum(not own for own in by_example),
        num_cut=num_cut,
        accuracy=_accuracy(by_example, len(samples)),
        format_compliance=sum(verdict.well_formed for verdict in judged) / len(judged),
        samples=len(samples),
        pass_at=_pass_at(by_example, len(samples)) if more else None,
    )
    if task.kind == "classification":
        return _with_labels(summary, judged, task.labels)
    if task.kind == "open_question":
        f1 = [mean for own in by_example if (mean := _mean([v.f1 for v in own])) is not None]
        return replace(summary, f1=Score(sum(f1) / len(f1), mean_interval(f1)))
    return summary


def by_examples(samples: Sequence[Evaluation]) -> list[tuple[Verdict, ...]]:
    """The verdicts of all samples, example by example."""
    for other in samples[1:]:
        _check_same_examples(samples[0], other)
    return list(zip(*(one.verdicts for one in samples), strict=True))


def compare(first: Sequence[Evaluation], second: Sequence[Evaluation]) -> PairedTest:
    """Are the right answers of two instructions on the same examples equally many?

    first, second: all samples of each. McNemar's exact test of one answer each; of several a sign-flip permutation test
    of the examples' means.
    """
    _check_same_examples(first[0], second[0])
    if len(first) == len(second) == 1:
        return mcnemar_test([v.correct for v in first[0].verdicts], [v.correct for v in second[0].verdicts])
    means = [[_mean([v.correct for v in own]) for own in by_examples(samples)] for samples in (first, second)]
    return paired_permutation_test(*means)


def compare_f1(first: Sequence[Evaluation], second: Sequence[Evaluation]) -> PairedTest:
    """Is the mean token F1 of two instructions on the same examples the same? Sign-flip permutation test."""
    _check_same_examples(first[0], second[0])
    means = [[_mean([v.f1 for v in own]) for own in by_examples(samples)] for samples in (first, second)]
    return paired_permutation_test(*means)


def _accuracy(by_example: Sequence[Sequence[Verdict]], samples: int) -> Score:
    if samples == 1 and all(verdict.share is None for own in by_example for verdict in own):
        right, n = sum(verdict.correct is True for own in by_example for verdict in own), sum(map(len, by_example))
        return Score(right / n, share_interval(right, n))
    means = [mean for own in by_example if (mean := _mean([verdict.score for verdict in own])) is not None]
    return Score(sum(means) / len(means), mean_interval(means))


def _pass_at(by_example: Sequence[Sequence[Verdict]], samples: int) -> dict[int, Score]:
    """For k = 2, 4, ... and all; examples with fewer than k verdicts are left out of pass@k."""
    scores = {}
    for k in sorted({*(2**power for power in range(1, samples.bit_length()) if 2**power <= samples), samples}):
        each = [pass_at_k(len(own), sum(v.correct is True for v in own), k) for own in by_example if len(own) >= k]
        if each:
            scores[k] = Score(sum(each) / len(each), mean_interval(each))
    return scores


def _mean(values: Sequence[float | None]) -> float | None:
    known = [float(value) for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _with_labels(summary: Summary, judged: Sequence[Verdict], labels: Sequence[str]) -> Summary:
    targets, predictions = [str(v.target) for v in judged], [v.prediction for v in judged]
    counts_CC = label_counts(targets, predictions, labels)
    shares = [float(counts_C[i] / counts_C.sum()) if counts_C.any() else None for i, counts_C in enumerate(counts_CC)]
    given = Counter(prediction if prediction in labels else NO_LABEL for prediction in predictions)
    label, count = given.most_common(1)[0]
    if summary.samples == 1:  # several answers to one example are alike, and the interval counts each for one
        score = Score(macro_f1(targets, predictions, labels), macro_f1_interval(counts_CC))
        summary = replace(summary, macro_f1=score)
    majority = (str(label), count / len(judged))
    return replace(summary, recall=dict(zip(labels, shares, strict=True)), majority=majority)


def _check_same_examples(first: Evaluation, second: Evaluation) -> None:
    ids = [[verdict.example_id for verdict in evaluation.verdicts] for evaluation in (first, second)]
    assert ids[0] == ids[1], "a paired test needs the same examples in the same order"

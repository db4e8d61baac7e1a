"""Several sampled answers to one query, averaged into one verdict."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean

from prewrite.types import Verdict


def averaged(by_sample: Sequence[Sequence[Verdict]]) -> tuple[Verdict, ...]:
    """One verdict an example, from the verdicts on its samples. by_sample: [sample][example].

    `share` is the mean, the other fields say what most samples are or say; failed calls are left out of both.
    """
    return tuple(by_sample[0]) if len(by_sample) == 1 else tuple(map(_average, zip(*by_sample, strict=True)))


def _average(verdicts: Sequence[Verdict]) -> Verdict:
    if not (judged := [verdict for verdict in verdicts if verdict.correct is not None]):
        return verdicts[0]
    f1 = [verdict.f1 for verdict in judged if verdict.f1 is not None]
    share = fmean(verdict.correct is True for verdict in judged)
    is_formed = fmean(verdict.well_formed for verdict in judged) > 0.5
    said = Counter(verdict.prediction for verdict in judged).most_common(1)[0][0]
    how = {"correct": share > 0.5, "well_formed": is_formed, "f1": fmean(f1) if f1 else None, "share": share}
    return replace(judged[0], prediction=said, **how)  # the rest is the same for all samples

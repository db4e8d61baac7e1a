"""What is measured on test splits once a run is over."""

from collections.abc import Iterator

from prewrite.config.base import Section, Word


class EvaluationSettings(Section):
    """What the run itself evaluates at its end, as `evaluate.py` does afterwards."""

    benchmarks: list[Word] = []
    """tasks on whose test splits best and initial are measured, beyond the budget, as ["aime24", "math-500"]"""

    def faults(self) -> Iterator[str]:
        if len(set(self.benchmarks)) < len(self.benchmarks):
            yield f"`benchmarks` names one twice: {', '.join(self.benchmarks)}"

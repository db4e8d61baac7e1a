"""What a way of asking is."""

import random
from abc import ABC, abstractmethod
from collections.abc import Sequence

from prewrite.asking.guards import Fault, form_fault
from prewrite.asking.verdicts import grade
from prewrite.tasks.base import Task
from prewrite.types import Answer, Call, Example, InstructionRow, Sample, Verdict


class Asking(ABC):
    """One way of asking the task model about a rewrite.

    uses_examples: whether rewrites are asked on a task's examples, so that train and dev have to be loaded. Else a row
    is a question with an answer of its own, and held-out rows take the place of dev examples.
    suits_any_row: whether it reads no more in a row than its instruction.
    fills_tags: whether a row's tags are replaced by an example's columns; else braces are sent as they are.
    """

    uses_examples = True
    suits_any_row = True
    fills_tags = False

    def check_row(  # noqa: B027  # most ways read nothing in a row
        self, row: InstructionRow, task: Task, examples: Sequence[Example], reward: str
    ) -> None:
        """UserError, in the name of the reward that asks so, where the row lacks what this way reads in it (so where it
        does not concern it), or the task's train examples what the row names."""

    def concerns(self, row: InstructionRow) -> bool:
        """Whether a row is asked about this way at all."""
        return True

    def pool(self, row: InstructionRow, examples: Sequence[Example]) -> Sequence[Example]:
        """Those of a task's examples that score the row's rewrites in training. UserError where there is none."""
        return examples

    def draw(self, row: InstructionRow, examples: Sequence[Example], count: int, key: str) -> list[Example]:
        """The mini-batch that scores a group: the same for the same key, so that no rank has to be told.

        A run of the pool from a random place on, since its order spreads labels (`prewrite.tasks.loading.spread`).
        """
        pool = self.pool(row, examples)
        start = random.Random(key).randrange(max(1, len(pool)))  # none where rewards read no examples
        return [pool[(start + number) % len(pool)] for number in range(min(count, len(pool)))]

    @abstractmethod
    def calls(
        self, task: Task, row: InstructionRow, rewrite: str, examples: Sequence[Example], choices: tuple[str, ...]
    ) -> list[Call]:
        """What is asked. choices: the labels of a forced choice, () for free text."""

    def grade(
        self, task: Task, row: InstructionRow, examples: Sequence[Example], answers: Sequence[Answer]
    ) -> tuple[Verdict, ...]:
        """The verdicts on the answers to `calls`, by the task's kind."""
        return tuple(grade(task, examples, answers))

    def fault(self, sample: Sample, rewrite: str, row: InstructionRow, examples: Sequence[Example]) -> Fault | None:
        """Why the rewrite is worth nothing and need not be asked, or None. The rows of faults: `Fault`."""
        return form_fault(sample, rewrite) or self.content_fault(rewrite, row, examples)

    @abstractmethod
    def content_fault(self, rewrite: str, row: InstructionRow, examples: Sequence[Example]) -> Fault | None:
        """The faults of a rewrite that is whole: above all, that it gives away what it is scored on."""

"""A rewrite before each of some examples; or before those of the row's subject and level alone."""

from collections.abc import Sequence

from prewrite.asking.base import Asking
from prewrite.asking.guards import Fault, repeats_example
from prewrite.errors import UserError
from prewrite.tasks.base import Task, query
from prewrite.tasks.files import require_rows
from prewrite.tasks.rows import own_examples
from prewrite.types import Call, Example, InstructionRow


class MiniBatch(Asking):
    """The rewrite, a newline, one example's labelled fields (`prewrite.tasks.base.query`): one call an example."""

    def calls(
        self, task: Task, row: InstructionRow, rewrite: str, examples: Sequence[Example], choices: tuple[str, ...]
    ) -> list[Call]:
        return [Call(query(task, rewrite, example), choices) for example in examples]

    def content_fault(self, rewrite: str, row: InstructionRow, examples: Sequence[Example]) -> Fault | None:
        return "leak" if repeats_example(rewrite, row.instruction, examples) else None


class SubjectBatch(MiniBatch):
    """A mini-batch of the row's subject, and level where it has one; rows without a subject are not asked about."""

    suits_any_row = False

    def concerns(self, row: InstructionRow) -> bool:
        return row.subject is not None

    def check_row(self, row: InstructionRow, task: Task, examples: Sequence[Example], reward: str) -> None:
        if row.subject is None:
            raise UserError(f"{reward}: a row without subject ({row.instruction[:60]!r}); it scores a subject's rows.")

    def pool(self, row: InstructionRow, examples: Sequence[Example]) -> Sequence[Example]:
        filtered_by = f"subject={row.subject!r}" + (f", level={row.level!r}" if row.level else "")
        return require_rows(own_examples(row, examples), f"{row.dataset_name} examples", filtered_by)

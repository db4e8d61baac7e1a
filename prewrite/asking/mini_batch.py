"""A rewrite before each of some examples; or before those of the row's subject alone."""

from collections.abc import Sequence

from prewrite.asking.base import Asking, rows_of_subject
from prewrite.asking.guards import Fault, repeats_example
from prewrite.tasks.base import Task, query
from prewrite.tasks.files import require_rows
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
    """A mini-batch of the row's subject; rows without a subject are not asked about."""

    suits_any_row = False

    def concerns(self, row: InstructionRow) -> bool:
        return row.subject is not None

    def pool(self, row: InstructionRow, examples: Sequence[Example]) -> Sequence[Example]:
        of_subject = rows_of_subject(row, examples)
        return require_rows(of_subject, f"{row.dataset_name} examples", f"subject={row.subject!r}")

"""A rewrite that is a whole question: asked alone, its answer held against the row's own."""

import re
from collections.abc import Sequence

from prewrite.asking.base import Asking
from prewrite.asking.guards import Fault, gives_answer
from prewrite.asking.verdicts import failed_verdict
from prewrite.errors import UserError
from prewrite.grading import extract_math_answer, is_correct_math, nq_exact_match
from prewrite.grading.reply import answer_part
from prewrite.tasks.base import Task
from prewrite.types import Answer, Call, Example, InstructionRow, Verdict

_PROSE = re.compile(r"(?<!\\)(?<![A-Za-z\\])[A-Za-z]{2,}")


class Alone(Asking):
    """One call a rewrite, without examples."""

    uses_examples = suits_any_row = False

    def check_row(self, row: InstructionRow, task: Task, examples: Sequence[Example], reward: str) -> None:
        if row.answer is None:
            raise UserError(
                f"{reward}: a row without `answer` ({row.instruction[:60]!r}), which the reply to its rewrite is held "
                "against: give data.instructions_file with the columns instruction (the problem), dataset_name, answer."
            )

    def draw(self, row: InstructionRow, examples: Sequence[Example], count: int, key: str) -> list[Example]:
        return []

    def calls(
        self, task: Task, row: InstructionRow, rewrite: str, examples: Sequence[Example], choices: tuple[str, ...]
    ) -> list[Call]:
        return [Call(rewrite)]

    def grade(
        self, task: Task, row: InstructionRow, examples: Sequence[Example], answers: Sequence[Answer]
    ) -> tuple[Verdict, ...]:
        """By math where the gold is math, else by SQuAD's normalised text (`prewrite.grading.text`)."""
        assert row.answer is not None, "check_row"
        (answer,), gold = answers, row.answer
        if answer.text is None:
            return (failed_verdict("", gold),)
        if isinstance(gold, str) and (task.kind == "math" or _is_math(gold)):
            given, right = extract_math_answer(answer.text), is_correct_math(answer.text, gold)
        else:
            given, right = answer_part(answer.text).strip() or None, nq_exact_match(answer.text, gold) == 1.0
        return (Verdict("", gold, given, correct=right, well_formed=given is not None),)

    def content_fault(self, rewrite: str, row: InstructionRow, examples: Sequence[Example]) -> Fault | None:
        assert row.answer is not None, "check_row"
        return "leak" if gives_answer(rewrite, row.instruction, row.answer) else None


def _is_math(gold: str) -> bool:
    """Whether a gold is a number, a letter or a formula rather than words."""
    return not _PROSE.search(re.sub(r"\\(?:text|mathrm)\{[^{}]*\}", "", gold))

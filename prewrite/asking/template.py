"""A rewrite that is a template: its brace tags, {problem}, are filled by each example."""

import re
from collections.abc import Collection, Sequence

from prewrite.asking.guards import Fault
from prewrite.asking.mini_batch import MiniBatch
from prewrite.errors import UserError
from prewrite.tasks.base import Task
from prewrite.tasks.rows import unknown_tags
from prewrite.types import Call, Example, InstructionRow

# A brace tag is {name}. LaTeX's arguments (\boxed{answer}, \frac{a}{b}, x_{n}) are read first, so they are none.
_BRACE_TAG = re.compile(r"\\[A-Za-z]+\s*(?:\{[^{}]*\})*|[\^_]\{[^{}]*\}|\{([A-Za-z_]\w*)\}")


class Template(MiniBatch):
    """The rewrite with each of the row's `tags` replaced by the example's column of that name: one call an example.

    A text without any brace tag, as a row's own instruction may be, stands before the example's fields.
    """

    suits_any_row = False
    fills_tags = True

    def concerns(self, row: InstructionRow) -> bool:
        return bool(row.tags)

    def check_row(self, row: InstructionRow, task: Task, examples: Sequence[Example], reward: str) -> None:
        unknown, known = unknown_tags(row, task, examples)
        if unknown or not row.tags:
            given = f"the tag {unknown[0]!r} of the row" if unknown else "a row without tags"
            rule = f"the tags name columns of {task.name}: {', '.join(known)}."
            raise UserError(f"{reward}: {given} ({row.instruction[:60]!r}); {rule}")
        if other := brace_tags(row.instruction) - set(row.tags):
            raise UserError(
                f"{reward}: the instruction {row.instruction[:60]!r} holds {{{min(other)}}}, which is none of its tags "
                f"{', '.join(row.tags)}: nothing would fill it. Add it to the tags, or take it out."
            )

    def calls(
        self, task: Task, row: InstructionRow, rewrite: str, examples: Sequence[Example], choices: tuple[str, ...]
    ) -> list[Call]:
        if not brace_tags(rewrite):
            return super().calls(task, row, rewrite, examples, choices)
        return [Call(fill_template(rewrite, row.tags, example), choices) for example in examples]

    def content_fault(self, rewrite: str, row: InstructionRow, examples: Sequence[Example]) -> Fault | None:
        wrong_tags = not has_right_tags(rewrite, row.tags)
        return "wrong_tags" if wrong_tags else super().content_fault(rewrite, row, examples)


def brace_tags(template: str) -> set[str]:
    """The names of the brace tags, {name}, of a template; braces of LaTeX are no tags."""
    return {match[1] for match in _BRACE_TAG.finditer(template) if match[1]}


def has_right_tags(template: str, tags: Collection[str]) -> bool:
    """Whether the template's brace tags are `tags`: each at least once, and no other."""
    return brace_tags(template) == set(tags)


def fill_template(template: str, tags: Collection[str], example: Example) -> str:
    """The template with each of `tags` replaced, in one pass, by the example's column; all else stays literal."""
    texts = example.texts
    return _BRACE_TAG.sub(lambda match: texts.get(match[1], "") if match[1] in tags else match[0], template)

"""What the task model is asked for a rewrite, and how its answers are graded."""

import re
from collections.abc import Collection, Sequence

from prewrite.errors import UserError
from prewrite.grading import extract_math_answer, grade_math, nq_exact_match, strip_thinking
from prewrite.rewards.base import Ask
from prewrite.tasks.base import Task, query
from prewrite.tasks.scoring import failed_verdict, grade
from prewrite.types import Answer, Call, Example, InstructionRow, Verdict

# A brace tag is {name}. LaTeX's arguments (\boxed{answer}, \frac{a}{b}, x_{n}) are read first, so they are none.
_BRACE_TAG = re.compile(r"\\[A-Za-z]+\s*(?:\{[^{}]*\})*|[\^_]\{[^{}]*\}|\{([A-Za-z_]\w*)\}")
_PROSE = re.compile(r"(?<!\\)(?<![A-Za-z\\])[A-Za-z]{2,}")


def make_calls(
    ask: Ask,
    task: Task,
    rewrite: str,
    examples: Sequence[Example],
    *,
    tags: Collection[str] = (),
    forced_choice: bool,
) -> list[Call]:
    """One call an example.

    mini_batch, subject: the rewrite before the example's fields (`prewrite.tasks.base.query`). row: the rewrite alone.
    template: the rewrite with each of the `tags` replaced by the example's field of that name; needs right tags
    (`has_right_tags`). forced_choice: of a classification's labels, but for row.
    """
    choices = task.labels if forced_choice and task.kind == "classification" and ask != "row" else ()
    if ask == "row":
        return [Call(rewrite) for _ in examples]
    if ask == "template":
        return [Call(fill_template(rewrite, tags, example), choices) for example in examples]
    return [Call(query(task, rewrite, example), choices) for example in examples]


def grade_answers(ask: Ask, task: Task, examples: Sequence[Example], answers: Sequence[Answer]) -> tuple[Verdict, ...]:
    """The verdicts on the answers to `make_calls`: by the task's kind; for ask="row" by math where the gold is math,
    else by normalised text (SQuAD's: case, punctuation, articles and white space do not count)."""
    if ask != "row":
        return tuple(grade(task, examples, answers))
    is_math = [task.kind == "math" or _is_math(example.target) for example in examples]
    pairs = [
        (answer.text, str(example.target))
        for example, answer, math in zip(examples, answers, is_math, strict=True)
        if math and answer.text is not None
    ]
    correct = iter(grade_math(pairs))
    verdicts = []
    for example, answer, math in zip(examples, answers, is_math, strict=True):
        if answer.text is None:
            verdicts.append(failed_verdict(example))
            continue
        golds = (example.target,) if isinstance(example.target, str) else example.target
        given = extract_math_answer(answer.text) if math else strip_thinking(answer.text).strip() or None
        right = next(correct) if math else nq_exact_match(answer.text, golds) == 1.0
        verdicts.append(Verdict(example.id, example.target, given, correct=right, well_formed=given is not None))
    return tuple(verdicts)


def brace_tags(template: str) -> set[str]:
    """The names of the brace tags, {name}, of a template; braces of LaTeX are no tags."""
    return {match[1] for match in _BRACE_TAG.finditer(template) if match[1]}


def has_right_tags(template: str, tags: Collection[str]) -> bool:
    """Whether the template's brace tags are `tags`: each at least once, and no other."""
    return brace_tags(template) == set(tags)


def fill_template(template: str, tags: Collection[str], example: Example) -> str:
    """The template with every one of `tags` replaced, in one pass, by the example's field; all else stays literal."""
    return _BRACE_TAG.sub(lambda match: example.fields[match[1]] if match[1] in tags else match[0], template)


def check_tags(row: InstructionRow, task: Task) -> None:
    """UserError where a row's tags are missing, or are no columns that the task's query shows."""
    unknown = [tag for tag in row.tags if tag not in task.fields]
    if unknown or not row.tags:
        given = f"the tag {unknown[0]!r} of the row" if unknown else "a row without tags"
        raise UserError(
            f"template_accuracy_math_reward: {given} ({row.instruction[:60]!r}); the tags name columns of "
            f"{task.name}: {', '.join(task.fields)}."
        )


def _is_math(target: str | tuple[str, ...]) -> bool:
    """Whether a gold is a number, a letter or a formula rather than words."""
    return isinstance(target, str) and not _PROSE.search(re.sub(r"\\(?:text|mathrm)\{[^{}]*\}", "", target))

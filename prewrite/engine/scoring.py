"""One pass over (instruction, examples) pairs: ask the task model everything at once, then grade every answer."""

import itertools
from collections.abc import Callable, Sequence
from typing import Literal, Protocol

from prewrite.tasks.base import Task, query
from prewrite.tasks.scoring import grade
from prewrite.types import Answer, Call, Evaluation, Example

Scoring = Literal["forced_choice", "free_text"]
Progress = Callable[[int, int], None]


class Asked(Protocol):
    """What answers calls: `prewrite.engine.task_model.TaskModel`."""

    def ask(self, calls: Sequence[Call], *, progress: Progress | None = None) -> list[Answer]: ...


def ask_and_grade(
    task: Task,
    instructions: Sequence[str],
    examples: Sequence[Sequence[Example]],
    task_model: Asked,
    *,
    scoring: Scoring,
    progress: Progress | None = None,
) -> list[Evaluation]:
    """The evaluation of each instruction on its own list of examples: `examples[i]` goes with `instructions[i]`.

    All calls are under way together, so that the endpoint can batch across instructions. With forced choice a
    classification's answer is one of the task's labels; other kinds of task are always free text.
    progress: of the calls, as `TaskModel.ask` reports it.
    """
    assert len(instructions) == len(examples), "one list of examples for each instruction"
    choices = task.labels if scoring == "forced_choice" and task.kind == "classification" else ()
    calls = [
        Call(query(task, instruction, example), choices)
        for instruction, own in zip(instructions, examples, strict=True)
        for example in own
    ]
    answers = task_model.ask(calls, progress=progress)
    verdicts = grade(task, [example for own in examples for example in own], answers)
    ends = list(itertools.accumulate(len(own) for own in examples))
    return [
        Evaluation(instruction, task.name, tuple(verdicts[end - len(own) : end]))
        for instruction, own, end in zip(instructions, examples, ends, strict=True)
    ]

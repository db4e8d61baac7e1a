"""One pass over rewrites: ask the task model everything at once, then grade every answer."""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, Protocol

from tqdm import tqdm

from prewrite.rewards.base import Ask
from prewrite.rewards.calls import grade_answers, make_calls
from prewrite.tasks.base import Task
from prewrite.types import Answer, Call, Evaluation, Example

Scoring = Literal["forced_choice", "free_text"]
Progress = Callable[[int, int], None]


class Asked(Protocol):
    """What answers calls: `prewrite.engine.task_model.TaskModel`."""

    def ask(self, calls: Sequence[Call], *, progress: Progress | None = None) -> list[Answer]: ...

    def ask_ahead(self, calls: Sequence[Call]) -> None: ...

    def check_failure_share(self) -> None: ...


@dataclass(frozen=True)
class Question:
    """An instruction to evaluate on some examples of its task. tags: of the row, where `ask` is "template"."""

    task: Task
    instruction: str
    examples: Sequence[Example]
    ask: Ask = "mini_batch"
    tags: Collection[str] = ()


def evaluate(
    questions: Sequence[Question], task_model: Asked, *, scoring: Scoring, progress: Progress | None = None
) -> list[Evaluation]:
    """The evaluation of each question.

    All calls are under way together, so that the endpoint can batch across instructions; grading has its time limit for
    each question by itself. With forced choice a classification's answer is one of the task's labels.
    progress: of the calls, as `TaskModel.ask` reports it.
    """
    calls = [_calls(asked, scoring) for asked in questions]
    answers = iter(task_model.ask([call for own in calls for call in own], progress=progress))
    evaluations = []
    for asked, own in zip(questions, calls, strict=True):
        replies = [next(answers) for _ in own]
        verdicts = grade_answers(asked.ask, asked.task, asked.examples, replies)
        num_cut = sum(reply.finish_reason == "length" for reply in replies)
        evaluations.append(Evaluation(asked.instruction, asked.task.name, verdicts, num_cut))
    return evaluations


def ask_ahead(questions: Sequence[Question], task_model: Asked, *, scoring: Scoring) -> None:
    """Starts the calls of questions that a later `evaluate` will ask, and does not wait."""
    task_model.ask_ahead([call for asked in questions for call in _calls(asked, scoring)])


def _calls(asked: Question, scoring: Scoring) -> Sequence[Call]:
    return make_calls(
        asked.ask,
        asked.task,
        asked.instruction,
        asked.examples,
        tags=asked.tags,
        forced_choice=scoring == "forced_choice",
    )


@contextmanager
def answers_bar(title: str, total: int, *, leave: bool) -> Iterator[Progress]:
    """A bar of `total` answers; yields the `progress` that moves it. leave: whether it stays at the end."""
    with tqdm(total=total, desc=title, unit="answer", leave=leave, disable=not total, dynamic_ncols=True) as bar:

        def show(done: int, _: int) -> None:
            bar.update(done - bar.n)

        yield show


def ask_and_grade(
    task: Task,
    instructions: Sequence[str],
    examples: Sequence[Sequence[Example]],
    task_model: Asked,
    *,
    scoring: Scoring,
    progress: Progress | None = None,
) -> list[Evaluation]:
    """`evaluate` of several instructions for one task: `examples[i]` goes with `instructions[i]`."""
    questions = [Question(task, text, own) for text, own in zip(instructions, examples, strict=True)]
    return evaluate(questions, task_model, scoring=scoring, progress=progress)

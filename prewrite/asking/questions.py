"""One pass over rewrites: ask the task model everything at once, then grade every answer."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

from prewrite.asking import Asking
from prewrite.asking.verdicts import averaged
from prewrite.tasks.base import Task
from prewrite.terminal import progress_bar
from prewrite.types import Answer, Call, Evaluation, Example, InstructionRow

Scoring = Literal["forced_choice", "free_text"]
Progress = Callable[[int, int], None]


class Answering(Protocol):
    """What answers calls."""

    def ask(self, calls: Sequence[Call], *, progress: Progress | None = None) -> list[Answer]: ...


class Asked(Answering, Protocol):
    """The task model of a run: `prewrite.engine.task_model.TaskModel`."""

    @property
    def num_refused(self) -> int: ...
    @property
    def calls_left(self) -> float: ...
    def body(self, call: Call) -> dict[str, Any]: ...
    def num_missing(self, calls: Iterable[Call]) -> int: ...
    def ask_ahead(self, calls: Sequence[Call]) -> None: ...
    def check_failure_share(self) -> None: ...


@dataclass(frozen=True)
class Question:
    """A rewrite of a row, to be asked about on some examples of its task."""

    asking: Asking
    task: Task
    row: InstructionRow
    rewrite: str
    examples: Sequence[Example]

    def calls(self, scoring: Scoring, samples: int = 1) -> list[Call]:
        """What is asked, once for each of `samples`; a classification's answer is forced to be one of the labels."""
        choices = self.task.labels if scoring == "forced_choice" and self.task.kind == "classification" else ()
        calls = self.asking.calls(self.task, self.row, self.rewrite, self.examples, choices)
        return [replace(call, task=self.task.name, sample_index=index) for index in range(samples) for call in calls]


def evaluate(
    questions: Sequence[Question],
    task_model: Answering,
    *,
    scoring: Scoring,
    samples: int = 1,
    progress: Progress | None = None,
) -> list[Evaluation]:
    """The evaluation of each question, of which every call is sampled `samples` times.

    All calls are under way together, so that the endpoint can batch across rewrites; grading has its time limit for
    each question by itself. progress: of the calls, as `TaskModel.ask` reports it.
    """
    calls = [question.calls(scoring, samples) for question in questions]
    answers = iter(task_model.ask([call for own in calls for call in own], progress=progress))
    evaluations = []
    for question, own in zip(questions, calls, strict=True):
        sampled = [[next(answers) for _ in range(len(own) // samples)] for _ in range(samples)]
        graded = [question.asking.grade(question.task, question.row, question.examples, part) for part in sampled]
        num_cut = sum(any(one.finish_reason == "length" for one in same) for same in zip(*sampled, strict=True))
        evaluations.append(Evaluation(question.rewrite, question.task.name, averaged(graded), num_cut))
    return evaluations


@contextmanager
def answers_bar(title: str, total: int, *, leave: bool) -> Iterator[Progress]:
    """A bar of `total` answers; yields the `progress` that moves it. leave: whether it stays at the end."""
    with progress_bar(total, "answer", title=title, leave=leave) as bar:

        def show(done: int, _: int) -> None:
            bar.update(done - bar.n)

        yield show

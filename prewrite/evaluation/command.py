"""The work of `evaluate.py`: the task model's answers to what a plan asks, and what there is to tell of them."""

import contextlib
import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from prewrite.asking import MINI_BATCH, TEMPLATE
from prewrite.asking.questions import Question, Scoring, answers_bar, evaluate
from prewrite.engine.task_model import TaskModel
from prewrite.engine.task_server import open_task_model
from prewrite.errors import UserError
from prewrite.evaluation.kept import KeptAnswers
from prewrite.evaluation.planning import Job, Part, Plan, outlook, rows_file
from prewrite.evaluation.report import Report, make_rows
from prewrite.evaluation.rows_report import RowsReport
from prewrite.evaluation.setup import Setup
from prewrite.secrets import hidden
from prewrite.tasks.loading import test_label
from prewrite.types import Call, Evaluation, InstructionRow

logger = logging.getLogger(__name__)


def carry_out(plan: Plan, task_model: TaskModel | None = None) -> Iterator[tuple[Report | RowsReport, Path]]:
    """Each job's report, as it is done. task_model: one that is open already; else it is opened when it is needed."""
    parts = [part for job in plan.jobs for part in job.parts]
    for job in plan.jobs:
        _tell(job, plan.setup)
    with contextlib.ExitStack() as stack:
        opened = task_model

        def get() -> TaskModel:
            nonlocal opened
            if opened is None:
                if not plan.setup.task_model.base_urls:
                    logger.info("a server for %s is being started, about a minute", hidden(plan.setup.task_model.model))
                opened = stack.enter_context(open_task_model(plan.setup.task_model))
                opened.probe(next((part.task.labels for part in parts if plan.setup.is_forced(part.task)), ()))
            return opened

        for job in plan.jobs:
            yield _evaluate(job, plan.setup, KeptAnswers(rows_file(job.out), plan.setup.task_model, get)), job.out


@dataclass(frozen=True)
class _SampledQuestion(Question):
    """One of several samples of a question's answers. role: of its instruction."""

    sample_index: int = 0
    role: str = ""

    def calls(self, scoring: Scoring, samples: int = 1) -> list[Call]:
        return [replace(call, sample_index=self.sample_index) for call in super().calls(scoring, samples)]


def _questions(part: Part, setup: Setup) -> list[_SampledQuestion]:
    asking = TEMPLATE if part.row.tags else MINI_BATCH
    return [
        _SampledQuestion(asking, part.task, part.row, candidate.instruction, part.examples, index, role)
        for role, candidate in part.by_role.items()
        for index in range(setup.task_model.samples_per_query)
    ]


def _tell(job: Job, setup: Setup) -> None:
    """What will be asked, what it can show, and where it goes, before it is paid for."""
    number = setup.task_model.samples_per_query
    samples, model = f" x {number} samples" if number > 1 else "", hidden(setup.task_model.model)
    for name, part in zip(job.names, job.parts, strict=True):
        instructions = f"{len(part.by_role)} instruction{'s' if len(part.by_role) > 1 else ''}"
        asked = f"{instructions} x {len(part.examples)} test examples{samples}"
        logger.info("%s: %s; %s answers, into %s", name, asked, model, job.out)
    if len(job.parts) == 1:
        (part,) = job.parts
        logger.info("%s: %s", part.task.name, outlook(len(part.examples), part.num_ranked))


def _evaluate(job: Job, setup: Setup, kept: KeptAnswers) -> Report | RowsReport:
    scoring = setup.task_model.scoring
    questions = [_questions(part, setup) for part in job.parts]
    every = [question for own in questions for question in own]
    calls = [call for question in every for call in question.calls(scoring)]
    missing = kept.missing(calls)
    if num_kept := len(calls) - len(missing):
        where = f"are kept from an earlier start in {kept.path} (delete it to ask anew)"
        logger.info("%s: %d of %d answers %s", job.tasks, num_kept, len(calls), where)
    started = time.perf_counter()
    with answers_bar(f"{job.tasks} test", len(missing), leave=True) as progress:
        found = iter(evaluate(every, kept, scoring=scoring, progress=progress))
    kept.check_failure_share()
    evaluations = [[next(found) for _ in own] for own in questions]
    rows = [make_rows(part.task, part.by_role, own) for part, own in zip(job.parts, evaluations, strict=True)]
    if all(row.summary.accuracy is None for own in rows for row in own):
        why = f" (the last call that failed: {kept.last_error})" if kept.last_error else ""
        n, way_out = sum(own[0].summary.n for own in rows), f"look at the task model {setup.task_model.model}"
        raise UserError(f"task {job.tasks}: none of {n} test examples has a verdict{why}; {way_out} and at the golds")
    answered = zip(job.names, questions, evaluations, strict=True)
    kept.finish(row for name, asked, own in answered for row in _known(name, asked, own, scoring))
    cost = kept.cost() | {"kept": num_kept, "seconds": time.perf_counter() - started}
    is_alone = len(job.parts) == 1
    reports = [
        Report(
            task=part.task,
            test_label=test_label(part.task, setup.config.data.local_dir) + _of(part.row),
            test_size=len(part.whole_test),
            scoring=setup.how(part.task, kept.dialect),
            facts=setup.facts(part.task) | dict(part.facts) | {"rows": str(rows_file(job.out))},
            notes=part.notes,
            rows=own,
            cost=cost if is_alone else {},
            texts={one.id: "\n".join(one.fields[column] for column in part.task.fields) for one in part.examples},
        )
        for part, own in zip(job.parts, rows, strict=True)
    ]
    return reports[0] if is_alone else RowsReport(job.names, reports, cost)


def _of(row: InstructionRow) -> str:
    """What a row's examples are of, after the name of the split."""
    return "".join(f", {name} {value}" for name in ("subject", "level") if (value := getattr(row, name)))


def _known(
    name: str, questions: Sequence[_SampledQuestion], evaluations: Sequence[Evaluation], scoring: Scoring
) -> Iterator[tuple[Call, dict[str, object]]]:
    """What the rows file says of each answer, beside query and answer."""
    for question, evaluation in zip(questions, evaluations, strict=True):
        of = {"task": question.task.name, "row": name, "role": question.role, "instruction": question.rewrite}
        for call, verdict in zip(question.calls(scoring), evaluation.verdicts, strict=True):
            graded = {"gold": verdict.target, "prediction": verdict.prediction, "correct": verdict.correct}
            example = {"example_id": verdict.example_id, "sample": call.sample_index}
            yield call, of | example | graded | {"well_formed": verdict.well_formed, "f1": verdict.f1}

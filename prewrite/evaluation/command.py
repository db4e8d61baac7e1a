"""The work of `evaluate.py`: what is to be evaluated, all of it checked first; then the task model's answers."""

import argparse
import contextlib
import logging
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from prewrite.asking import MINI_BATCH
from prewrite.asking.questions import Question, Scoring, answers_bar, evaluate
from prewrite.engine.task_model import TaskModel
from prewrite.engine.task_server import open_task_model
from prewrite.errors import UserError
from prewrite.evaluation.kept import KeptAnswers
from prewrite.evaluation.planning import outlook
from prewrite.evaluation.prompts import Candidate, Prompts, tasks_of
from prewrite.evaluation.report import Report, make_rows
from prewrite.evaluation.setup import Setup, set_up
from prewrite.evaluation.sources import compared_together, prompt_files
from prewrite.secrets import hidden
from prewrite.tasks import TASKS, get_task
from prewrite.tasks.base import Task
from prewrite.tasks.loading import load_examples, test_label
from prewrite.types import Call, Evaluation, Example, InstructionRow

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Job:
    """Instructions to compare on a task's test split, and the file that the report is for. by_role: baselines first."""

    task: Task
    by_role: Mapping[str, Candidate]
    facts: Mapping[str, str]
    notes: tuple[str, ...]
    whole_test: Sequence[Example]
    limit: int | None
    out: Path

    @property
    def examples(self) -> Sequence[Example]:
        return self.whole_test[: self.limit]

    @property
    def rows_file(self) -> Path:
        """Where each answer is kept."""
        return self.out.with_name(f"{self.out.stem}.rows.jsonl")


@dataclass(frozen=True)
class Plan:
    """All that a command line asks for, checked."""

    setup: Setup
    jobs: Sequence[Job]


def make_plan(arguments: argparse.Namespace, *, will_be_rewritten: bool = False) -> Plan:
    """Reads prompts and test splits. Raises UserError for every fault of the user that can be known by then.

    will_be_rewritten: the prompts are what a rewriter is still to rewrite.
    """
    files = prompt_files(arguments.prompts)
    setup = set_up(arguments, files)

    def canonical(name: str) -> str:
        """The task's one name; what is no task here (a run's own, its config is not at hand) stands for itself."""
        try:
            return get_task(name, setup.own_tasks).name
        except UserError:
            return name

    named = list(dict.fromkeys(name for file in files for name in tasks_of(file, canonical)))
    jobs: list[Job] = []
    for task in _tasks(arguments, setup, named):
        whole_test = load_examples(task, "test", local_dir=setup.local_dir)
        groups = compared_together(files, task.name, arguments.top_k, canonical) if files else [None]
        for group in groups:
            by_role = _roles(group, task)
            if group is not None and not any(role.startswith("rank") for role in by_role):
                if not will_be_rewritten:
                    logger.info("%s: only the initial instruction is there: nothing is to be compared", task.name)
                continue
            number = len([job for job in jobs if job.task is task]) + 1
            jobs.append(
                Job(
                    task=task,
                    by_role=by_role,
                    facts={"prompts": ", ".join(map(str, files)), "ranking": _ranking(by_role, group)} if group else {},
                    notes=group.notes if group else (),
                    whole_test=whole_test,
                    limit=arguments.limit,
                    out=_result_file(arguments, task, files, setup, number),
                )
            )
    if not jobs and not will_be_rewritten:
        raise UserError("the prompts hold only the initial instruction; nothing is to be compared")
    if len(jobs) > 1 and arguments.out is not None and not arguments.out.is_dir():
        raise UserError(f"{arguments.out}: there are {len(jobs)} results; give a folder that exists, with --out")
    return Plan(setup, jobs)


def carry_out(plan: Plan, task_model: TaskModel | None = None) -> Iterator[tuple[Report, Path]]:
    """Each job's report, as it is done. task_model: one that is open already; else it is opened when it is needed."""
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
                opened.probe(next((job.task.labels for job in plan.jobs if plan.setup.is_forced(job.task)), ()))
            return opened

        for job in plan.jobs:
            yield _evaluate(job, plan.setup, KeptAnswers(job.rows_file, plan.setup.task_model, get)), job.out


@dataclass(frozen=True)
class _SampledQuestion(Question):
    """One of several samples of a question's answers."""

    sample_index: int = 0

    def calls(self, scoring: Scoring) -> list[Call]:
        return [replace(call, sample_index=self.sample_index) for call in super().calls(scoring)]


def _questions(job: Job, setup: Setup) -> list[_SampledQuestion]:
    return [
        _SampledQuestion(MINI_BATCH, job.task, InstructionRow(text, job.task.name), text, job.examples, index)
        for text in (candidate.instruction for candidate in job.by_role.values())
        for index in range(setup.samples)
    ]


def _tell(job: Job, setup: Setup) -> None:
    """What will be asked, what it can show, and where it goes, before it is paid for."""
    instructions, n = len(job.by_role), len(job.examples)
    samples = f" x {setup.samples} samples" if setup.samples > 1 else ""
    plural = "s" if instructions > 1 else ""
    logger.info(
        "%s: %d instruction%s x %d test examples%s; %s answers, into %s",
        *(job.task.name, instructions, plural, n, samples, hidden(setup.task_model.model), job.out),
    )
    logger.info("%s: %s", job.task.name, outlook(n, sum(role.startswith("rank") for role in job.by_role)))


def _evaluate(job: Job, setup: Setup, kept: KeptAnswers) -> Report:
    task, scoring = job.task, setup.scoring(job.task)
    questions = _questions(job, setup)
    calls = [call for question in questions for call in question.calls(scoring)]
    missing = kept.missing(calls)
    if kept.num_found:
        logger.info(
            "%s: %d of %d answers are kept from an earlier start in %s (delete it to ask anew)",
            *(task.name, len(calls) - len(missing), len(calls), kept.path),
        )
    started = time.perf_counter()
    with answers_bar(f"{task.name} test", len(missing), leave=True) as progress:
        evaluations = evaluate(questions, kept, scoring=scoring, progress=progress)
    kept.check_failure_share()
    rows = make_rows(task, job.by_role, evaluations)
    if all(row.summary.accuracy is None for row in rows):
        raise UserError(
            f"task {task.name}: none of {rows[0].summary.n} test examples has a verdict under any instruction; look at "
            f"the task model {setup.task_model.model} and at the gold answers"
        )
    kept.finish(_known(job, questions, evaluations, scoring))
    return Report(
        task=task,
        test_label=test_label(task, setup.local_dir),
        test_size=len(job.whole_test),
        scoring=scoring,
        facts=setup.facts() | dict(job.facts) | {"rows": str(job.rows_file)},
        notes=job.notes,
        rows=rows,
        cost=kept.cost() | {"seconds": time.perf_counter() - started},
        texts={example.id: "\n".join(example.fields[column] for column in task.fields) for example in job.examples},
    )


def _known(
    job: Job, questions: Sequence[_SampledQuestion], evaluations: Sequence[Evaluation], scoring: Scoring
) -> Iterator[tuple[Call, dict[str, object]]]:
    """What the rows file says of each answer, beside query and answer."""
    roles = [role for role in job.by_role for _ in range(len(questions) // len(job.by_role))]
    for role, question, evaluation in zip(roles, questions, evaluations, strict=True):
        for call, verdict in zip(question.calls(scoring), evaluation.verdicts, strict=True):
            graded = {"gold": verdict.target, "prediction": verdict.prediction, "correct": verdict.correct}
            of = {"task": job.task.name, "role": role, "instruction": question.rewrite}
            example = {"example_id": verdict.example_id, "sample": call.sample_index}
            yield call, of | example | graded | {"well_formed": verdict.well_formed, "f1": verdict.f1}


def _tasks(arguments: argparse.Namespace, setup: Setup, named: Sequence[str]) -> list[Task]:
    """The tasks asked for; named: those that the prompts are for."""
    names: list[str] = arguments.task
    if not names or names == ["all"]:
        everything = [task.name for task in setup.own_tasks] + list(TASKS)
        names = list(named) if arguments.prompts else everything if names else []
    if not names:
        raise UserError(
            "no task: the prompts name none; say which, with --task"
            if arguments.prompts
            else "no task: say which, with --task NAME (perhaps several times), or --task all; or give --prompts"
        )
    return list({(task := get_task(name, setup.own_tasks)).name: task for name in names}.values())


def _result_file(arguments: argparse.Namespace, task: Task, files: Sequence[Path], setup: Setup, number: int) -> Path:
    """number: of the task's reports."""
    limited = f"_first_{arguments.limit}" if arguments.limit else ""
    name = f"evaluation_{task.name}{limited}{f'_{number}' if number > 1 else ''}.json"
    if arguments.out is not None:
        out = arguments.out / name if arguments.out.is_dir() else arguments.out
    elif arguments.prompts:
        first: Path = arguments.prompts[0]
        out = (first if first.is_dir() else first.parent) / name
    else:
        folder = Path("evaluations", setup.task_model.model.strip("./").replace("/", "_"))
        with contextlib.suppress(OSError):  # told below
            folder.mkdir(parents=True, exist_ok=True)
        out = folder / name
    is_taken = os.path.lexists(out) and (out.is_symlink() or not out.is_file())  # a rename would replace a device
    if is_taken or not os.access(out.parent, os.W_OK):
        raise UserError(f"{out}: cannot be written; give a file in a folder that exists and is writable, with --out")
    return out


def _roles(prompts: Prompts | None, task: Task) -> dict[str, Candidate]:
    """The instructions by role, baselines first. A candidate that is a baseline too stands there alone."""
    default = Candidate(task.default_instruction, "the task's default instruction")
    if prompts is None:
        return {"default": default}
    by_role = {"initial": default}
    if prompts.initial is not None:
        by_role = {"initial": Candidate(prompts.initial, "where the rewriting started")}
        is_elsewhere = prompts.ranking_tasks and task.name not in prompts.ranking_tasks
        if is_elsewhere and task.default_instruction != prompts.initial:
            by_role["default"] = default
    known = {baseline.instruction for baseline in by_role.values()}
    candidates = [candidate for candidate in prompts.candidates if candidate.instruction not in known]
    return by_role | {f"rank {rank}": candidate for rank, candidate in enumerate(candidates, start=1)}


def _ranking(by_role: Mapping[str, Candidate], prompts: Prompts) -> str:
    ways = list(dict.fromkeys(chosen.ranked_by for role, chosen in by_role.items() if role.startswith("rank")))
    on = f" on {', '.join(prompts.ranking_tasks)}" if prompts.ranking_tasks else ""
    return f"by {', then by '.join(ways)}{on}"

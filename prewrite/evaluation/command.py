"""The work of `evaluate.py`: instructions from a file, a task's test split, a task model, and what came of them."""

import argparse
import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prewrite.asking import MINI_BATCH, TEMPLATE
from prewrite.asking.questions import Question, Scoring, answers_bar, evaluate
from prewrite.config import Config, TaskModelSettings
from prewrite.config.loading import make_config, read_settings
from prewrite.engine.forced_choice import Dialect
from prewrite.engine.task_server import open_task_model
from prewrite.errors import UserError
from prewrite.evaluation.arguments import DEFAULT_TOP_K_OF_A_LOG
from prewrite.evaluation.prompts import Candidate, Prompts, prompt_rows, read_prompts
from prewrite.evaluation.report import Report, make_rows
from prewrite.evaluation.rows_report import RowsReport
from prewrite.secrets import hidden
from prewrite.tasks.base import Task
from prewrite.tasks.configured import ConfiguredTasks
from prewrite.tasks.examples import Empty
from prewrite.tasks.files import require_rows
from prewrite.tasks.loading import load_examples, test_label
from prewrite.tasks.rows import own_examples, row_names
from prewrite.types import Evaluation, Example, InstructionRow

logger = logging.getLogger(__name__)

_UNREAD = {"policy": {"model": "none"}, "training": {"max_steps": 1}}


@dataclass(frozen=True)
class _Part:
    """A row's share of the work: its instructions by role, and the test examples that are its own.

    row: its tags, subject and level; all of a task's where the file tells no rows apart.
    """

    row: InstructionRow
    task: Task
    prompts: Prompts
    by_role: Mapping[str, Candidate]
    notes: Sequence[str]
    own_test: Sequence[Example]


def evaluate_prompts(arguments: argparse.Namespace) -> tuple[Report | RowsReport, Path]:
    """Reads the prompts and the test split and asks the task model: what there is to tell, and the file to write it to.

    Raises UserError for every fault of the user, before the task model is started where it can be known by then.
    """
    setup = _set_up(arguments)
    parts = _parts(arguments, setup)
    out = _result_file(arguments, list(dict.fromkeys(part.task.name for part in parts)))
    questions = [
        Question(
            TEMPLATE if part.row.tags else MINI_BATCH,
            part.task,
            part.row,
            chosen.instruction,
            part.own_test[: arguments.limit],
        )
        for part in parts
        for chosen in part.by_role.values()
    ]
    found, dialect = _evaluate(setup, questions)
    evaluations = iter(found)
    reports = [_report(arguments, setup, part, [next(evaluations) for _ in part.by_role], dialect) for part in parts]
    if all(row.summary.accuracy is None for report in reports for row in report.rows):
        raise UserError(
            f"task {', '.join(dict.fromkeys(part.task.name for part in parts))}: none of "
            f"{sum(report.rows[0].summary.n for report in reports)} test examples has a verdict under any instruction; "
            f"look at the task model {setup.task_model.model} and at the gold answers"
        )
    if len(reports) == 1:
        return reports[0], out
    return RowsReport(row_names([part.row for part in parts]), reports), out


def _parts(arguments: argparse.Namespace, setup: "_Setup") -> list[_Part]:
    wanted = setup.tasks.get(arguments.task) if arguments.task else None
    lines_of: dict[InstructionRow, list[dict[str, Any]] | None] = {
        row: lines
        for row, lines in prompt_rows(arguments.prompts, setup.canonical).items()
        if wanted is None or row.dataset_name == wanted.name
    }
    if not lines_of and wanted is None:
        raise UserError(f"{arguments.prompts}: it names no task; give one with --task")
    if not lines_of and wanted is not None:
        lines_of = {InstructionRow("", wanted.name): None}
    tasks = {row.dataset_name: setup.tasks.get(row.dataset_name) for row in lines_of}
    tests = {
        name: load_examples(task, "test", local_dir=setup.local_dir, empty=setup.empty) for name, task in tasks.items()
    }
    parts = []
    for row, lines in lines_of.items():
        task, filtered_by = tasks[row.dataset_name], f"subject={row.subject!r}, level={row.level!r}"
        test = require_rows(list(own_examples(row, tests[task.name])), f"{task.name} test", filtered_by)
        if row.tags:
            TEMPLATE.check_row(row, task, test, str(arguments.prompts))
        prompts = read_prompts(arguments.prompts, task.name, setup.canonical, lines)
        by_role, notes = _to_evaluate(prompts, task, arguments.top_k, num_rows=len(lines_of))
        parts.append(_Part(row, task, prompts, by_role, notes, test))
    return parts


def _report(
    arguments: argparse.Namespace,
    setup: "_Setup",
    part: _Part,
    evaluations: Sequence[Evaluation],
    dialect: Dialect | None,
) -> Report:
    task, settings = part.task, setup.task_model
    scoring: str = setup.scoring(task)
    if scoring == "forced_choice":
        scoring = f"forced_choice ({dialect})" if dialect else "free_text (the endpoint cannot force a choice)"
    rows = make_rows(task, part.by_role, evaluations)
    where = ", ".join(settings.base_urls) or "a server started here"
    of = "".join(f", {name} {value}" for name in ("subject", "level") if (value := getattr(part.row, name)))
    return Report(
        task=task,
        test_label=test_label(task, setup.local_dir) + of,
        test_size=len(part.own_test),
        scoring=scoring,
        facts={
            "task model": f"{settings.model} ({where}), from {setup.origin}",
            "prompts": str(arguments.prompts),
            "ranking": _ranking(part.by_role, part.prompts),
        },
        notes=(*part.prompts.notes, *part.notes),
        rows=rows,
    )


@dataclass(frozen=True)
class _Setup:
    tasks: ConfiguredTasks
    config: Config | None
    task_model: TaskModelSettings
    origin: str

    @property
    def local_dir(self) -> Path | None:
        return Path(self.config.data.local_dir) if self.config and self.config.data.local_dir else None

    @property
    def empty(self) -> Empty:
        return self.config.data.empty if self.config else "refuse"

    def scoring(self, task: Task) -> Scoring:
        return self.task_model.scoring if task.kind == "classification" else "free_text"

    def canonical(self, name: str) -> str:
        """The task's one name; one that is no task here (a run's own, its config is not at hand) stands for itself."""
        try:
            return self.tasks.get(name).name
        except UserError:
            return name


def _set_up(arguments: argparse.Namespace) -> _Setup:
    if not arguments.prompts.is_file():
        raise UserError(f"{arguments.prompts}: there is no such file; give a run's log.jsonl or a list of instructions")
    beside = arguments.prompts.with_name("config.json")
    config_path = arguments.config or (beside if beside.is_file() else None)
    if arguments.model is None and (arguments.base_url or arguments.api_key_env):
        raise UserError("--base-url and --api-key-env say where a model is served; say which one too, with --model")
    # Without a config only the task model, and what --set names, is read; the rest has to be there.
    given = read_settings(config_path) if config_path else _UNREAD | {"data": {"tasks": ["sentiment"]}}
    task_model = given.setdefault("task_model", {})
    if isinstance(task_model, dict):  # all else is told by make_config
        if arguments.model is not None:
            named = {"model": arguments.model, "base_url": arguments.base_url, "api_key_env": arguments.api_key_env}
            task_model.update(named)
        if arguments.scoring is not None:
            task_model["scoring"] = arguments.scoring
    no_model = UserError(
        "no task model: give --model (and --base-url where it is served), or --config; no config.json that has one "
        f"lies beside {arguments.prompts} either"
    )
    if config_path is None and arguments.model is None:
        raise no_model
    config = make_config(given, arguments.overrides, f"config {config_path}" if config_path else "the command line")
    if not config.task_model.model:  # that of a run which solves problems itself
        raise no_model
    return _Setup(
        tasks=ConfiguredTasks(config if config_path else None),
        config=config,
        task_model=config.task_model,
        origin="the command line" if arguments.model is not None else str(config_path),
    )


def _result_file(arguments: argparse.Namespace, tasks: Sequence[str]) -> Path:
    limited = f"_first_{arguments.limit}" if arguments.limit else ""
    out: Path = arguments.out or arguments.prompts.with_name(f"evaluation_{'_'.join(tasks)}{limited}.json")
    is_taken = os.path.lexists(out) and (out.is_symlink() or not out.is_file())  # a rename would replace a device
    if is_taken or not os.access(out.parent, os.W_OK):
        raise UserError(f"{out}: cannot be written; give a file in a folder that exists and is writable, with --out")
    return out


def _to_evaluate(
    prompts: Prompts, task: Task, top_k: int | None, num_rows: int
) -> tuple[dict[str, Candidate], list[str]]:
    """The instructions by role, baselines first, and notes. A candidate that is a baseline too stands there alone."""
    default = Candidate(task.default_instruction, "the task's default instruction")
    if prompts.initial is None:
        by_role = {"initial": default}
    else:
        by_role = {"initial": Candidate(prompts.initial, "where the rewriting started")}
        if task.name not in prompts.ranking_tasks and task.default_instruction != prompts.initial:
            by_role["default"] = default
        top_k = top_k or (DEFAULT_TOP_K_OF_A_LOG if num_rows < 2 else 1)
    known = {baseline.instruction for baseline in by_role.values()}
    candidates = [candidate for candidate in prompts.candidates if candidate.instruction not in known]
    if num_rows > 1 and prompts.keeps_initial:
        candidates = []  # its winner, of which the rows' mean is
    if not candidates and num_rows < 2:
        raise UserError(f"task {task.name}: the prompts hold only the initial instruction; nothing is to be compared")
    chosen = candidates[:top_k]
    notes = [f"the first {len(chosen)} of {len(candidates)} instructions are evaluated (--top-k)"]
    by_role |= {f"rank {rank}": candidate for rank, candidate in enumerate(chosen, start=1)}
    return by_role, notes if len(chosen) < len(candidates) else []


def _evaluate(setup: _Setup, questions: Sequence[Question]) -> tuple[list[Evaluation], Dialect | None]:
    """The evaluations, and the dialect in which choices were forced."""
    settings, samples = setup.task_model, setup.task_model.samples_per_query
    total = samples * sum(len(question.examples) for question in questions)
    tasks = {question.task.name: question.task for question in questions}
    logger.info(
        "%s: %d instructions, %d test questions; task model %s%s",
        ", ".join(tasks),
        len(questions),
        total,
        hidden(settings.model),
        f" at {', '.join(settings.base_urls)}"
        if settings.base_urls
        else ", whose server is being started, about a minute",
    )
    forced = [task.labels for task in tasks.values() if task.labels and setup.scoring(task) == "forced_choice"]
    with open_task_model(settings) as task_model:
        dialect = task_model.probe(forced[0] if forced else ())
        with answers_bar(f"{', '.join(tasks)} test", total, leave=True) as progress:
            evaluations = evaluate(questions, task_model, scoring=settings.scoring, samples=samples, progress=progress)
        task_model.check_failure_share()
    return evaluations, dialect


def _ranking(by_role: Mapping[str, Candidate], prompts: Prompts) -> str:
    ways = list(dict.fromkeys(chosen.ranked_by for role, chosen in by_role.items() if role.startswith("rank")))
    on = f" on {', '.join(prompts.ranking_tasks)}" if prompts.ranking_tasks else ""
    return f"by {', then by '.join(ways)}{on}"

"""The work of `evaluate.py`: instructions from a file, a task's test split, a task model, and what came of them."""

import argparse
import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from prewrite.asking.questions import Scoring, answers_bar, evaluate, instruction_questions
from prewrite.config import TaskModelSettings
from prewrite.config.loading import make_config, read_settings
from prewrite.engine.task_server import open_task_model
from prewrite.errors import UserError
from prewrite.evaluation.arguments import DEFAULT_TOP_K_OF_A_LOG
from prewrite.evaluation.prompts import Candidate, Prompts, read_prompts
from prewrite.evaluation.report import Report, make_rows
from prewrite.secrets import hidden
from prewrite.tasks import check_by_task, get_task
from prewrite.tasks.base import Task
from prewrite.tasks.loading import load_examples, test_label
from prewrite.tasks.own import task_from_settings
from prewrite.types import Evaluation, Example

logger = logging.getLogger(__name__)

_UNREAD = {"policy": {"model": "none"}, "training": {"max_steps": 1}}


def evaluate_prompts(arguments: argparse.Namespace) -> tuple[Report, Path]:
    """Reads the prompts and the test split and asks the task model: what there is to tell, and the file to write it to.

    Raises UserError for every fault of the user, before the task model is started where it can be known by then.
    """
    setup = _set_up(arguments)
    task, settings = setup.task, setup.task_model
    prompts = read_prompts(arguments.prompts, task.name, lambda name: _canonical(name, setup.own_tasks))
    by_role, notes = _to_evaluate(prompts, task, arguments.top_k)
    whole_test = load_examples(task, "test", local_dir=setup.local_dir)
    out = _result_file(arguments, task)
    evaluations, scoring = _evaluate(
        setup, [chosen.instruction for chosen in by_role.values()], whole_test[: arguments.limit]
    )
    rows = make_rows(task, by_role, evaluations)
    if all(row.summary.accuracy is None for row in rows):
        raise UserError(
            f"task {task.name}: none of {rows[0].summary.n} test examples has a verdict under any instruction; look at "
            f"the task model {settings.model} and at the gold answers"
        )
    where = ", ".join(settings.base_urls) or "a server started here"
    report = Report(
        task=task,
        test_label=test_label(task, setup.local_dir),
        test_size=len(whole_test),
        scoring=scoring,
        facts={
            "task model": f"{settings.model} ({where}), from {setup.origin}",
            "prompts": str(arguments.prompts),
            "ranking": _ranking(by_role, prompts),
        },
        notes=(*prompts.notes, *notes),
        rows=rows,
    )
    return report, out


@dataclass(frozen=True)
class _Setup:
    task: Task
    own_tasks: list[Task]
    task_model: TaskModelSettings
    origin: str
    local_dir: Path | None

    @property
    def scoring(self) -> Scoring:
        return self.task_model.scoring if self.task.kind == "classification" else "free_text"


def _set_up(arguments: argparse.Namespace) -> _Setup:
    if not arguments.prompts.is_file():
        raise UserError(f"{arguments.prompts}: there is no such file; give a run's log.jsonl or a list of instructions")
    beside = arguments.prompts.with_name("config.json")
    config_path = arguments.config or (beside if beside.is_file() else None)
    if arguments.model is None and (arguments.base_url or arguments.api_key_env):
        raise UserError("--base-url and --api-key-env say where a model is served; say which one too, with --model")
    if config_path is None and arguments.model is None:
        raise UserError(
            "no task model: give --model (and --base-url where it is served), or --config; no config.json lies beside "
            f"{arguments.prompts} either"
        )
    # Without a config only the task model, and what --set names, is read; the rest has to be there.
    given = read_settings(config_path) if config_path else _UNREAD | {"data": {"tasks": [arguments.task]}}
    task_model = given.setdefault("task_model", {})
    if isinstance(task_model, dict):  # all else is told by make_config
        if arguments.model is not None:
            named = {"model": arguments.model, "base_url": arguments.base_url, "api_key_env": arguments.api_key_env}
            task_model.update(named)
        if arguments.scoring is not None:
            task_model["scoring"] = arguments.scoring
    config = make_config(given, arguments.overrides, f"config {config_path}" if config_path else "the command line")
    own_tasks = [task_from_settings(**task.model_dump()) for task in config.custom_tasks]
    check_by_task(config.task_model.by_task, own_tasks)
    return _Setup(
        task=get_task(arguments.task, own_tasks),
        own_tasks=own_tasks,
        task_model=config.task_model.for_task(get_task(arguments.task, own_tasks).name),
        origin="the command line" if arguments.model is not None else str(config_path),
        local_dir=Path(config.data.local_dir) if config.data.local_dir else None,
    )


def _result_file(arguments: argparse.Namespace, task: Task) -> Path:
    limited = f"_first_{arguments.limit}" if arguments.limit else ""
    out: Path = arguments.out or arguments.prompts.with_name(f"evaluation_{task.name}{limited}.json")
    is_taken = os.path.lexists(out) and (out.is_symlink() or not out.is_file())  # a rename would replace a device
    if is_taken or not os.access(out.parent, os.W_OK):
        raise UserError(f"{out}: cannot be written; give a file in a folder that exists and is writable, with --out")
    return out


def _to_evaluate(prompts: Prompts, task: Task, top_k: int | None) -> tuple[dict[str, Candidate], list[str]]:
    """The instructions by role, baselines first, and notes. A candidate that is a baseline too stands there alone."""
    default = Candidate(task.default_instruction, "the task's default instruction")
    if prompts.initial is None:
        by_role = {"initial": default}
    else:
        by_role = {"initial": Candidate(prompts.initial, "where the rewriting started")}
        if task.name not in prompts.ranking_tasks and task.default_instruction != prompts.initial:
            by_role["default"] = default
        top_k = top_k or DEFAULT_TOP_K_OF_A_LOG
    known = {baseline.instruction for baseline in by_role.values()}
    candidates = [candidate for candidate in prompts.candidates if candidate.instruction not in known]
    if not candidates:
        raise UserError(f"task {task.name}: the prompts hold only the initial instruction; nothing is to be compared")
    chosen = candidates[:top_k]
    notes = [f"the first {len(chosen)} of {len(candidates)} instructions are evaluated (--top-k)"]
    by_role |= {f"rank {rank}": candidate for rank, candidate in enumerate(chosen, start=1)}
    return by_role, notes if len(chosen) < len(candidates) else []


def _evaluate(setup: _Setup, instructions: Sequence[str], examples: Sequence[Example]) -> tuple[list[Evaluation], str]:
    """The evaluations, and how answers were scored, in words."""
    task, settings = setup.task, setup.task_model
    logger.info(
        "%s: %d instructions x %d test examples; task model %s%s",
        task.name,
        len(instructions),
        len(examples),
        hidden(settings.model),
        f" at {', '.join(settings.base_urls)}"
        if settings.base_urls
        else ", whose server is being started, about a minute",
    )
    with open_task_model(settings) as task_model:
        scoring: str = setup.scoring
        if scoring == "forced_choice":
            dialect = task_model.probe(task.labels)
            scoring = f"forced_choice ({dialect})" if dialect else "free_text (the endpoint cannot force a choice)"
        else:
            task_model.probe()
        total = len(instructions) * len(examples) * settings.samples_per_query
        with answers_bar(f"{task.name} test", total, leave=True) as progress:
            questions = instruction_questions(task, instructions, examples)
            evaluations = evaluate(
                questions, task_model, scoring=setup.scoring, samples=settings.samples_per_query, progress=progress
            )
        task_model.check_failure_share()
    return evaluations, scoring


def _ranking(by_role: Mapping[str, Candidate], prompts: Prompts) -> str:
    ways = list(dict.fromkeys(chosen.ranked_by for role, chosen in by_role.items() if role.startswith("rank")))
    on = f" on {', '.join(prompts.ranking_tasks)}" if prompts.ranking_tasks else ""
    return f"by {', then by '.join(ways)}{on}"


def _canonical(name: str, own_tasks: Sequence[Task]) -> str:
    """The task's one name; a name that is no task here (a run's own, its config is not at hand) stands for itself."""
    try:
        return get_task(name, own_tasks).name
    except UserError:
        return name

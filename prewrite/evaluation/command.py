"""`evaluate.py`: from its arguments to the finished evaluation of a file of instructions on a task's test split."""

import argparse
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tqdm import tqdm

from prewrite.config import TaskModelSettings
from prewrite.config_loading import load_config
from prewrite.engine.scoring import ask_and_grade
from prewrite.engine.task_server import open_task_model
from prewrite.errors import UserError
from prewrite.evaluation.evaluation import compare, compare_f1, summarise
from prewrite.evaluation.prompts import Candidate, Prompts, read_prompts
from prewrite.evaluation.report import Report, Row
from prewrite.tasks import get_task
from prewrite.tasks.base import Task
from prewrite.tasks.loading import load_examples, test_label
from prewrite.tasks.own import task_from_settings
from prewrite.types import Evaluation

DEFAULT_TOP_K = 5
BASELINE_STANDING = {"initial": "where the rewriting started", "default": "the task's default instruction"}


def parse_arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line of evaluate.py; argparse's own faults leave with exit code 2."""
    parser = argparse.ArgumentParser(
        prog="evaluate.py",
        description="Scores instructions, and the one they started from, on a task's whole test split.",
        epilog="The task model is that of --model, else of --config, else of the config.json beside the prompts file.",
    )
    parser.add_argument(
        "--prompts",
        required=True,
        type=Path,
        metavar="FILE",
        help="a run's log.jsonl; a .jsonl list with the key `instruction`; or a .txt file, one instruction a line",
    )
    parser.add_argument("--task", required=True, metavar="NAME", help="`python -m prewrite.tasks` lists them")
    parser.add_argument(
        "--top-k",
        type=_positive,
        metavar="K",
        help=f"evaluate only the K best (default: {DEFAULT_TOP_K} of a log, all of a list)",
    )
    parser.add_argument("--config", type=Path, metavar="FILE", help="a config, for its task model, data and tasks")
    parser.add_argument("--model", help="the task model: a name that --base-url serves, else a folder or hub name")
    parser.add_argument("--base-url", metavar="URL", help="OpenAI-compatible endpoint; without it a server is started")
    parser.add_argument("--api-key-env", metavar="NAME", help="environment variable that holds the endpoint's key")
    parser.add_argument("--scoring", choices=("forced_choice", "free_text"), help="of classification tasks")
    parser.add_argument("--limit", type=_positive, metavar="N", help="only the first N test examples: a quick try")
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FILE",
        help="JSON with everything (default: evaluation_TASK.json beside the prompts)",
    )
    return parser.parse_args(arguments)


def evaluate_prompts(arguments: argparse.Namespace) -> tuple[Report, Path]:
    """Reads the prompts and the test split and asks the task model: what there is to tell, and the file to write it to.

    Raises UserError for every fault of the user, before the task model is started where it can be known by then.
    """
    setup = _set_up(arguments)
    task, settings = setup.task, setup.task_model
    prompts = read_prompts(arguments.prompts, task.name, lambda name: get_task(name, setup.own_tasks).name)
    baselines, candidates, notes = _to_evaluate(prompts, task, arguments.top_k)
    whole_test = load_examples(task, "test", local_dir=setup.local_dir)
    examples = whole_test[: arguments.limit]
    out = _result_file(arguments, task)
    scoring = settings.scoring if task.kind == "classification" else "free_text"
    instructions = [*baselines.values(), *(candidate.instruction for candidate in candidates)]
    with open_task_model(settings) as task_model:
        task_model.probe(task.labels if scoring == "forced_choice" else ())
        with tqdm(total=len(instructions) * len(examples), desc=f"{task.name} test", unit="answer") as bar:

            def show(done: int, total: int) -> None:
                bar.update(done - bar.n)

            evaluations = ask_and_grade(
                task,
                instructions,
                [examples] * len(instructions),
                task_model,
                scoring=scoring,
                progress=show,
            )
        task_model.check_failure_share()
    roles = [*baselines, *(f"rank {rank}" for rank in range(1, len(candidates) + 1))]
    standings = [BASELINE_STANDING[role] for role in baselines] + [candidate.standing() for candidate in candidates]
    rows = _rows(task, roles, standings, evaluations, list(baselines))
    if all(row.summary.accuracy is None for row in rows):
        raise UserError(
            f"task {task.name}: not one of {len(examples)} examples has a verdict; look at the task model's endpoint"
        )
    report = Report(
        task=task,
        test_label=test_label(task, setup.local_dir),
        test_size=len(whole_test),
        scoring=scoring,
        facts={
            "task model": f"{settings.model} ({settings.base_url or 'a server started here'}), from {setup.origin}",
            "prompts": str(arguments.prompts),
            "ranking": _ranking(candidates, prompts),
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


def _set_up(arguments: argparse.Namespace) -> _Setup:
    beside = arguments.prompts.with_name("config.json")
    config_path = arguments.config or (beside if beside.is_file() else None)
    config = load_config(config_path) if config_path else None
    if arguments.model is None and (arguments.base_url or arguments.api_key_env):
        raise UserError("--base-url and --api-key-env say where a model is served; say which one too, with --model")
    if config is None and arguments.model is None:
        raise UserError(
            "no task model: give --model (and --base-url where it is served), or --config; no config.json lies beside "
            f"{arguments.prompts} either"
        )
    given: dict[str, object] = config.task_model.model_dump() if config else {}
    if arguments.model is not None:
        given |= {"model": arguments.model, "base_url": arguments.base_url, "api_key_env": arguments.api_key_env}
    if arguments.scoring is not None:
        given["scoring"] = arguments.scoring
    own_tasks = [task_from_settings(**task.model_dump()) for task in config.custom_tasks] if config else []
    return _Setup(
        task=get_task(arguments.task, own_tasks),
        own_tasks=own_tasks,
        task_model=TaskModelSettings.model_validate(given),
        origin="the command line" if arguments.model is not None else str(config_path),
        local_dir=Path(config.data.local_dir) if config and config.data.local_dir else None,
    )


def _result_file(arguments: argparse.Namespace, task: Task) -> Path:
    limited = f"_first_{arguments.limit}" if arguments.limit else ""
    out: Path = arguments.out or arguments.prompts.with_name(f"evaluation_{task.name}{limited}.json")
    if out.is_dir() or not os.access(out.parent, os.W_OK):
        raise UserError(f"{out}: cannot be written; give a file in a folder that exists and is writable, with --out")
    return out


def _to_evaluate(
    prompts: Prompts, task: Task, top_k: int | None
) -> tuple[dict[str, str], tuple[Candidate, ...], list[str]]:
    """The baselines by role, the candidates, and notes. A candidate that is a baseline stands in the table once."""
    notes = []
    if prompts.initial is None:
        baselines = {"initial": task.default_instruction}
        notes.append("the file names no initial instruction; it is the task's default one here")
    else:
        baselines = {"initial": prompts.initial}
        if task.name not in prompts.ranking_tasks and task.default_instruction != prompts.initial:
            baselines["default"] = task.default_instruction
    candidates = tuple(c for c in prompts.candidates if c.instruction not in baselines.values())
    if not candidates:
        raise UserError(
            f"task {task.name}: the prompts hold the initial instruction alone; there is nothing to compare"
        )
    if top_k is None and prompts.initial is not None:
        top_k = DEFAULT_TOP_K
    if top_k is not None and top_k < len(candidates):
        notes.append(f"the best {top_k} of {len(candidates)} different instructions are evaluated (--top-k)")
    return baselines, candidates[:top_k], notes


def _rows(
    task: Task, roles: list[str], standings: list[str], evaluations: list[Evaluation], baselines: list[str]
) -> tuple[Row, ...]:
    by_role = dict(zip(roles, evaluations, strict=True))
    return tuple(
        Row(
            role=role,
            instruction=by_role[role].instruction,
            standing=standing,
            summary=summarise(task, by_role[role]),
            verdicts=by_role[role].verdicts,
            against={other: compare(by_role[role], by_role[other]) for other in baselines if other != role},
            f1_against={
                other: compare_f1(by_role[role], by_role[other])
                for other in baselines
                if other != role and task.kind == "open_question"
            },
        )
        for role, standing in zip(roles, standings, strict=True)
    )


def _ranking(candidates: Sequence[Candidate], prompts: Prompts) -> str:
    ways = list(dict.fromkeys(candidate.ranked_by for candidate in candidates))
    on = f" on {', '.join(prompts.ranking_tasks)}" if prompts.ranking_tasks else ""
    return f"by {', then by '.join(ways)}{on}"


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not 1 or more")
    return value

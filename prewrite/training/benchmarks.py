"""What a run measures on test splits by itself, once it is over: `evaluation.benchmarks`."""

import json
from pathlib import Path

from prewrite.config import Config
from prewrite.engine.task_model import TaskModel
from prewrite.errors import UserError
from prewrite.evaluation.arguments import parse_arguments
from prewrite.evaluation.command import carry_out, make_plan
from prewrite.report import try_report
from prewrite.tasks import get_task
from prewrite.tasks.loading import load_examples
from prewrite.tasks.own import task_from_settings
from prewrite.writing import write_whole


def check_benchmarks(config: Config) -> None:
    """Raises UserError where one is no task, or its test split is not there: before anything is trained."""
    own = [task_from_settings(**task.model_dump()) for task in config.custom_tasks]
    local_dir = Path(config.data.local_dir) if config.data.local_dir else None
    for name in config.evaluation.benchmarks:
        load_examples(get_task(name, own), "test", local_dir=local_dir)


def evaluate_benchmarks(config: Config, folder: Path, task_model: TaskModel) -> None:
    """Scores what best.json holds on each benchmark, as `evaluate.py --prompts` does, with the run's own task model.

    Results lie in the run folder, and in its report. A fault is told and leaves the run whole.
    """
    try:
        for name in config.evaluation.benchmarks:
            plan = make_plan(parse_arguments(["--prompts", str(folder / "best.json"), "--task", name]))
            for report, out in carry_out(plan, task_model):
                write_whole(out, json.dumps(report.as_json(), indent=1, ensure_ascii=False) + "\n")
                print(f"{report.text()}\n\nwritten: {out}\n", flush=True)
    except UserError as error:
        print(f"not evaluated: {error}", flush=True)
    print(try_report(folder), flush=True)

"""What a run measures on test splits by itself, once it is over: `evaluation.benchmarks`."""

import json
import math
from pathlib import Path

from prewrite.config import Config
from prewrite.engine.task_model import TaskModel
from prewrite.errors import UserError
from prewrite.evaluation.arguments import parse_arguments
from prewrite.evaluation.command import carry_out
from prewrite.evaluation.planning import make_plan
from prewrite.report import try_report
from prewrite.tasks.configured import ConfiguredTasks
from prewrite.tasks.loading import load_examples
from prewrite.writing import write_whole


def check_benchmarks(config: Config) -> tuple[str, ...]:
    """Labels that the task model will be forced to choose from, () for none. Raises UserError where a benchmark is no
    task, or its test split is not there: before anything is trained."""
    tasks, local_dir = ConfiguredTasks(config), Path(config.data.local_dir) if config.data.local_dir else None
    benchmarks = [tasks.get(name) for name in config.evaluation.benchmarks]
    for task in benchmarks:
        load_examples(task, "test", local_dir=local_dir, empty=config.data.empty)
    if config.task_model.scoring != "forced_choice":
        return ()
    return next((task.labels for task in benchmarks if task.kind == "classification"), ())


def evaluate_benchmarks(config: Config, folder: Path, task_model: TaskModel) -> None:
    """Scores what best.json holds on each benchmark, as `evaluate.py --prompts` does, with the run's own task model.

    They are beyond the run's budget, which is for training and choosing. Results lie in the run folder, and in its
    report. A fault is told and leaves the run whole.
    """
    task_model.spending.allow(dict.fromkeys(task_model.spending.used(), math.inf))
    try:
        for name in config.evaluation.benchmarks:
            plan = make_plan(parse_arguments(["--prompts", str(folder / "best.json"), "--task", name]))
            for report, out in carry_out(plan, task_model):
                write_whole(out, json.dumps(report.as_json(), indent=1, ensure_ascii=False) + "\n")
                print(f"{report.text()}\n\nwritten: {out}\n", flush=True)
    except UserError as error:
        print(f"not evaluated: {error}", flush=True)
    print(try_report(folder), flush=True)

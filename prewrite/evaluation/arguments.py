"""The command line of `evaluate.py`; imports no heavy library, so that `--help` and faults are told at once."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from prewrite.secrets import ArgumentParser, positive

DEFAULT_TOP_K_OF_A_LOG = 5


def parse_arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line of evaluate.py; argparse's own faults leave with exit code 2."""
    parser = ArgumentParser(
        "evaluate.py",
        description="Scores instructions, and the one they started from, on a task's whole test split; without "
        "--prompts a model, under the task's default instruction.",
        epilog="The task model, which answers, is that of --model, else of --config, else of the config.json beside "
        "the prompts. What was answered is kept in evaluation_TASK.rows.jsonl, and never asked again.",
    )
    add = parser.add_argument
    add(
        "--prompts",
        nargs="+",
        action="extend",
        type=Path,
        default=[],
        metavar="FILE",
        help="a run's folder, log.jsonl or best.json; a folder of runs; a .jsonl, .csv or .parquet list with the "
        "column `instruction`; or a .txt file, one instruction a line. Several are compared together",
    )
    tasks = "may be given again; `all`: without --prompts every task (default: each row's own dataset_name)"
    add("--task", action="append", default=[], metavar="NAME", help=f"`python -m prewrite.tasks` lists them; {tasks}")
    add("--rewriter", metavar="CKPT", help="first rewrites the instructions of --prompts with this policy")
    samples = "K answers to each example, with pass@k (default: task_model.samples_per_query, which is 1)"
    add("--samples", type=positive, metavar="K", help=samples)
    most = f"{DEFAULT_TOP_K_OF_A_LOG} of a log, 1 of each of several logs or rows of one, all of lists"
    add("--top-k", type=positive, metavar="K", help=f"only the K best (default: {most})")
    add_task_model(parser, "data and tasks")
    add("--scoring", choices=("forced_choice", "free_text"), help="of classification tasks")
    add("--limit", type=positive, metavar="N", help="only the first N test examples: a quick try")
    default = "evaluation_TASK.json beside the prompts; without --prompts in evaluations/MODEL"
    add("--out", type=Path, metavar="FILE", help=f"JSON with everything, or a folder for it (default: {default})")
    return parser.parse_args(arguments)


def add_task_model(parser: ArgumentParser, sections: str) -> None:
    """The options that say what answers, and how. sections: what else of a config is read."""
    add = parser.add_argument
    add("--config", type=Path, metavar="FILE", help=f"a config, for its task model, {sections}")
    any_setting = "any setting of a config, as task_model.max_tokens=64"
    add("--set", action="append", default=[], metavar="KEY=VALUE", dest="overrides", help=any_setting)
    add("--model", help="what answers: a name that --base-url serves, else a folder or hub name")
    add("--base-url", metavar="URL", help="OpenAI-compatible endpoint; without it a server is started")
    add("--api-key-env", metavar="NAME", help="environment variable that holds the endpoint's key")

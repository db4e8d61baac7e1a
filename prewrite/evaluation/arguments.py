"""The command line of `evaluate.py`; imports no heavy library, so that `--help` and faults are told at once."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from prewrite.secrets import ArgumentParser

DEFAULT_TOP_K_OF_A_LOG = 5


def parse_arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line of evaluate.py; argparse's own faults leave with exit code 2."""
    parser = ArgumentParser(
        "evaluate.py",
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
    parser.add_argument(
        "--task",
        metavar="NAME",
        help="`python -m prewrite.tasks` lists them; without it each row is scored on its own dataset_name",
    )
    parser.add_argument(
        "--top-k",
        type=_positive,
        metavar="K",
        help=f"evaluate only the K best (default: {DEFAULT_TOP_K_OF_A_LOG} of a log, 1 of each of its rows where there "
        "are several, all of a list)",
    )
    parser.add_argument("--config", type=Path, metavar="FILE", help="a config, for its task model, data and tasks")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        dest="overrides",
        help="any setting of a config, as task_model.max_tokens=64",
    )
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


def _positive(text: str) -> int:
    if not (text.isdecimal() and len(text) < 10 and int(text)):
        raise argparse.ArgumentTypeError("a whole number, 1 or more, is wanted")
    return int(text)

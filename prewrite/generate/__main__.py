"""Asks a model prompts made from the rows of a data set, and writes what it completes as data for SFT."""

import argparse
import logging
import math
import sys
from collections.abc import Sequence
from pathlib import Path

from prewrite.errors import UserError
from prewrite.evaluation.arguments import add_task_model
from prewrite.generate.planning import SETTINGS
from prewrite.secrets import ArgumentParser, positive
from prewrite.terminal import exit_code, quiet_environment


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code, as `prewrite.terminal.exit_code` says."""
    parsed = _parse(arguments)
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    logging.getLogger("prewrite").setLevel(logging.INFO)
    quiet_environment()
    interrupted = "interrupted; the same command asks only what has no answer yet"
    return exit_code("python -m prewrite.generate", lambda: _generate(parsed), interrupted=interrupted)


def _generate(parsed: argparse.Namespace) -> None:
    from prewrite.generate.command import generate, num_missing, outlook, told
    from prewrite.generate.planning import make_plan

    plan = make_plan(parsed)
    missing = num_missing(plan)
    print(outlook(plan, missing), flush=True)
    if parsed.dry_run:
        return
    hub = None
    if parsed.push_to_hub:
        from prewrite.export.hub import Hub

        hub = Hub(parsed.push_to_hub, kind="dataset", private=not parsed.public)
    outcome = generate(plan, missing)
    print(told(plan, outcome), flush=True)
    if not outcome.num_rows:
        raise UserError(f"no completion became data; {plan.left_out} says why of each")
    if hub is not None:
        from prewrite.generate.card import push

        print(f"pushed: {push(plan, outcome, hub)}")


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = ArgumentParser(
        "python -m prewrite.generate",
        description=str(__doc__),
        epilog="Whatever was answered is kept beside --out, and never asked again: the same command goes on after a "
        "kill, and another --reward, --min-reward or --keep costs no call.",
    )
    rows = parser.add_mutually_exclusive_group(required=True)
    places = "a .jsonl, .csv or .parquet file, a folder of save_to_disk, or a hub name"
    rows.add_argument("--data", metavar="NAME", help=places)
    rest = "the train split of a task, without what a run holds out (data.dev_size)"
    rows.add_argument("--task", metavar="TASK", help=rest)
    add = parser.add_argument
    add("--subset", metavar="NAME", help="of a data set on the hub")
    add("--split", metavar="NAME", help="of a data set on the hub (train)")
    add("--limit", type=positive, metavar="N", help="only the first N rows")
    columns = "the prompt, a Jinja template of the row's columns, as '{{ problem }}'"
    add("--template", required=True, metavar="TEXT|FILE", help=columns)
    add_task_model(parser, "data, tasks and budget")
    add("--num-generations", dest="samples_per_query", type=int, metavar="N", help="completions of each prompt (1)")
    for name, kind in SETTINGS[1:]:
        meaning = f"task_model.{name} (docs/settings.md)"
        add(f"--{name.replace('_', '-')}", type=kind, metavar=name[0].upper(), help=meaning)
    passes = "keep what passes this reward of solving, see `python -m prewrite.rewards`; given again: all"
    add("--reward", action="append", default=[], metavar="NAME", help=passes)
    add("--min-reward", type=_finite, metavar="X", help="the least score that passes, of each (1)")
    add("--keep", choices=("all", "first", "best"), default="all", help="which of a prompt's that pass (all)")
    test = "leave out rows like this task's test rows; may be given again"
    add("--decontaminate", action="append", default=[], metavar="TASK", help=test)
    add("--out", type=Path, default=Path("generated.jsonl"), metavar="FILE", help="(generated.jsonl)")
    add("--push-to-hub", metavar="REPO", help="OWNER/NAME of a data set on the hub; the key is HF_TOKEN")
    add("--public", action="store_true", help="of a data set that is made by --push-to-hub (it is private)")
    add("--dry-run", action="store_true", help="say how many calls it takes, and end")
    parsed = parser.parse_args(arguments)
    if parsed.public and not parsed.push_to_hub:
        parser.error("--public goes with --push-to-hub")
    if not parsed.reward and (parsed.min_reward is not None or parsed.keep == "best"):
        parser.error("--min-reward and --keep best go with --reward")
    if parsed.min_reward is None:
        parsed.min_reward = 1.0
    return parsed


def _finite(text: str) -> float:
    if not math.isfinite(value := float(text)):  # NaN is below nothing, so that everything would pass
        raise argparse.ArgumentTypeError("a finite number is wanted")
    return value


if __name__ == "__main__":
    sys.exit(main())

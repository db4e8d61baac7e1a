"""Asks a model prompts made from the rows of a data set, and writes what it completes as data for SFT."""

import argparse
import logging
import math
import sys
from collections.abc import Sequence
from pathlib import Path

from prewrite.errors import UserError
from prewrite.generate.planning import SETTINGS
from prewrite.secrets import ArgumentParser, positive
from prewrite.terminal import quiet_environment


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code: 0, 2 for a fault of the user's (one message on stderr), 130 after Ctrl-C."""
    parsed = _parse(arguments)
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    logging.getLogger("prewrite").setLevel(logging.INFO)
    quiet_environment()
    try:
        _generate(parsed)
    except UserError as error:
        print(f"python -m prewrite.generate: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        told = "interrupted; the same command asks only what has no answer yet"
        print(f"python -m prewrite.generate: {told}", file=sys.stderr)
        return 130
    return 0


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
    rows.add_argument(
        "--data", metavar="NAME", help="a .jsonl, .csv or .parquet file, a folder of save_to_disk, or a hub name"
    )
    rows.add_argument(
        "--task", metavar="TASK", help="the train split of a task, without what a run holds out (data.dev_size)"
    )
    parser.add_argument("--subset", metavar="NAME", help="of a data set on the hub")
    parser.add_argument("--split", metavar="NAME", help="of a data set on the hub (train)")
    parser.add_argument("--limit", type=positive, metavar="N", help="only the first N rows")
    parser.add_argument(
        "--template",
        required=True,
        metavar="TEXT|FILE",
        help="the prompt, a Jinja template of the row's columns, as '{{ problem }}'",
    )
    parser.add_argument(
        "--config", type=Path, metavar="FILE", help="a config, for its task model, data, tasks and budget"
    )
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", dest="overrides", help="any setting of it"
    )
    parser.add_argument("--model", help="a name that --base-url serves, else a folder or hub name")
    parser.add_argument("--base-url", metavar="URL", help="OpenAI-compatible endpoint; without it a server is started")
    parser.add_argument("--api-key-env", metavar="NAME", help="environment variable that holds the endpoint's key")
    for name, kind in SETTINGS:
        meaning = (
            "completions of each prompt (1)" if name == "num_generations" else f"task_model.{name} (docs/settings.md)"
        )
        parser.add_argument(f"--{name.replace('_', '-')}", type=kind, metavar=name[0].upper(), help=meaning)
    parser.add_argument(
        "--reward",
        action="append",
        default=[],
        metavar="NAME",
        help="keep what passes this reward of solving, see `python -m prewrite.rewards`; given again: all",
    )
    parser.add_argument("--min-reward", type=_finite, metavar="X", help="the least score that passes, of each (1)")
    parser.add_argument(
        "--keep", choices=("all", "first", "best"), default="all", help="which of a prompt's that pass (all)"
    )
    parser.add_argument(
        "--decontaminate",
        action="append",
        default=[],
        metavar="TASK",
        help="leave out rows like this task's test rows; may be given again",
    )
    parser.add_argument("--out", type=Path, default=Path("generated.jsonl"), metavar="FILE", help="(generated.jsonl)")
    parser.add_argument(
        "--push-to-hub", metavar="REPO", help="OWNER/NAME of a data set on the hub; the key is HF_TOKEN"
    )
    parser.add_argument(
        "--public", action="store_true", help="of a data set that is made by --push-to-hub (it is private)"
    )
    parser.add_argument("--dry-run", action="store_true", help="say how many calls it takes, and end")
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

"""Writes a trained rewriter's rewrites of your instructions, for `evaluate.py --prompts`."""

import argparse
import logging
import sys
from collections.abc import Sequence
from pathlib import Path

from prewrite.errors import UserError
from prewrite.secrets import ArgumentParser, positive
from prewrite.terminal import exit_code, quiet_environment


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code, as `prewrite.terminal.exit_code` says."""
    parsed = _parse(arguments)
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    quiet_environment()
    interrupted = "interrupted; nothing was written"
    return exit_code("python -m prewrite.rewrite", lambda: _rewrite(parsed), interrupted=interrupted)


def _rewrite(parsed: argparse.Namespace) -> None:
    from prewrite.rewrite.command import as_jsonl, rewrite, told
    from prewrite.writing import write_whole

    written = rewrite(parsed)
    try:
        write_whole(parsed.out, as_jsonl(written))
    except OSError as error:
        raise UserError(f"{parsed.out} could not be written ({error})") from error
    encoding = sys.stdout.encoding or "utf-8"
    print(told(written).encode(encoding, "backslashreplace").decode(encoding))
    print(f"\nwritten: {parsed.out}")


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = ArgumentParser(
        "python -m prewrite.rewrite",
        description=str(__doc__),
        epilog="The meta-instruction, lengths and temperature are those of --config, else of the run that the "
        "checkpoint lies in, else the defaults. The rewriter is the policy; the task model is not asked.",
    )
    add = parser.add_argument
    add("--rewriter", required=True, metavar="CKPT", help="runs/NAME/checkpoints/step_N, or any model")
    rows = "a .jsonl, .csv or .parquet file with the column `instruction`, or one instruction as it is"
    add("--instructions", required=True, metavar="FILE|TEXT", help=rows)
    add("--samples", type=positive, metavar="K", help="K sampled rewrites each (default: a greedy one)")
    add("--config", type=Path, metavar="FILE", help="a config, for its policy and rollout settings")
    add("--set", action="append", default=[], metavar="key=value", dest="overrides", help="in the config")
    add("--out", type=Path, default=Path("rewrites.jsonl"), metavar="FILE", help="(rewrites.jsonl)")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())

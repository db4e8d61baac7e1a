"""Writes a trained rewriter's rewrites of your instructions, for `evaluate.py --prompts`."""

import argparse
import logging
import sys
from collections.abc import Sequence
from pathlib import Path

from prewrite.errors import UserError
from prewrite.secrets import ArgumentParser, positive
from prewrite.terminal import quiet_environment


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code: 0, 2 for a fault of the user's (one message on stderr), 130 after Ctrl-C."""
    parsed = _parse(arguments)
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    quiet_environment()
    try:
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
    except UserError as error:
        print(f"python -m prewrite.rewrite: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("python -m prewrite.rewrite: interrupted; nothing was written", file=sys.stderr)
        return 130
    return 0


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = ArgumentParser(
        "python -m prewrite.rewrite",
        description=str(__doc__),
        epilog="The meta-instruction, lengths and temperature are those of --config, else of the run that the "
        "checkpoint lies in, else the defaults. The rewriter is the policy; the task model is not asked.",
    )
    parser.add_argument("--rewriter", required=True, metavar="CKPT", help="runs/NAME/checkpoints/step_N, or any model")
    parser.add_argument(
        "--instructions",
        required=True,
        metavar="FILE|TEXT",
        help="a .jsonl, .csv or .parquet file with the column `instruction`, or one instruction as it is",
    )
    parser.add_argument("--samples", type=positive, metavar="K", help="K sampled rewrites each (default: a greedy one)")
    parser.add_argument("--config", type=Path, metavar="FILE", help="a config, for its policy and rollout settings")
    parser.add_argument(
        "--set", action="append", default=[], metavar="key=value", dest="overrides", help="in the config"
    )
    parser.add_argument("--out", type=Path, default=Path("rewrites.jsonl"), metavar="FILE", help="(rewrites.jsonl)")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())

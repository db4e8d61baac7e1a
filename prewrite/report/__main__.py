"""Writes the report of a run folder, or a comparison of several."""

import sys
from collections.abc import Sequence
from pathlib import Path

from prewrite.errors import UserError
from prewrite.report.page import write_report
from prewrite.secrets import ArgumentParser


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code: 0, or 2 for a fault of the user's."""
    parser = ArgumentParser("python -m prewrite.report", description=str(__doc__))
    parser.add_argument("folders", nargs="+", type=Path, metavar="FOLDER", help="a run folder")
    help_out = "the page (default: report.html in the run folder; of several runs, comparison.html beside the first)"
    parser.add_argument("--out", type=Path, metavar="FILE", help=help_out)
    parsed = parser.parse_args(arguments)
    try:
        print(f"written: {write_report(parsed.folders, parsed.out)}")
    except UserError as error:
        print(f"prewrite.report: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())

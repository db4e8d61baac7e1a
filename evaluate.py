"""Scores instructions, or a model, on a task's test split: `python evaluate.py --help`."""

import argparse
import json
import logging
import sys
from collections.abc import Sequence

from prewrite.errors import UserError
from prewrite.evaluation.arguments import parse_arguments
from prewrite.terminal import exit_code, quiet_environment


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code, as `prewrite.terminal.exit_code` says."""
    parsed = parse_arguments(arguments)
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    logging.getLogger("prewrite").setLevel(logging.INFO)
    quiet_environment()
    interrupted = "interrupted; the same command asks only what has no answer yet"
    return exit_code("evaluate.py", lambda: _evaluate(parsed), interrupted=interrupted)


def _evaluate(parsed: argparse.Namespace) -> None:
    # Here, since torch takes seconds to import: a Ctrl-C meanwhile ends as quietly as a later one.
    from prewrite.evaluation.command import carry_out
    from prewrite.evaluation.planning import make_plan
    from prewrite.writing import write_whole

    if parsed.rewriter is not None and len(parsed.prompts) != 1:
        raise UserError("--rewriter rewrites the instructions of one list: give one file with --prompts")
    plan = make_plan(parsed, will_be_rewritten=parsed.rewriter is not None)
    if parsed.rewriter is not None:
        from prewrite.rewrite.command import rewrite_prompts

        parsed.prompts = [rewrite_prompts(parsed.rewriter, parsed.prompts[0])]
        plan = make_plan(parsed)
    for report, out in carry_out(plan):
        try:  # written first: it was paid for, and a closed pipe or a letter the terminal lacks ends a print
            write_whole(out, json.dumps(report.as_json(), indent=1, ensure_ascii=False) + "\n")
        except OSError as error:
            raise UserError(f"{out} could not be written ({error}); the report is above, on stdout") from error
        finally:
            encoding = sys.stdout.encoding or "utf-8"
            print(report.text().encode(encoding, "backslashreplace").decode(encoding))
        print(f"\nwritten: {out}")


if __name__ == "__main__":
    sys.exit(main())

"""Scores a run's best rewrites, or any instructions, on a task's test split: `python evaluate.py --help`."""

import json
import logging
import sys
from collections.abc import Sequence

from prewrite.errors import UserError
from prewrite.evaluation.arguments import parse_arguments
from prewrite.terminal import quiet_environment


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code: 0, 2 for a fault of the user's (one message on stderr), 130 after Ctrl-C."""
    parsed = parse_arguments(arguments)
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    logging.getLogger("prewrite").setLevel(logging.INFO)
    quiet_environment()
    try:
        # Here, since torch takes seconds to import: a Ctrl-C meanwhile ends as quietly as a later one.
        from prewrite.evaluation.command import evaluate_prompts
        from prewrite.reporting.journal import write_whole

        report, out = evaluate_prompts(parsed)
        try:  # written first: it was paid for, and a closed pipe or a letter the terminal lacks ends a print
            write_whole(out, json.dumps(report.as_json(), indent=1, ensure_ascii=False) + "\n")
        except OSError as error:
            raise UserError(f"{out} could not be written ({error}); the report is above, on stdout") from error
        finally:
            encoding = sys.stdout.encoding or "utf-8"
            print(report.text().encode(encoding, "backslashreplace").decode(encoding))
    except UserError as error:
        print(f"evaluate.py: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("evaluate.py: interrupted; nothing was written", file=sys.stderr)
        return 130
    print(f"\nwritten: {out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

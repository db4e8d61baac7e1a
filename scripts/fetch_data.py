"""Writes the local files of tasks from the hub, to be taken to a machine without it.

PYTHONPATH=. python scripts/fetch_data.py sst2 math-500 --folder data
"""

import argparse
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from prewrite.config.loading import load_config
from prewrite.errors import UserError
from prewrite.tasks import get_task
from prewrite.tasks.fetch import fetch
from prewrite.tasks.own import task_from_settings


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code: 0, or 2 with one message on stderr."""
    parser = argparse.ArgumentParser("fetch_data.py", description=str(__doc__).partition("\n")[0])
    parser.add_argument("tasks", nargs="+", metavar="TASK", help="names; `python -m prewrite.tasks` lists them")
    parser.add_argument("--config", type=Path, metavar="FILE", help="a config, whose custom_tasks can be named too")
    parser.add_argument(
        "--folder",
        type=Path,
        default=Path(os.environ.get("PREWRITE_DATA") or "data"),
        help="where to; data.local_dir or PREWRITE_DATA then names it (default: PREWRITE_DATA, else data)",
    )
    given = parser.parse_args(arguments)
    logging.basicConfig(format="%(message)s")
    try:
        settings = load_config(given.config).custom_tasks if given.config else []
        own = [task_from_settings(one) for one in settings]
        for task in [get_task(name, own) for name in given.tasks]:
            for line in fetch(task, given.folder):
                print(line, flush=True)
    except (UserError, OSError) as error:
        print(f"fetch_data.py: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())

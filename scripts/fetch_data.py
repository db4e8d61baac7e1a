"""Writes the local files of tasks from the hub, to be taken to a machine without it.

PYTHONPATH=. python scripts/fetch_data.py sst2 math-500 --folder data
"""

import argparse
import json
import logging
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from prewrite.config.loading import load_config
from prewrite.errors import UserError
from prewrite.tasks import get_task
from prewrite.tasks.base import HubSplit, Source, Task
from prewrite.tasks.loading import hub_rows
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


def fetch(task: Task, folder: Path) -> Iterator[str]:
    """Writes the files that the task reads from a data folder; a line for each. One that is there is left as it is.

    A file that train and test share holds the test's split. Raises UserError where the hub cannot be read, and OSError.
    """
    sources = {file: source for source in (task.train, task.test) for file in source.files}
    for file, source in sources.items():
        if source.folder is not None:
            yield f"{task.name}: {source.folder / file} is a local file already"
        elif (folder / file).exists():
            yield f"{task.name}: {folder / file} is there, and left as it is"
        else:
            splits = source.hub if len(source.files) == 1 else (source.hub[source.files.index(file)],)
            yield f"{task.name}: {folder / file}, {_write(folder / file, task, source, splits)} rows"


def _write(path: Path, task: Task, source: Source, splits: Iterable[HubSplit]) -> int:
    """As the hub has them where the files' reader is the hub's, else with the task's columns."""
    rows = [row for split in splits for row in hub_rows(task, source, split)]
    if source.read_file is not source.read_hub:
        rows = [columns for row in rows if (columns := source.read_hub(row)) is not None]
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f"{path.name}.part")
    with draft.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(json.dumps(dict(row), default=str) + "\n" for row in rows)
    os.replace(draft, path)
    return len(rows)


if __name__ == "__main__":
    sys.exit(main())

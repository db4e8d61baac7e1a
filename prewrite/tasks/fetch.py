"""The local files of a task, written from the hub: for machines that cannot reach it."""

import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from prewrite.tasks.base import HubSplit, Source, Task
from prewrite.tasks.loading import hub_rows


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

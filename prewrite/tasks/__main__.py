"""Lists the tasks, or checks a config's own:  python -m prewrite.tasks [--check CONFIG [--set key=value ...]]"""

import logging
import sys
from collections.abc import Sequence

from prewrite.config.loading import load_config
from prewrite.errors import UserError
from prewrite.secrets import ArgumentParser
from prewrite.tasks import TASKS
from prewrite.tasks.base import Source
from prewrite.tasks.check import check
from prewrite.terminal import table_lines


def _origin(source: Source) -> str:
    if source.folder is not None:
        return "embedded"
    return " + ".join(dict.fromkeys(f"{part.dataset}:{part.split}" for part in source.hub))


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit codes: 0, and 2 where there are faults, all told at once."""
    parser = ArgumentParser("python -m prewrite.tasks", description=str(__doc__))
    parser.add_argument("--check", metavar="CONFIG", help="read all data that a run with this config would, and tell")
    parser.add_argument("--set", action="append", default=[], metavar="key=value", dest="overrides")
    parsed = parser.parse_args(arguments)
    if parsed.check is None:
        print_table()
        return 0
    warned: set[str] = set()
    handler = logging.StreamHandler()
    handler.addFilter(lambda record: not (record.getMessage() in warned or warned.add(record.getMessage())))
    logging.getLogger("prewrite").addHandler(handler)
    try:
        told, faults = check(load_config(parsed.check, parsed.overrides))
    except UserError as error:
        told, faults = [], [str(error)]
    finally:
        logging.getLogger("prewrite").removeHandler(handler)
    print("\n".join(told))
    if faults:
        print("python -m prewrite.tasks: " + "\n".join(faults), file=sys.stderr)
    return 2 if faults else 0


def print_table() -> None:
    """A line a task."""
    header = ("task", "kind", "labels", "train and dev (hub)", "test", "local files", "licence")
    rows: list[tuple[str, ...]] = [header]
    for task in TASKS.values():
        labels, files = ", ".join(task.labels) or "-", ", ".join(dict.fromkeys((*task.train.files, *task.test.files)))
        rows.append((task.name, task.kind, labels, _origin(task.train), task.test.label, files, task.licence))
    print("\n".join(table_lines(rows)))


if __name__ == "__main__":
    sys.exit(main())

"""Prints the table of tasks."""

from prewrite.tasks import TASKS
from prewrite.tasks.base import Source


def _origin(source: Source) -> str:
    if source.folder is not None:
        return "embedded"
    return " + ".join(dict.fromkeys(f"{part.dataset}:{part.split}" for part in source.hub))


def main() -> None:
    """The command `python -m prewrite.tasks`."""
    header = ("task", "kind", "labels", "train and dev (hub)", "test", "local files", "licence")
    rows = [header] + [
        (
            task.name,
            task.kind,
            ", ".join(task.labels) or "-",
            _origin(task.train),
            task.test.label,
            ", ".join(dict.fromkeys((*task.train.files, *task.test.files))),
            task.licence,
        )
        for task in TASKS.values()
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(len(header))]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


if __name__ == "__main__":
    main()

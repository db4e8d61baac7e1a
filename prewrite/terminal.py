"""What stands on the console beside a run's own lines: one kind of progress bar, and libraries that keep quiet."""

import os
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from prewrite.errors import UserError

if TYPE_CHECKING:
    from tqdm import tqdm


def progress_bar(total: int, unit: str, *, title: str | None = None, leave: bool = True) -> "tqdm[Any]":
    """A bar on stderr; none where that is no terminal, so that a log never fills, or where nothing is to be done.

    leave: whether it stays at the end.
    """
    from tqdm import tqdm  # here, since it reads the environment when it is imported

    hidden = not (total and sys.stderr.isatty())
    return tqdm(total=total, unit=unit, desc=title, leave=leave, disable=hidden, file=sys.stderr, dynamic_ncols=True)


def table_lines(table: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a table, its head first, with columns as wide as their widest cell."""
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in table]


def exit_code(prog: str, work: Callable[[], None], *, interrupted: str) -> int:
    """Of a command: 0, 2 for a fault of the user's (one message on stderr), 130 after Ctrl-C."""
    try:
        work()
    except UserError as error:
        print(f"{prog}: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"{prog}: {interrupted}", file=sys.stderr)
        return 130
    return 0


def quiet_environment() -> None:
    """What libraries read from the environment; call it before they are imported. Processes started here inherit it."""
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # else the CPU engine tells its NUMA binding as a warning
    if not sys.stderr.isatty():
        os.environ["TQDM_DISABLE"] = "1"

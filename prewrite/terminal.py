"""What stands on the console beside a run's own lines: one kind of progress bar, and libraries that keep quiet."""

import os
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tqdm import tqdm


def progress_bar(total: int, unit: str, *, title: str | None = None, leave: bool = True) -> "tqdm[Any]":
    """A bar on stderr; none where that is no terminal, so that a log never fills, or where nothing is to be done.

    leave: whether it stays at the end.
    """
    from tqdm import tqdm  # here, since it reads the environment when it is imported

    hidden = not (total and sys.stderr.isatty())
    return tqdm(total=total, unit=unit, desc=title, leave=leave, disable=hidden, file=sys.stderr, dynamic_ncols=True)


def quiet_environment() -> None:
    """What libraries read from the environment; call it before they are imported. Processes started here inherit it."""
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # else the CPU engine tells its NUMA binding as a warning
    if not sys.stderr.isatty():
        os.environ["TQDM_DISABLE"] = "1"

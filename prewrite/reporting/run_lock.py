"""One run at a time in a run folder."""

import contextlib
import fcntl
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

from prewrite.errors import UserError

OUTLIVED = 30  # seconds that a rank may outlive its launcher


@contextlib.contextmanager
def only_run_in(folder: Path, patience: int = 0) -> Iterator[None]:
    """Keeps every other run out of the folder until the block ends. Raises UserError where another one is in it.

    patience: seconds to wait for its end.

    The lock is on `.NAME.lock` beside the folder, which a start may rename, and that file stays. It is a record lock:
    the process's own, so that it goes with it, also by SIGKILL, and no child or fork that lives longer holds it. (It
    would go as well if this process opened and closed the file a second time.) Where the file system knows no locks,
    the run goes on.
    """
    path = folder.with_name(f".{folder.name}.lock")
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):  # who can make no file there is told so by the journal
            path.parent.mkdir(parents=True, exist_ok=True)
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            stack.callback(os.close, file)
            _lock(file, folder, patience)
            os.ftruncate(file, 0)
            os.pwrite(file, f"process {os.getpid()} on host {socket.gethostname()}".encode(), 0)
        yield


def _lock(file: int, folder: Path, patience: int) -> None:
    for seconds_left in range(patience, -1, -1):
        try:
            return fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError) as error:  # as POSIX leaves it to the system
            who = os.pread(file, 300, 0).decode("utf-8", "replace")
            fault = f"run folder {folder}: another run{who and f' ({who})'} writes to it"
            if not seconds_left:
                raise UserError(f"{fault}: wait for it, end it, or give another name (--set run_name=...)") from error
            if seconds_left == patience:
                print(f"{fault}; waiting {patience} seconds for its end", flush=True)
        time.sleep(1)

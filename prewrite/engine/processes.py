"""Child processes that never outlive their parent, whichever way it goes: exit, exception, Ctrl-C, SIGTERM, SIGKILL.
And ranks that do not outlive their launcher.

`start_guarded` puts a small guard between the parent and the command. Guard, command and all its descendants form a
session of their own: the terminal's Ctrl-C does not reach them, and one look at /proc finds them all. The guard looks
twice a second whether its parent still lives. (PR_SET_PDEATHSIG would fire when the starting *thread* ends, and is not
inherited by grandchildren; the end of a pipe is not seen while any forked worker of the parent holds it open.)

This file also is the guard's program, so it imports the standard library alone.
"""

import contextlib
import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

_GRACE_SECONDS = 15.0
_POLL_SECONDS = 0.5
_LAUNCHERS = {"torchrun", "torch.distributed.run", "deepspeed", "deepspeed.launcher.launch"}  # programs or modules


def start_guarded(
    command: Sequence[str], *, env: Mapping[str, str], log: IO[bytes], grace: float = _GRACE_SECONDS
) -> "subprocess.Popen[bytes]":
    """Starts the command under a guard, which exits with its code (128 + a signal's number); all output goes to `log`.

    grace: seconds that the command, and then whatever outlives it, has for cleaning up before SIGKILL.
    """
    guard = [sys.executable, "-I", str(Path(__file__).resolve()), str(os.getpid()), str(grace), *command]
    return subprocess.Popen(
        guard, env=dict(env), stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
    )


def end_guarded(guard: "subprocess.Popen[bytes]") -> None:
    """Ends the command and all its descendants: by SIGTERM, and after the grace by SIGKILL. Safe to call twice."""
    if guard.poll() is None:
        guard.terminate()
        guard.wait()
    if guard.returncode < 0:  # the guard itself was killed, and has left its session behind
        _end_session(guard.pid, _GRACE_SECONDS)


def end_with_launcher() -> None:
    """From now on this process ends when a launcher above it dies, by whichever way; nothing where it has none.

    A launcher that was killed by SIGKILL has not ended its ranks: they would go on and hold their GPUs, seen by nobody.
    """
    line = [os.getpid()]
    while (above := _parent(line[-1])) and _is_launcher(above):
        line.append(above)
    if len(line) > 1:
        threading.Thread(target=_watch, args=(line,), name="launcher watch", daemon=True).start()


def _watch(line: Sequence[int]) -> None:
    """line: this process, its parent, and so on."""
    while all(_parent(pid) == above for pid, above in itertools.pairwise(line)):
        time.sleep(_POLL_SECONDS)
    if signal.getsignal(signal.SIGTERM) != signal.SIG_IGN:  # else it is on its way out, after a Ctrl-C that both had
        with contextlib.suppress(OSError):  # nobody may be left who reads it
            rank = os.environ.get("RANK", "0")
            print(f"the launcher of rank {rank} has died, and the rank ends with it", file=sys.stderr, flush=True)
        os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(_GRACE_SECONDS)
    os.kill(os.getpid(), signal.SIGKILL)  # it waits for other ranks, where no handler runs


def _parent(pid: int) -> int | None:
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return None


def _is_launcher(pid: int) -> bool:
    with contextlib.suppress(OSError):
        words = Path(f"/proc/{pid}/cmdline").read_text(errors="replace").split("\0")
        return any(word.rpartition("/")[2] in _LAUNCHERS for word in words)
    return False


def _guard(parent: int, grace: float, command: Sequence[str]) -> None:
    asked_to_end = False

    def ask_to_end(signum: int, frame: object) -> None:
        nonlocal asked_to_end
        asked_to_end = True

    signal.signal(signal.SIGTERM, ask_to_end)
    child = subprocess.Popen(command)
    while child.poll() is None and not asked_to_end and os.getppid() == parent:
        _wait(child, _POLL_SECONDS)
    if child.poll() is None:
        child.terminate()
        _wait(child, grace)
    code = child.poll()
    _end_session(os.getsid(0), grace)
    if code is None:
        code = 1
    sys.exit(code if code >= 0 else 128 - code)  # Popen gives a signal as its negative number


def _end_session(session: int, grace: float) -> None:
    """SIGTERM to the others of the session, then SIGKILL to what is left, which then frees no shared memory."""
    _signal(_session_members(session), signal.SIGTERM)
    deadline = time.monotonic() + grace
    while members := _session_members(session):
        if time.monotonic() > deadline:
            _signal(members, signal.SIGKILL)
        time.sleep(0.05)


def _signal(members: Sequence[int], signum: signal.Signals) -> None:
    for pid in members:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signum)


def _wait(child: "subprocess.Popen[bytes]", seconds: float) -> None:
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(seconds)


def _session_members(session: int) -> list[int]:
    """Every other process of the session, zombies left out."""
    members = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            state, _, _, its_session = (folder / "stat").read_text().rpartition(")")[2].split()[:4]
            if int(its_session) == session and state != "Z" and int(folder.name) != os.getpid():
                members.append(int(folder.name))
    return members


if __name__ == "__main__":
    _guard(int(sys.argv[1]), float(sys.argv[2]), sys.argv[3:])

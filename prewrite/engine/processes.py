"""Child processes that never outlive their parent, whichever way it goes: exit, exception, Ctrl-C, SIGTERM, SIGKILL.
And ranks that do not outlive their launcher.

`start_guarded` puts a small guard beside the command. Guard, command and all its descendants form a session of their
own: the terminal's Ctrl-C does not reach them, and one look at /proc finds them all. The guard is no child of ours: a
launcher that ends its ranks sends SIGTERM to all their descendants, and what a rank has started must live until the
rank is done with its last step. It looks twice a second whether the process that started it still lives.
(PR_SET_PDEATHSIG would fire when the starting *thread* ends, and is not inherited by grandchildren; the end of a pipe
is not seen while any forked worker of ours holds it open.)

This file also is the guard's program, so it imports the standard library alone.
"""

import contextlib
import itertools
import os
import select
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


class Guard:
    """A guard that runs; its methods are those of `subprocess.Popen`. pid: also its session's."""

    def __init__(self, reports: int):
        self._reports = reports  # the end of a pipe whose other end the guard alone holds
        self._said = b""
        while not self._said.endswith(b"\n"):
            if not (part := os.read(reports, 1)):
                raise RuntimeError("the guard of a command ended before it began; its error stands in the log")
            self._said += part
        self.pid, self._said = int(self._said), b""
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """The command's exit code once all is ended; None before. -9: the guard was killed."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self.wait(0)
        return None

    def wait(self, timeout: float | None = None) -> int:
        """The same, once it is known. Raises subprocess.TimeoutExpired."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while self.returncode is None:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            if not select.select([self._reports], [], [], left)[0]:
                raise subprocess.TimeoutExpired("the guarded command", timeout or 0.0)
            if part := os.read(self._reports, 64):
                self._said += part
            else:
                self.returncode = int(self._said or -signal.SIGKILL)
                os.close(self._reports)
        return self.returncode


def start_guarded(
    command: Sequence[str], *, env: Mapping[str, str], log: IO[bytes], grace: float = _GRACE_SECONDS
) -> Guard:
    """Starts the command under a guard, which exits with its code (128 + a signal's number); all output goes to `log`.

    grace: seconds that the command, and then whatever outlives it, has for cleaning up before SIGKILL.
    """
    reports, for_guard = os.pipe()
    program = [sys.executable, "-I", str(Path(__file__).resolve()), str(os.getpid()), str(grace), str(for_guard)]
    starter = subprocess.Popen(
        [*program, *command],
        env=dict(env),
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        pass_fds=[for_guard],
    )
    os.close(for_guard)
    starter.wait()
    return Guard(reports)


def end_guarded(guard: Guard) -> None:
    """Ends the command and all its descendants: by SIGTERM, and after the grace by SIGKILL. Safe to call twice."""
    if guard.poll() is None:
        _signal([guard.pid], signal.SIGTERM)
    if guard.wait() < 0:  # the guard itself was killed, and has left its session behind
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


def _stat(pid: int) -> list[str] | None:
    """State, parent, group, session and more of a process, as proc(5) has them behind its name; None: it is gone."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return None


def _parent(pid: int) -> int | None:
    return int(stat[1]) if (stat := _stat(pid)) else None


def _birth(pid: int) -> str | None:
    """When a process started, in the kernel's ticks; None where it has ended: a number is given to others again."""
    return stat[19] if (stat := _stat(pid)) and stat[0] not in "ZX" else None


def _is_launcher(pid: int) -> bool:
    with contextlib.suppress(OSError):
        words = Path(f"/proc/{pid}/cmdline").read_text(errors="replace").split("\0")
        return any(word.rpartition("/")[2] in _LAUNCHERS for word in words)
    return False


def _guard(parent: int, grace: float, reports: int, command: Sequence[str]) -> None:
    born = _birth(parent)
    if os.fork():
        os._exit(0)  # so that the guard is nobody's child
    os.setsid()
    os.set_inheritable(reports, False)
    os.write(reports, f"{os.getpid()}\n".encode())
    asked_to_end: list[int] = []
    signal.signal(signal.SIGTERM, lambda signum, _: asked_to_end.append(signum))
    child = subprocess.Popen(command)
    while child.poll() is None and not asked_to_end and born is not None and _birth(parent) == born:
        _wait(child, _POLL_SECONDS)
    if child.poll() is None:
        child.terminate()
        _wait(child, grace)
    code = child.poll()
    _end_session(os.getsid(0), grace)
    code = 1 if code is None else code
    os.write(reports, str(code if code >= 0 else 128 - code).encode())  # Popen gives a signal as its negative number


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
    others = {int(folder.name) for folder in Path("/proc").glob("[0-9]*")} - {os.getpid()}
    return [pid for pid in others if (stat := _stat(pid)) and int(stat[3]) == session and stat[0] != "Z"]


if __name__ == "__main__":
    _guard(int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3]), sys.argv[4:])

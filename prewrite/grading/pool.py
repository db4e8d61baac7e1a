"""Worker processes that no answer can hang, fill up or end for good.

A worker is a fresh Python program (`worker.main`) on two pipes, not a fork of this process: the trainer holds CUDA,
NCCL and vLLM threads that a fork would break, and a spawned `multiprocessing` child would import the user's main
script. It gets one job at a time. One that passes its deadline is killed and replaced; nothing else is lost.

Jobs run in two rounds: a short deadline first, so that a batch of hostile answers cannot keep honest ones waiting, then
those that passed it again with a long one, as far as the budget lasts.
"""

import atexit
import enum
import json
import logging
import os
import queue
import select
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

FIRST_DEADLINE_S = 0.4
LAST_DEADLINE_S = 5.0
START_DEADLINE_S = 120.0
MAX_WORKERS = 8

_READY = b"ready\n"
_PACKAGE_ROOT = str(Path(__file__).resolve().parents[2])
_PROGRAM = "import sys; sys.path.append(sys.argv[1]); from prewrite.grading.worker import main; main(float(sys.argv[2]))"
_log = logging.getLogger(__name__)

Job = tuple[str, tuple[str, ...]]
"""(gold, answers of which one has to be right)"""


class Failure(enum.Enum):
    TIMED_OUT = enum.auto()
    DIED = enum.auto()
    NOT_REACHED = enum.auto()


Outcome = bool | None | Failure


class _Worker:
    """One worker process; used by one thread at a time."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[bytes] | None = None

    def ask(self, job: Job, deadline_s: float) -> Outcome:
        """The verdict on a job, or why there is none; then the next job gets a new process."""
        self.start()
        assert self.process is not None and self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps(job).encode() + b"\n")
            self.process.stdin.flush()
            reply = self._read_line(deadline_s)
        except BrokenPipeError:
            reply = Failure.DIED
        if isinstance(reply, Failure):
            self.kill()
            return reply
        return json.loads(reply)

    def start(self) -> None:
        if self.process is not None and self.process.poll() is None:
            return
        command = [sys.executable, "-P", "-c", _PROGRAM, _PACKAGE_ROOT, str(2 * LAST_DEADLINE_S)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        if self._read_line(START_DEADLINE_S) != _READY:
            self.kill()
            raise RuntimeError("A grading worker process did not start; its own error message stands above.")

    def kill(self) -> None:
        if self.process is None:
            return
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            try:
                pipe.close()
            except BrokenPipeError:
                pass
        self.process = None

    def _read_line(self, deadline_s: float) -> bytes | Failure:
        assert self.process is not None and self.process.stdout is not None
        descriptor = self.process.stdout.fileno()
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        end, line = time.monotonic() + deadline_s, b""
        while not line.endswith(b"\n"):
            if not poll.poll(max(0.0, end - time.monotonic()) * 1000):
                return Failure.TIMED_OUT
            received = os.read(descriptor, 4096)
            if not received:
                return Failure.DIED
            line += received
        return line


class WorkerPool:
    """size: worker processes, each asked by one thread of this process at a time; they start with the first job."""

    def __init__(self, size: int) -> None:
        self._workers = [_Worker() for _ in range(size)]
        self._idle: queue.SimpleQueue[_Worker] = queue.SimpleQueue()
        self._threads = ThreadPoolExecutor(size, thread_name_prefix="grading")
        self._starting = threading.Lock()
        self._started = False

    def grade(self, jobs: list[Job], budget_s: float) -> list[bool | None]:
        """The verdicts on the jobs: False for one that passed its last deadline, None for one that was not reached."""
        self._start()
        end = time.monotonic() + budget_s
        outcomes = self._round(jobs, FIRST_DEADLINE_S, end)
        late = [index for index, outcome in enumerate(outcomes) if outcome is Failure.TIMED_OUT]
        for index, outcome in zip(late, self._round([jobs[i] for i in late], LAST_DEADLINE_S, end), strict=True):
            outcomes[index] = outcome
        return [self._verdict(job, outcome) for job, outcome in zip(jobs, outcomes, strict=True)]

    def close(self) -> None:
        self._threads.shutdown(wait=True, cancel_futures=True)
        for worker in self._workers:
            worker.kill()

    def _start(self) -> None:
        with self._starting:
            if not self._started:
                list(self._threads.map(_Worker.start, self._workers))
                for worker in self._workers:
                    self._idle.put(worker)
                self._started = True

    def _round(self, jobs: list[Job], deadline_s: float, end: float) -> list[Outcome]:
        def ask(job: Job) -> Outcome:
            if time.monotonic() > end:
                return Failure.NOT_REACHED
            worker = self._idle.get()
            try:
                return worker.ask(job, deadline_s)
            finally:
                self._idle.put(worker)

        return list(self._threads.map(ask, jobs))

    def _verdict(self, job: Job, outcome: Outcome) -> bool | None:
        if outcome is Failure.DIED:
            _log.warning("A grading worker died on the gold %r with the answers %r: no verdict.", *job)
        if isinstance(outcome, Failure):
            return False if outcome is Failure.TIMED_OUT else None
        return outcome


_shared: WorkerPool | None = None
_sharing = threading.Lock()


def shared_pool() -> WorkerPool:
    """The pool of this process, made at the first call and ended with the process."""
    global _shared
    with _sharing:
        if _shared is None:
            _shared = WorkerPool(min(MAX_WORKERS, len(os.sched_getaffinity(0))))
            atexit.register(_shared.close)
        return _shared


def _forget_pool() -> None:
    """A forked child has neither the threads nor the right to the pipes of its parent's pool."""
    global _shared, _sharing
    _shared, _sharing = None, threading.Lock()


os.register_at_fork(after_in_child=_forget_pool)

"""Worker processes that no answer can hang, fill up or end for good.

A worker is a fresh Python program (`worker.main`) on two pipes, not a fork of this process: the trainer holds CUDA,
NCCL and vLLM threads that a fork would break, and a spawned `multiprocessing` child would import the user's main
script. It gets one job at a time; one that uses up its processor time ends with it, and a new one takes its place.

Jobs run in two rounds: a short limit first, so that a batch of hostile answers cannot keep honest ones waiting, then
those that passed it again with a long one, as far as the budget lasts.
"""

import atexit
import json
import logging
import os
import queue
import select
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Literal

FIRST_PROCESSOR_S = 0.4
LAST_PROCESSOR_S = 1.0
START_DEADLINE_S = 120.0
MAX_WORKERS = 8

_READY = b"ready\n"
_PACKAGE_ROOT = str(Path(__file__).resolve().parents[2])
_PROGRAM = "import sys; sys.path.append(sys.argv[1]); from prewrite.grading.worker import main; main()"
_log = logging.getLogger(__name__)

Job = tuple[str, tuple[str, ...]]
"""(gold, answers of which one has to be right)"""


Outcome = bool | None | Literal["too slow", "died", "not reached"]
"""A worker's verdict, or why it has none."""


class _Worker:
    """One worker process; used by one thread at a time."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[bytes] | None = None

    def ask(self, job: Job, processor_s: float, end: float) -> Outcome:
        """The verdict on a job, or why there is none; then the next job gets a new process.

        end: the time (monotonic) at which the batch's budget is spent.
        """
        process = self.start()
        assert process.stdin is not None
        line = None
        with suppress(BrokenPipeError):
            process.stdin.write(json.dumps((*job, processor_s)).encode() + b"\n")
            process.stdin.flush()
            line = self._read_line(end)
        if line:
            return json.loads(line)
        exit_code = process.wait() if line == b"" else None
        self.kill()
        if line is None:
            return "not reached"
        return "too slow" if exit_code == -signal.SIGPROF else "died"

    def start(self) -> "subprocess.Popen[bytes]":
        if self.process is not None and self.process.poll() is None:
            return self.process
        self.kill()
        command = [sys.executable, "-P", "-c", _PROGRAM, _PACKAGE_ROOT]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        if self._read_line(time.monotonic() + START_DEADLINE_S) != _READY:
            self.kill()
            raise RuntimeError("A grading worker process did not start; its own error message stands above.")
        return self.process

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            with suppress(BrokenPipeError), self.process:
                pass  # leaving the block closes its pipes and waits for it
            self.process = None

    def _read_line(self, end: float) -> bytes | None:
        """One line, b"" if the process ended without one, None if `end` came first."""
        assert self.process is not None
        assert self.process.stdout is not None
        descriptor = self.process.stdout.fileno()
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        line = b""
        while not line.endswith(b"\n"):
            if not poll.poll(max(0.0, end - time.monotonic()) * 1000):
                return None
            if not (received := os.read(descriptor, 4096)):
                return b""
            line += received
        return line


class WorkerPool:
    """size: worker processes, each asked by one thread of this process at a time; they start with the first job."""

    def __init__(self, size: int) -> None:
        self._workers = [_Worker() for _ in range(size)]
        self._idle: queue.SimpleQueue[_Worker] = queue.SimpleQueue()
        for worker in self._workers:
            self._idle.put(worker)
        self._threads = ThreadPoolExecutor(size, thread_name_prefix="grading")
        self._starting = threading.Lock()
        self._started = False

    def grade(self, jobs: list[Job], budget_s: float) -> list[bool | None]:
        """The verdicts on the jobs: False for one that is too slow to grade, None for one that was not reached."""
        with self._starting:
            if not self._started:
                list(self._threads.map(_Worker.start, self._workers))
                self._started = True
        end = time.monotonic() + budget_s
        outcomes = self._round(jobs, FIRST_PROCESSOR_S, end)
        slow = [index for index, outcome in enumerate(outcomes) if outcome == "too slow"]
        for index, outcome in zip(slow, self._round([jobs[i] for i in slow], LAST_PROCESSOR_S, end), strict=True):
            outcomes[index] = outcome if outcome != "not reached" else "too slow"
        return [self._verdict(job, outcome) for job, outcome in zip(jobs, outcomes, strict=True)]

    def close(self) -> None:
        self._threads.shutdown(wait=True, cancel_futures=True)
        for worker in self._workers:
            worker.kill()

    def _round(self, jobs: list[Job], processor_s: float, end: float) -> list[Outcome]:
        def ask(job: Job) -> Outcome:
            worker = self._idle.get()
            try:
                return worker.ask(job, processor_s, end) if time.monotonic() < end else "not reached"
            finally:
                self._idle.put(worker)

        return list(self._threads.map(ask, jobs))

    def _verdict(self, job: Job, outcome: Outcome) -> bool | None:
        if outcome == "died":
            _log.warning("A grading worker died on the gold %.200r with the answers %.200r: no verdict.", *job)
        if isinstance(outcome, str):
            return False if outcome == "too slow" else None
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

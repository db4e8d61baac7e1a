"""Programs that start with their libraries loaded: forks of one process that has imported them once.

Importing torch, transformers, DeepSpeed and vLLM is most of a small run's work. What a program of ours does, says and
ends with is its own, also by signals. Where the start itself, a launcher or the order of imports is what a test is
about, it takes `tests.launching.start`.
"""

import atexit
import gc
import multiprocessing
import os
import runpy
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import torch

from prewrite.engine.distributed import free_port
from prewrite.terminal import quiet_environment
from tests.launching import ROOT, Running, launched, own_environment, start

LIBRARIES = (
    *("prewrite.training.run", "prewrite.report.page", "vllm.entrypoints.llm"),
    *("vllm.v1.worker.cpu_worker", "vllm.model_executor.models.llama"),  # vLLM imports them when an engine starts
)
quiet_environment()  # the one process that is forked inherits it, and a run of ours would have called it by then
forks = multiprocessing.get_context("forkserver")
forks.set_forkserver_preload([*LIBRARIES])
ranks_of = multiprocessing.get_context("fork")


class Loaded:
    """A program that runs; its members are those of `subprocess.Popen`. pid: also its process group's."""

    libraries_are_there = False

    def __init__(self, arguments: Sequence[str], ranks: int, environment: dict[str, str]):
        self.args = arguments
        self._output = tempfile.TemporaryDirectory()
        self._process = forks.Process(target=_launch, args=(arguments, ranks, environment, self._output.name))
        self._process.start()
        Loaded.libraries_are_there = True
        assert self._process.pid is not None
        self.pid: int = self._process.pid
        atexit.register(self._end)

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self) -> int | None:
        return self._process.exitcode

    def send_signal(self, signum: int) -> None:
        os.kill(self.pid, signum)

    def _end(self) -> None:
        """What a test that failed has left would hold up the end of pytest, which waits for it."""
        if self.returncode is None:
            os.killpg(self.pid, signal.SIGKILL)

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """(stdout, stderr), once it has ended. Raises subprocess.TimeoutExpired."""
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired(list(self.args), timeout or 0.0)
        return tuple(Path(self._output.name, name).read_text("utf-8") for name in ("stdout", "stderr"))


def start_loaded(*arguments: str, ranks: int = 1, **environment: str) -> Running:
    """As `start` with python and the arguments ("train.py", ... or "-m", a module, ...), or as `launched`.

    CUDA does not live through a fork: with a GPU it is those.
    """
    if torch.cuda.is_available():
        program = ("--module", *arguments[1:]) if arguments[0] == "-m" else arguments
        command = launched(ranks, *program) if ranks > 1 else [sys.executable, *arguments]
        return start(command, ranks=ranks, **environment)
    return Loaded(arguments, ranks, {**os.environ, **own_environment(ranks), **environment})


def start_light(*arguments: str) -> Running:
    """As `start_loaded`, for a program that starts no engine: the libraries are not loaded for its sake alone."""
    return start_loaded(*arguments) if Loaded.libraries_are_there else start([sys.executable, *arguments])


def _launch(arguments: Sequence[str], ranks: int, environment: dict[str, str], output: str) -> None:
    """In the fork: the program, or a process of it for each rank."""
    assert set(LIBRARIES) <= set(sys.modules), "they have not been imported beforehand, which is what this is for"
    gc.freeze()  # else its collector writes to, and so copies, every page that is shared
    # vLLM compiles one line of its sampler, which is seconds of each start; what `start` starts has it compiled.
    torch._dynamo.config.disable = True
    os.setsid()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number, name in ((1, "stdout"), (2, "stderr")):
        os.dup2(os.open(Path(output, name), os.O_WRONLY | os.O_CREAT | os.O_APPEND), number)
    os.environ.update(environment)
    os.chdir(ROOT)
    torch.set_num_threads(int(environment["OMP_NUM_THREADS"]))
    if ranks == 1:
        _run(arguments)
    os.environ.update(WORLD_SIZE=str(ranks), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free_port()))
    processes = [ranks_of.Process(target=_run, args=(arguments, rank)) for rank in range(ranks)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    sys.exit(max((process.exitcode or 0 for process in processes), key=abs))


def _run(arguments: Sequence[str], rank: int | None = None) -> None:
    """As `python` would."""
    if rank is not None:
        os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank))
    if arguments[0] == "-m":
        sys.argv = list(arguments[1:])
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = list(arguments)
        runpy.run_path(arguments[0], run_name="__main__")
    sys.exit(0)

"""Starting the project's programs as a user would, and ending whatever they leave."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol
from unittest import mock

import psutil

import train
from prewrite.engine.distributed import free_port

ROOT = Path(__file__).parent.parent
MODEL = ROOT / "models" / "smollm2-135m-instruct"
LAUNCHER = [sys.executable, "-m", "deepspeed.launcher.runner"]  # its script may lie elsewhere than Python
TORCHRUN = str(Path(sys.executable).parent / "torchrun")


def with_settings(*settings: str) -> list[str]:
    """The arguments that set each `key=value`."""
    return [part for setting in settings for part in ("--set", setting)]


SMALL_SETTINGS = (
    *with_settings("max_steps=2", "eval_steps=0", "dev_size=12", "examples_per_rewrite=4"),
    *with_settings("num_generations=4", "per_device_train_batch_size=4", "max_completion_length=24"),
)
SMALL = ("--config", "configs/quickstart.json", *SMALL_SETTINGS)  # of train.py: the quickstart at two small steps


def launched(ranks: int, *arguments: str) -> list[str]:
    """The command by which the `deepspeed` launcher starts the ranks, on a port that no other run uses.

    Of several GPUs it takes the first of `CUDA_VISIBLE_DEVICES`, which the launcher ignores where it is told a number.
    """
    visible = [card for card in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if card]
    cards = ",".join(visible[:ranks])
    which = ["--include", f"localhost:{cards}"] if visible else ["--num_accelerators", str(ranks)]
    return [*LAUNCHER, *which, "--master_port", str(free_port()), *arguments]


def start_nodes(
    launcher: str, folders: Sequence[Path], *commands: Sequence[str], **environment: str
) -> list[subprocess.Popen[str]]:
    """A launcher for each command, as on machines of their own with one rank each, in working folders of their own."""
    port, size = str(free_port()), len(commands)
    hosts = folders[0] / "hosts"
    hosts.write_text("".join(f"node{number} slots=1\n" for number in range(size)))
    meeting = ("--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{port}", "--rdzv-id", port)
    nodes = []
    for number, (folder, command) in enumerate(zip(folders, commands, strict=True)):
        way = {
            "torchrun": [
                TORCHRUN,
                "--nnodes",
                str(size),
                "--nproc-per-node",
                "1",
                *meeting,
                "--local-addr",
                "127.0.0.1",
            ],
            "deepspeed": [
                *(*LAUNCHER, "--hostfile", str(hosts), "--no_ssh", "--node_rank", str(number)),
                *("--master_addr", "127.0.0.1", "--master_port", port),
            ],
        }[launcher]
        nodes.append(start([*way, *command], ranks=size, cwd=folder, **environment))
    return nodes


class Running(Protocol):
    """Of `subprocess.Popen[str]` what the tests use."""

    @property
    def pid(self) -> int: ...
    @property
    def returncode(self) -> int | None: ...
    def poll(self) -> int | None: ...
    def send_signal(self, sig: int, /) -> None: ...
    def communicate(self, *, timeout: float | None = None) -> tuple[str, str]: ...


def own_environment(ranks: int) -> dict[str, str]:
    """Of a program of ours: the project's root is on its path, and its threads are OMP_NUM_THREADS, as the tests have
    it, else the machine's cores are shared out over the ranks."""
    threads = os.environ.get("OMP_NUM_THREADS") or str(max(1, (os.cpu_count() or 2) // ranks))
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {"PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": threads}


def start(command: Sequence[str], *, ranks: int = 1, cwd: Path = ROOT, **environment: str) -> subprocess.Popen[str]:
    """A process in a session of its own, in the project's root."""
    return subprocess.Popen(
        list(command),
        cwd=cwd,
        env={**os.environ, **own_environment(ranks), **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def train_here(*arguments: str) -> int:
    """The exit code of train.py run in this process, where torch is loaded; it leaves no handler or variable behind."""
    handlers = {signum: signal.getsignal(signum) for signum in train.SIGNALS}
    argv = mock.patch.object(sys, "argv", ["train.py", *arguments])
    try:
        with argv, contextlib.chdir(ROOT), mock.patch.dict(os.environ):  # a run makes itself a world of one there
            return train.main()
    finally:
        for signum, handler in handlers.items():
            signal.signal(signum, handler)


def finish(process: Running, timeout: float = 600) -> tuple[int, str, str]:
    """(exit code, stdout, stderr); past `timeout` seconds, or the test's own, the process's session is killed."""
    try:
        stdout, stderr = process.communicate(timeout=timeout)
    except BaseException as error:
        os.killpg(process.pid, signal.SIGKILL)
        stdout, stderr = process.communicate()
        if isinstance(error, subprocess.TimeoutExpired):
            raise AssertionError(f"not done in {timeout} s\n{stdout[-3000:]}\n{stderr[-3000:]}") from None
        raise
    assert process.returncode is not None
    return process.returncode, stdout, stderr


def descendants(process: Running) -> list[psutil.Process]:
    """Every process that came from this one and lives now; guards, which are nobody's children, with their sessions."""
    family = psutil.Process(process.pid).children(recursive=True)
    parents = {str(one.pid) for one in family} | {str(process.pid)}
    sessions = set()
    for one in psutil.process_iter():
        with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError):
            words = one.cmdline()
            if len(words) > 3 and words[2].endswith("engine/processes.py") and words[3] in parents:
                sessions.add(os.getsid(one.pid))
    for one in psutil.process_iter():
        with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError):
            if os.getsid(one.pid) in sessions:
                family.append(one)
    return family


def command_lines(processes: Sequence[psutil.Process]) -> list[str]:
    """Those of the ones that still live."""
    lines = []
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            lines.append(" ".join(process.cmdline()))
    return lines


def session_members(session: int) -> list[str]:
    """Names of the living processes of a session."""
    told = subprocess.run(["ps", "-s", str(session), "-o", "stat=,comm="], capture_output=True, text=True).stdout
    return [line for line in told.splitlines() if not line.startswith("Z")]

"""A vLLM server of our own for the task model, on a free local port, that ends on every way out."""

import contextlib
import logging
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError
from transformers.utils import cached_file

from prewrite.config import BudgetSettings, TaskModelSettings
from prewrite.engine.distributed import free_port
from prewrite.engine.processes import end_guarded, start_guarded
from prewrite.engine.sampler import memory_share
from prewrite.engine.task_model import TaskModel
from prewrite.errors import UserError
from prewrite.model_folder import adapter_base, refuse_no_model

logger = logging.getLogger(__name__)

_LOG_TAIL_LINES, _ERRORS_BEFORE_TAIL = 12, 3
# As a traceback ends, perhaps with vLLM's process before it.
_ERROR = re.compile(r"(\([^()]*\) )*[\w.]*(Error|Exception): ")
_POLL_SECONDS = 0.3
_CLEARING_SECONDS = 20.0  # more than a guard needs to end what a dead server left
# Of the trainer's ranks and its own engine, or a key that our client would not send.
_NOT_INHERITED = {
    "RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "LOCAL_SIZE", "CROSS_RANK", "CROSS_SIZE", "GROUP_RANK",
    "ROLE_RANK", "ROLE_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT",
    "VLLM_ENABLE_V1_MULTIPROCESSING", "VLLM_LOGGING_LEVEL", "VLLM_API_KEY", "VLLM_HOST_IP", "VLLM_PORT",
}  # fmt: skip
# Blocks of 32 tokens let queries share the cached prefix of a rewrite; the CPU's own default is longer than a query.
_CPU_ARGUMENTS = ["--enforce-eager", "--block-size", "32"]


class TaskServer:
    """Context manager around the server that `settings` describe; `base_url` is its address.

    It serves `settings.model` under that name, an adapter's folder merged into its base. log_path: the server's output.
    Entering raises UserError where the folder is no model, the server ends at once, or it is not healthy in time.
    """

    def __init__(self, settings: TaskModelSettings, *, log_path: Path):
        self.settings, self.log_path = settings, log_path
        self.port = free_port()
        self.base_url = f"http://127.0.0.1:{self.port}/v1"
        limit = settings.max_model_len
        self._arguments = [
            *("--served-model-name", settings.model),
            *("--host", "127.0.0.1", "--port", str(self.port)),
            *("--generation-config", "vllm"),  # no sampling defaults of the model repo's
            *("--no-enable-log-requests", "--disable-log-stats", "--uvicorn-log-level", "warning"),
            *(("--max-model-len", str(limit)) if limit is not None else ()),
            *(_gpu_arguments(settings) if torch.cuda.is_available() else _CPU_ARGUMENTS),
            *settings.server_args,
        ]
        self._env = _server_environment(os.environ, settings)

    def __enter__(self) -> "TaskServer":
        from prewrite.engine.adapter import whole_model

        runs_its_code = "--trust-remote-code" in self.settings.server_args
        refuse_no_served_model(self.settings)
        with contextlib.ExitStack() as stack:  # closed here where the block is never entered, Ctrl-C included
            whole = whole_model("task_model.model", self.settings.model, dtype=None, trust_remote_code=runs_its_code)
            model = stack.enter_context(whole)
            self.log_path.parent.mkdir(parents=True, exist_ok=True)
            command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", model, *self._arguments]
            with self.log_path.open("wb") as log:
                self._guard = start_guarded(command, env=self._env, log=log)
            stack.callback(end_guarded, self._guard)
            self._wait_until_healthy()
            self._open = stack.pop_all()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._open.close()

    @contextlib.contextmanager
    def blamed(self) -> Iterator[None]:
        """Where the block raises a UserError and this server has ended, the error tells that, with its last words."""
        try:
            yield
        except UserError as error:
            if not self._is_healthy():  # the guard may still be clearing up behind it
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._guard.wait(_CLEARING_SECONDS)
            if self._guard.poll() is None:
                raise
            raise self._fault(f"has ended (exit code {self._guard.returncode}): {error}") from error

    def _wait_until_healthy(self) -> None:
        started = time.monotonic()
        while not self._is_healthy():
            if self._guard.poll() is not None:
                raise self._fault(f"ended while it started (exit code {self._guard.returncode}).")
            if time.monotonic() - started > (limit := self.settings.startup_timeout):
                raise self._fault(f"was not healthy within {limit:g} s (task_model.startup_timeout).")
            time.sleep(_POLL_SECONDS)
        logger.info("the task model's server is up after %.0f s", time.monotonic() - started)

    def _is_healthy(self) -> bool:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # a proxy is not for this machine
        with contextlib.suppress(OSError), opener.open(f"http://127.0.0.1:{self.port}/health", timeout=2.0) as reply:
            return reply.status == 200
        return False

    def _fault(self, what: str) -> UserError:
        server = f"the vLLM server that was started for task_model.model {self.settings.model!r}"
        return UserError(f"{server} {what} From its log, {self.log_path}:\n{self._log_tail()}")

    def _log_tail(self) -> str:
        """The end of the log; before it, the errors that stand further up, since the first one is the cause."""
        written = self.log_path.read_text(encoding="utf-8", errors="replace").splitlines()
        lines = [line for line in written if "] Route: /" not in line]  # what it serves fills the end of a short log
        tail = lines[-_LOG_TAIL_LINES:]
        errors = dict.fromkeys(line for line in lines[: -len(tail)] if _ERROR.match(line))
        return "\n".join([*list(errors)[:_ERRORS_BEFORE_TAIL], *tail])


def refuse_no_served_model(settings: TaskModelSettings) -> None:
    """UserError where the server that the settings ask for would find no model; before one is started, which takes a
    minute and ends in another program's words."""
    model = settings.model
    if adapter_base(model) is not None:  # which is merged, and its base looked up, by `whole_model`
        return
    refuse_no_model("task_model.model", model)
    if os.path.exists(model) or any(one.startswith("--revision") for one in settings.server_args):
        return
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)  # it tells each of its tries
    try:
        cached_file(model, "config.json")
    except OSError as error:
        cause = error.__cause__
        if isinstance(cause, EntryNotFoundError) and not isinstance(cause, LocalEntryNotFoundError):
            return  # the model is there, with its config under another name
        reason = str(error).strip().partition("\n")[0].rstrip(".")
        raise UserError(
            f"task_model.model: the name (there is no such folder) {model!r} holds no model that can be found: "
            f"{reason}. Give a folder with config.json, tokenizer and safetensors (scripts/fetch_model.py makes the "
            "embedded one), a name on the hub, or task_model.base_url (--base-url) where it is served."
        ) from error


@contextlib.contextmanager
def open_task_model(
    settings: TaskModelSettings, *, log_path: Path | None = None, budget: BudgetSettings | None = None
) -> Iterator[TaskModel]:
    """The task model for one process: at `settings.base_url`, or behind a server that lives as long as the block.

    log_path: of that server; None = a temporary file, which stays where an error names it.
    """
    with contextlib.ExitStack() as stack:
        if (base_url := settings.base_url) is None:
            log_path = log_path or stack.enter_context(_temporary_folder()) / "task_server.log"
            server = TaskServer(settings, log_path=log_path)
            base_url = stack.enter_context(server).base_url
            stack.enter_context(server.blamed())
        yield stack.enter_context(TaskModel(settings, base_url=base_url, budget=budget))


@contextlib.contextmanager
def _temporary_folder() -> Iterator[Path]:
    """A folder that lasts as long as the block, and longer where it ends in a UserError that names it."""
    folder, is_named = Path(tempfile.mkdtemp(prefix="prewrite-task-server-")), False
    try:
        yield folder
    except UserError as error:
        is_named = str(folder) in str(error)
        raise
    finally:
        if not is_named:
            shutil.rmtree(folder)


def _gpu_arguments(settings: TaskModelSettings) -> list[str]:
    size = settings.kv_cache_gib
    kv_cache = [] if size is None else ["--kv-cache-memory-bytes", str(int(size * 2**30))]
    return ["--gpu-memory-utilization", str(memory_share(settings)), *kv_cache]


def _server_environment(own: Mapping[str, str], settings: TaskModelSettings) -> dict[str, str]:
    inherited = [name for name in own if name not in _NOT_INHERITED and not name.startswith("TORCHELASTIC_")]
    env = {name: own[name] for name in inherited}
    # A trainer waits while it is answered: the server takes the core that vLLM would leave to others.
    env.setdefault("VLLM_CPU_NUM_OF_RESERVED_CPU", "0")
    env["VLLM_CPU_KVCACHE_SPACE"] = str(math.ceil(settings.kv_cache_gib or 1))  # vLLM reads whole GiB
    env |= {"VLLM_NO_USAGE_STATS": "1", "TQDM_DISABLE": "1"}
    if settings.gpus is not None:
        env |= {"CUDA_VISIBLE_DEVICES": ",".join(map(str, settings.gpus)), "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    return env

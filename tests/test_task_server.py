"""The task model's own server: it starts, answers, says why it cannot, and never outlives the program."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from prewrite.config import RolloutSettings, TaskModelSettings
from prewrite.engine.processes import _birth, end_guarded, start_guarded
from prewrite.engine.sampler import memory_share
from prewrite.engine.task_model import TaskModel
from prewrite.engine.task_server import (
    TaskServer,
    _gpu_arguments,
    _server_environment,
    _temporary_folder,
    open_task_model,
    refuse_no_served_model,
)
from prewrite.errors import UserError
from prewrite.types import Call
from tests.fault_server import FaultServer
from tests.launching import session_members

ROOT = Path(__file__).resolve().parent.parent
MODEL = ROOT / "models" / "smollm2-135m-instruct"

# A child that ignores SIGTERM and leaves its process group, as the stubborn part of a server would.
STUBBORN_TREE = """
import signal, subprocess, sys, time
subprocess.Popen([sys.executable, "-c", '''
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
os.setpgid(0, 0)
print("grandchild is up", flush=True)
time.sleep(300)
'''])
time.sleep(300)
"""
# The module by itself: its package would import torch.
GUARDS = """
import sys
sys.path.insert(0, "prewrite/engine")
from processes import end_guarded, start_guarded
"""
PARENT_OF_TREE = f"""{GUARDS}
import os, time
with open(sys.argv[1], "wb") as log:
    guard = start_guarded([sys.executable, "-c", sys.argv[2]], env=os.environ, log=log, grace=0.5)
print(guard.pid, flush=True)
try:
    time.sleep(300)
finally:
    end_guarded(guard)
"""


def processes_that_name(text: str) -> list[int]:
    """Ids of the living processes with the text on their command line."""
    found = subprocess.run(["pgrep", "-f", "--", text], capture_output=True, text=True).stdout
    return [int(pid) for pid in found.split()]


def wait_until(condition, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come to pass in time"
        time.sleep(0.1)


def server(log_path: Path, model: str = str(MODEL), **settings) -> TaskServer:
    defaults = dict(model=model, gpu_memory_utilization=0.1, kv_cache_gib=1.0, startup_timeout=400.0)
    return TaskServer(TaskModelSettings(**(defaults | settings)), log_path=log_path)


def test_a_kv_cache_of_a_given_size_asks_for_no_share_of_the_gpu():
    settings = TaskModelSettings(model="a/model", gpu_memory_utilization=0.4)
    assert _gpu_arguments(settings) == ["--gpu-memory-utilization", "0.4"]
    share, size = _gpu_arguments(settings.model_copy(update={"kv_cache_gib": 2.0}))[1::2]
    assert float(share) < 0.05, "an engine refuses to start where its share is not free"
    assert int(size) == 2 * 2**30
    assert memory_share(RolloutSettings(gpu_memory_utilization=0.4)) == 0.4
    assert memory_share(RolloutSettings(gpu_memory_utilization=0.4, kv_cache_gib=2)) < 0.05


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_parent_that_is_ended_leaves_no_process_behind(end, tmp_path):
    log = tmp_path / "log"
    command = [sys.executable, "-c", PARENT_OF_TREE, str(log), STUBBORN_TREE]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, stderr=subprocess.DEVNULL) as parent:
        session = int(parent.stdout.readline())
        wait_until(lambda: "grandchild is up" in log.read_text(), 30)
        assert len(session_members(session)) == 3  # guard, child, grandchild
        parent.send_signal(end)
    wait_until(lambda: not session_members(session), 30)


DEAF_RANK = f"""{GUARDS}
import os, signal, time
signal.signal(signal.SIGTERM, lambda *_: print("asked", flush=True))
with open(sys.argv[1], "wb") as log:
    guard = start_guarded([sys.executable, "-c", "import time; print('up', flush=True); time.sleep(300)"],
                          env=os.environ, log=log)
print(guard.pid, flush=True)
sys.stdin.readline()
print(guard.poll(), flush=True)
end_guarded(guard)
print(guard.returncode, flush=True)
"""


def test_a_launcher_that_ends_its_ranks_does_not_end_what_they_started(tmp_path):
    """As `deepspeed` does it: SIGTERM to a rank and all its descendants, and then it waits."""
    log, pipe = tmp_path / "log", subprocess.PIPE
    command = [sys.executable, "-c", DEAF_RANK, str(log)]
    with subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, text=True) as rank:
        session = int(rank.stdout.readline())
        wait_until(lambda: "up" in log.read_text(), 30)
        for one in [*psutil.Process(rank.pid).children(recursive=True), psutil.Process(rank.pid)]:
            one.terminate()
        assert rank.stdout.readline() == "asked\n"
        time.sleep(1.0)
        assert len(session_members(session)) == 2  # guard and command
        told, _ = rank.communicate("the step is done\n", timeout=30)
    assert told.split() == ["None", "143"]
    wait_until(lambda: not session_members(session), 5)  # the guard itself, which has said its code, is still exiting


def test_a_process_of_another_birth_is_not_the_parent():
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    own, birth = _birth(os.getpid()), _birth(child.pid)
    assert own == _birth(os.getpid())
    assert birth not in (own, None)
    child.stdin.close()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert _birth(child.pid) is None, "it has ended, though nobody has asked for its code"
    child.wait()
    assert _birth(child.pid) is None


def test_ending_a_guarded_command_ends_its_stubborn_descendants(tmp_path):
    log = tmp_path / "log"
    with log.open("wb") as out:
        guard = start_guarded([sys.executable, "-c", STUBBORN_TREE], env=os.environ, log=out, grace=0.5)
    wait_until(lambda: "grandchild is up" in log.read_text(), 30)
    end_guarded(guard)
    end_guarded(guard)
    wait_until(lambda: session_members(guard.pid) == [], 5)


def test_ending_a_command_whose_guard_was_killed_ends_the_command(tmp_path):
    log = tmp_path / "log"
    with log.open("wb") as out:
        guard = start_guarded(["sh", "-c", "echo up; sleep 300 & sleep 300"], env=os.environ, log=out)
    wait_until(lambda: "up" in log.read_text(), 30)
    os.kill(guard.pid, signal.SIGKILL)
    guard.wait(30)
    assert len(session_members(guard.pid)) >= 2
    end_guarded(guard)
    wait_until(lambda: session_members(guard.pid) == [], 5)


def test_a_guard_passes_on_the_exit_code_and_ends_what_the_command_left_behind(tmp_path):
    leaver = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {STUBBORN_TREE!r}]); sys.exit(7)"
    with (tmp_path / "log").open("wb") as out:
        guard = start_guarded([sys.executable, "-c", leaver], env=os.environ, log=out, grace=0.5)
    assert guard.wait(30) == 7
    wait_until(lambda: session_members(guard.pid) == [], 5)  # the kernel may still be clearing up


def test_what_outlives_the_command_has_time_to_clean_up(tmp_path):
    cleaner = (
        "import signal, sys, time\n"
        "def clean_up(*_): time.sleep(1); print('cleaned up', flush=True); sys.exit()\n"
        "signal.signal(signal.SIGTERM, clean_up); print('up', flush=True); time.sleep(300)"
    )
    command = f"import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', {cleaner!r}]); time.sleep(300)"
    log = tmp_path / "log"
    with log.open("wb") as out:
        guard = start_guarded([sys.executable, "-c", command], env=os.environ, log=out, grace=30.0)
    wait_until(lambda: "up" in log.read_text(), 30)
    end_guarded(guard)
    assert log.read_text().split("\n") == ["up", "cleaned up", ""]
    wait_until(lambda: session_members(guard.pid) == [], 5)


def test_a_server_whose_guard_still_clears_up_behind_it_is_blamed(tmp_path):
    dying = (
        "import subprocess, sys\n"
        "deaf = ['sh', '-c', 'trap \"\" TERM; echo up; exec sleep 300']\n"
        "subprocess.Popen(deaf, stdout=subprocess.PIPE).stdout.readline()\n"
        "print('last words', flush=True); sys.exit(7)"
    )
    dead = server(tmp_path / "log")
    with dead.log_path.open("wb") as out:
        dead._guard = start_guarded([sys.executable, "-c", dying], env=os.environ, log=out, grace=3.0)
    wait_until(lambda: "last words" in dead.log_path.read_text(), 30)
    assert dead._guard.poll() is None
    with pytest.raises(UserError, match=r"(?s)ended \(exit code 7\): calls failed.*last words"), dead.blamed():
        raise UserError("calls failed")


def test_a_folder_that_is_no_model_is_refused_before_anything_starts(tmp_path):
    for model, told in ((str(tmp_path), "has no config.json"), (str(tmp_path / "missing"), "no such folder")):
        with pytest.raises(UserError, match=told), server(tmp_path / "log", model):
            pass
    assert not (tmp_path / "log").exists()


def test_a_name_that_the_hub_does_not_have_is_refused_before_anything_starts(tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    one = server(tmp_path / "log", "nosuch/model")
    with pytest.raises(UserError, match=r"task_model\.model: the name .* 'nosuch/model' holds no model") as caught, one:
        pass
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "log").exists()
    refuse_no_served_model(TaskModelSettings(model="nosuch/model", server_args=["--revision=v2"]))


def test_a_log_that_an_error_names_is_there_and_any_other_is_gone(tmp_path, monkeypatch):
    (tmp_path / "config.json").write_text("{}")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    late = TaskModelSettings(model=str(tmp_path), gpu_memory_utilization=0.1, startup_timeout=0.5)
    with pytest.raises(UserError, match=r"From its log, .*task_server\.log") as caught, open_task_model(late):
        pass
    log = Path(str(caught.value).partition("From its log, ")[2].partition(":\n")[0])
    assert log.is_file()
    with pytest.raises(UserError, match="of another kind"), _temporary_folder() as folder:
        raise UserError("of another kind")
    assert list(tmp_path.glob("prewrite-*")) == [log.parent] != [folder]


def test_a_server_that_is_not_healthy_in_time_is_ended(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    late = server(tmp_path / "log", str(tmp_path), startup_timeout=0.5)
    with pytest.raises(UserError, match=r"not healthy within 0\.5 s"), late:
        pass
    assert processes_that_name(str(tmp_path)) == []


def test_the_ranks_of_the_trainer_do_not_leak_into_the_server():
    own = {
        "RANK": "1",
        "MASTER_PORT": "29500",
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_API_KEY": "k",
        "PATH": "/bin",
    }
    env = _server_environment(own, TaskModelSettings(model="a/model", kv_cache_gib=1.5, gpus=[6, 7]))
    assert env["VLLM_CPU_KVCACHE_SPACE"] == "2"
    assert env["CUDA_VISIBLE_DEVICES"] == "6,7"
    assert env["PATH"] == "/bin"
    assert not env.keys() & (own.keys() - {"PATH"})


def test_the_cause_of_a_failed_start_is_told_though_it_stands_further_up(tmp_path):
    one = server(tmp_path / "log", str(tmp_path))
    cause, fill = "(EngineCore pid=7) ValueError: the KV cache is too small", ["(APIServer pid=6)   File 'x.py'"] * 40
    later = [f"torch.OutOfMemoryError: {number}" for number in range(4)]
    one.log_path.write_text("\n".join(["starting", cause, *later, *fill, "(APIServer pid=6) RuntimeError: see above"]))
    told = one._log_tail().splitlines()
    assert told[:3] == [cause, *later[:2]]
    assert told[-1].endswith("see above")
    assert "starting" not in told
    one.log_path.write_text("one line")
    assert one._log_tail() == "one line"


def test_a_server_with_gpus_of_its_own(tmp_path):
    assert server(tmp_path / "log", "a/model", gpus=[2, 3])._env["CUDA_VISIBLE_DEVICES"] == "2,3"


def test_calls_that_fail_since_the_server_ended_are_blamed_on_it(tmp_path, monkeypatch):
    monkeypatch.setattr("prewrite.engine.task_server._CLEARING_SECONDS", 1.0)
    one = server(tmp_path / "log", str(tmp_path))
    for script, words in (
        ("print('bye')", r"(?s)has ended \(exit code 0\): calls failed\..*bye"),
        ("import os; os.kill(os.getpid(), 9)", r"has ended \(exit code 137\)"),
        ("import time; time.sleep(60)", "^calls"),
    ):
        with (tmp_path / "log").open("wb") as log:
            one._guard = start_guarded([sys.executable, "-c", script], env=dict(os.environ), log=log)
        if "sleep" not in script:
            one._guard.wait(timeout=30)
        with pytest.raises(UserError, match=words), one.blamed():
            raise UserError("calls failed.")
        end_guarded(one._guard)


def test_an_endpoint_of_the_config_is_used_and_no_server_started():
    with FaultServer() as endpoint:
        settings = TaskModelSettings(model="task", base_url=endpoint.base_url)
        with open_task_model(settings) as model:
            assert model.ask([Call("q")])[0].text == "q"


def test_a_server_of_our_own_is_asked_without_the_key_of_an_endpoint():
    with FaultServer() as ours:
        settings = TaskModelSettings(model="task", api_key_env="NO_SUCH_KEY")
        with TaskModel(settings, base_url=ours.base_url) as model:
            assert model.ask([Call("q")])[0].text == "q"
        assert ours.keys == ["Bearer EMPTY"]


@pytest.mark.slow
def test_a_server_that_dies_shows_its_last_words(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "no_such_architecture"}')
    with (
        pytest.raises(UserError, match=r"(?s)ended while it started.*no_such_architecture"),
        server(tmp_path / "log", str(tmp_path)),
    ):
        pass

"""What stands on the console: bars on a terminal alone, and no warnings of libraries."""

import os
import pty
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from tests.fault_server import FaultServer, Reply, completion
from tests.launching import ROOT, SMALL, finish, start, with_settings

BARS = """
from prewrite.terminal import quiet_environment
quiet_environment()
from prewrite.asking.questions import answers_bar
from prewrite.reporting.console import Console
from tqdm.auto import tqdm
for _ in tqdm(range(3), desc="of a library"):
    pass
with answers_bar("of answers", 2, leave=True) as show:
    show(2, 0)
console = Console(2, is_main=True)
for step in (1, 2):
    console.step({"step": step})
console.close()
"""


def run_on_terminal(code: str) -> str:
    """What the code writes on stderr where that is a terminal."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, 120))
    env = {name: value for name, value in os.environ.items() if name != "TQDM_DISABLE"}  # a test before may have set it
    process = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, stderr=theirs, env=env)
    os.close(theirs)
    shown = b""
    try:
        while chunk := os.read(ours, 65536):
            shown += chunk
    except OSError:  # the other end is closed
        pass
    assert process.wait() == 0
    return shown.decode()


def test_bars_stand_on_a_terminal() -> None:
    shown = run_on_terminal(BARS)
    assert "of answers: 100%" in shown
    assert "2/2" in shown
    assert "of a library" in shown


def test_no_bar_fills_a_redirected_log() -> None:
    done = subprocess.run([sys.executable, "-c", BARS], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert [line.partition(" |")[0] for line in done.stdout.splitlines()] == ["step 1/2", "step 2/2"]


def test_every_bar_is_made_in_one_place() -> None:
    makers = [path.name for path in (ROOT / "prewrite").rglob("*.py") if "tqdm(" in path.read_text("utf-8")]
    assert makers == ["terminal.py"]


@pytest.mark.slow
def test_the_embedded_models_conversion_is_two_lines(tmp_path: Path) -> None:
    command = [sys.executable, "scripts/fetch_model.py", "--out", str(tmp_path / "model")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert len(done.stdout.splitlines()) == 2


@pytest.mark.slow
def test_a_redirected_run_shows_its_own_lines_alone(tmp_path: Path, shallow_model: str) -> None:
    """No accelerator's and no NUMA warning, and no bar."""
    settings = with_settings(f"policy.model={shallow_model}", f"output_dir={tmp_path}", "max_steps=1")
    with FaultServer(lambda body, tried: Reply(body=completion("positive"))) as server:
        endpoint = with_settings(f"base_url={server.base_url}", "task_model.model=task")
        code, stdout, stderr = finish(start([sys.executable, "train.py", *SMALL, *settings, *endpoint]))
    assert code == 0, stderr
    assert stderr == ""
    begins = (
        *("loading the policy", "task calls by plan", "the test at the end", "before training", "step 1/1 |"),
        *("training ends after step 1", "sentiment: ", "report: ", "run folder: "),
    )
    # After the first calls comes what the rest will take: in the thread that asks, so perhaps behind another line.
    lines = [line for line in stdout.splitlines() if not line.startswith(("  ", "by the 20 calls so far "))]
    assert len(lines) == len(begins), stdout
    assert all(line.startswith(begin) for line, begin in zip(lines, begins, strict=True)), stdout

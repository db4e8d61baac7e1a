"""Checkpoints and --resume: what is whole is gone on from, exactly; what is not is passed over, in words."""

import errno
import fcntl
import json
import os
import resource
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from prewrite.config.changes import MAY_CHANGE
from prewrite.config.loading import load_config
from prewrite.config.run import sections
from prewrite.engine.agreement import data_hashes
from prewrite.engine.distributed import World
from prewrite.errors import UserError
from prewrite.reporting.journal import ANSWERS, Journal
from prewrite.reporting.run_lock import only_run_in
from prewrite.training.checkpoint import MANIFEST, facts_of, newest_whole
from prewrite.training.resume import go_back
from prewrite.training.saving import _drop_old, _faults_told
from prewrite.training.stopping import Stopping
from prewrite.types import InstructionRow
from tests.fault_server import FaultServer
from tests.launching import SMALL, finish, start, train_here, with_settings
from tests.loaded import start_loaded
from tests.test_train import a_label, read_lines
from tests.three_stages import check_stages, three_stages

CONFIG = "configs/quickstart.json"
ROW = InstructionRow("Say it.", "sst2")
ALONE = World(0, 1, torch.device("cpu"))
DATA = {"the train examples": "0123456789ab", "the dev examples": "ba9876543210"}
LINES = ("log.jsonl", "metrics.jsonl", "dev.jsonl")


def make_checkpoint(run: Path, step: int, ranks: int = 1, score: float | None = None) -> Path:
    """One without weights, which nothing here reads, as a run leaves it."""
    folder = run / "checkpoints" / f"step_{step:06d}"
    folder.mkdir(parents=True)
    lines = {name: path.stat().st_size if (path := run / name).exists() else 0 for name in LINES}
    state = {"step": step, "ranks": ranks, "lines": lines, "score": score, "data": DATA}
    (folder / "state.json").write_text(json.dumps(state))
    (folder / "progress.json").write_text(json.dumps({"step": step}))
    (folder / "best.json").write_text(json.dumps({"step": step}))
    for rank in range(ranks):
        (folder / f"rank_{rank:05d}.pt").write_bytes(b"of the rank")
    files = {path.name: facts_of(path) for path in sorted(folder.iterdir())}
    (folder / MANIFEST).write_text(json.dumps(files))
    return folder


def make_run(tmp_path: Path, *steps: int, ranks: int = 1) -> tuple[Path, Any]:
    """A run folder with a line in each file, and a checkpoint, for each step."""
    config = load_config(CONFIG, [f"output_dir={tmp_path}", "run_name=run"])
    journal = Journal(config)
    for step in steps:
        journal.write_step({"step": step})
        journal.write_dev({"step": step})
        make_checkpoint(journal.folder, step, ranks)
    return journal.folder, config


def forget(folder: Path, *names: str) -> None:
    """Takes files out of a checkpoint and out of its manifest; without a name all of them out of the manifest."""
    for name in names:
        (folder / name).unlink()
    files = json.loads((folder / MANIFEST).read_text()) if names else {}
    (folder / MANIFEST).write_text(json.dumps({name: facts for name, facts in files.items() if name not in names}))


def contents(folder: Path, names: str = "*") -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob(names) if path.is_file()}


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


DAMAGE: dict[str, Callable[[Path], object]] = {
    "truncated": lambda folder: (folder / "progress.json").write_bytes(b"{"),
    "emptied": lambda folder: (folder / "state.json").write_bytes(b""),
    "bit-flipped": lambda folder: flip(folder / "progress.json"),
    "missing": lambda folder: (folder / "best.json").unlink(),
    "manifest flipped": lambda folder: flip(folder / MANIFEST),
    "manifest missing": lambda folder: (folder / MANIFEST).unlink(),
    "manifest emptied": lambda folder: (folder / MANIFEST).write_bytes(b""),
    "manifest of nothing": forget,
    "without state": lambda folder: forget(folder, "state.json"),
    "without progress": lambda folder: forget(folder, "progress.json"),
    "without a rank": lambda folder: forget(folder, "rank_00000.pt"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_broken_newest_checkpoint_is_passed_over_and_said_so(
    tmp_path: Path, damage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run, config = make_run(tmp_path, 2, 4)
    DAMAGE[damage](run / "checkpoints" / "step_000004")
    journal = Journal(config, "resume")
    checkpoint = go_back(journal, config, ALONE, DATA)
    assert checkpoint is not None
    assert checkpoint.step == checkpoint.progress().step == 2
    told = capsys.readouterr().out
    assert "broken" in told
    assert "step_000004" in told
    assert sorted(path.name for path in (run / "checkpoints").iterdir()) == ["broken_step_000004", "step_000002"]


def test_lines_after_the_checkpoint_are_taken_out_and_half_a_line_too(tmp_path: Path) -> None:
    run, config = make_run(tmp_path, 2, 4)
    for name in ("metrics.jsonl", "log.jsonl"):
        with (run / name).open("a") as file:
            file.write('{"step": 5, "rew')
    (run / "best.json").write_text('{"step": 5}')
    (run / "checkpoints" / ".step_000006.part").mkdir()
    assert go_back(Journal(config, "resume"), config, ALONE, DATA)
    assert [line["step"] for line in read_lines(run / "metrics.jsonl")] == [2, 4]
    assert (run / "log.jsonl").read_text() == ""
    assert json.loads((run / "best.json").read_text()) == {"step": 4}
    assert not (run / "checkpoints" / ".step_000006.part").exists()


def test_lines_that_the_checkpoint_knows_and_the_folder_lacks_are_told(tmp_path: Path) -> None:
    run, config = make_run(tmp_path, 2)
    (run / "dev.jsonl").write_text("")
    (run / ANSWERS).write_text("paid for")
    with pytest.raises(UserError, match=r"dev\.jsonl has 0 bytes.* move .*/run/checkpoints elsewhere"):
        go_back(Journal(config, "resume"), config, ALONE, DATA)
    assert read_lines(run / "metrics.jsonl"), "nothing is cut before all is checked"
    (run / "checkpoints").rename(tmp_path / "elsewhere")
    assert go_back(Journal(config, "resume"), config, ALONE, DATA) is None, "as the message says"
    assert (run / ANSWERS).read_text() == "paid for"


@pytest.mark.parametrize("content", [None, b"", b'{"seed": 1', b"\xff", b"[]", b'{"no_setting": 1}'])
def test_a_run_folder_whose_config_cannot_be_read_is_told_as_its_own(tmp_path: Path, content: bytes | None) -> None:
    run, config = make_run(tmp_path, 2)
    (run / "config.json").unlink()
    if content is not None:
        (run / "config.json").write_bytes(content)
    with pytest.raises(UserError, match=r"(?s)run folder .*/run: its own config\.json.* put it back") as told:
        Journal(config, "resume")
    assert "see configs/" not in str(told.value)
    assert not content or (run / "config.json").read_bytes() == content
    (run / "config.json").write_bytes(Path(CONFIG).read_bytes())
    Journal(config, "resume")  # as the message says


def test_without_a_checkpoint_the_run_starts_at_step_0_and_the_old_lines_are_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """system-016"""
    run, config = make_run(tmp_path, 2)
    shutil.rmtree(run / "checkpoints")
    (run / ANSWERS).write_text("paid for")
    assert go_back(Journal(config, "resume"), config, ALONE, DATA) is None
    assert "starts at step 0" in capsys.readouterr().out
    assert read_lines(tmp_path / "run.old-1" / "metrics.jsonl") == [{"step": 2}]
    assert not (run / "metrics.jsonl").exists()
    assert (run / "config.json").exists()
    assert (run / ANSWERS).read_text() == "paid for", "they are not asked again"


@pytest.mark.parametrize("last", range(5))
def test_a_start_at_step_0_that_is_killed_anywhere_loses_no_answer(
    tmp_path: Path, last: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """last: renames that are done before the kill, of five in all, the journal's own write of config.json first."""

    class Killed(BaseException):
        pass

    def replace_or_die(*paths: Any) -> None:
        if len(done) == last:
            raise Killed
        done.append(rename(*paths))

    run, config = make_run(tmp_path, 2)
    shutil.rmtree(run / "checkpoints")
    (run / ANSWERS).write_text("paid for")
    done: list[None] = []
    rename = os.replace
    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", replace_or_die)
        with pytest.raises(Killed):
            go_back(Journal(config, "resume"), config, ALONE, DATA)
    with pytest.raises(UserError, match="already holds a run"):
        Journal(config)
    journal = Journal(config, "resume")
    assert go_back(journal, config, ALONE, DATA) is None
    assert (run / ANSWERS).read_text() == "paid for"
    assert not journal.has_lines
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run", "run.old-1"]
    assert read_lines(tmp_path / "run.old-1" / "metrics.jsonl") == [{"step": 2}]


def test_where_every_checkpoint_is_broken_nothing_is_touched(tmp_path: Path) -> None:
    run, config = make_run(tmp_path, 2)
    flip(run / "checkpoints" / "step_000002" / "progress.json")
    with pytest.raises(UserError, match="no checkpoint is whole"):
        go_back(Journal(config, "resume"), config, ALONE, DATA)
    assert (run / "checkpoints" / "step_000002").exists()
    assert read_lines(run / "metrics.jsonl") == [{"step": 2}]


def test_another_number_of_ranks_is_refused_in_words(tmp_path: Path) -> None:
    _, config = make_run(tmp_path, 2, ranks=2)
    with pytest.raises(UserError, match="written by 2 ranks, and 1 are here"):
        go_back(Journal(config, "resume"), config, ALONE, DATA)


def test_data_that_changed_since_the_checkpoint_is_refused_in_words(tmp_path: Path) -> None:
    run, config = make_run(tmp_path, 2)
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"step": 3}\n')
    changed = {**DATA, "the train examples": "another"}
    with pytest.raises(UserError, match=r"step_000002: the train examples are not what the run was trained on"):
        go_back(Journal(config, "resume"), config, ALONE, changed)
    assert [line["step"] for line in read_lines(run / "metrics.jsonl")] == [2, 3], "nothing is cut"


def test_the_hash_of_data_tells_every_part_of_it() -> None:
    hashes = data_hashes({"rows": [ROW], "dev": ()})
    assert hashes == data_hashes({"rows": [ROW], "dev": ()})
    assert data_hashes({"rows": [replace(ROW, instruction="?\udc80")], "dev": ()})["rows"] != hashes["rows"]


def test_answers_alone_make_a_run_that_a_new_start_does_not_write_over(tmp_path: Path) -> None:
    run, config = make_run(tmp_path)
    (run / ANSWERS).write_bytes(b"")
    Journal(config)
    (run / ANSWERS).write_text('{"key": "00"}\n')
    with pytest.raises(UserError, match="already holds a run"):
        Journal(config)
    assert go_back(Journal(config, "resume"), config, ALONE, DATA) is None
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
    assert (run / ANSWERS).read_text() == '{"key": "00"}\n'


def test_a_run_is_gone_on_with_or_set_aside_but_never_written_over(tmp_path: Path) -> None:
    run, config = make_run(tmp_path, 2)
    with pytest.raises(UserError, match="--resume"):
        Journal(config)
    for number in (1, 2):
        Journal(config, "overwrite").write_step({"step": 7 + number})
        assert read_lines(run / "metrics.jsonl") == [{"step": 7 + number}]
    assert read_lines(tmp_path / "run.old-1" / "metrics.jsonl") == [{"step": 2}]
    assert read_lines(tmp_path / "run.old-2" / "metrics.jsonl") == [{"step": 8}]


HOLDER = """
import os, sys, time
from pathlib import Path
from prewrite.reporting.run_lock import only_run_in
with only_run_in(Path(sys.argv[1])):
    if os.fork():
        print("held", flush=True)
    time.sleep(60)
"""


@pytest.mark.parametrize("how", ["--resume", "--overwrite"])
def test_a_second_run_in_the_folder_is_refused_while_the_first_lives(
    tmp_path: Path, how: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first is killed by SIGKILL, and a process that it forked lives on."""
    monkeypatch.setattr("prewrite.training.engines.OUTLIVED", 1)

    def second() -> str:
        settings = (f"output_dir={tmp_path}", "run_name=run", "base_url=http://127.0.0.1:9/v1", "max_retries=0")
        assert train_here(*SMALL, *with_settings(*settings), how) == 2
        return capsys.readouterr().err

    run, _ = make_run(tmp_path, 2)
    before = contents(tmp_path)
    first = start([sys.executable, "-c", HOLDER, str(run)])
    try:
        assert first.stdout is not None
        assert first.stdout.readline() == "held\n"
        told = second()
        assert f"run folder {run}: another run (process {first.pid} on host " in told
        assert "Traceback" not in told
        assert contents(tmp_path) == before | contents(tmp_path, ".run.lock")
        first.kill()
        first.wait()
        assert "writes to it" not in second()
    finally:
        os.killpg(first.pid, signal.SIGKILL)
        first.communicate()


def test_a_run_that_goes_on_waits_for_a_rank_that_outlives_its_launcher(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = start([sys.executable, "-c", HOLDER, str(tmp_path / "run")])
    assert first.stdout is not None
    assert first.stdout.readline() == "held\n"
    ends = threading.Timer(1.5, os.killpg, (first.pid, signal.SIGKILL))
    ends.start()
    try:
        with only_run_in(tmp_path / "run", patience=60):
            assert first.poll() is not None
        assert "waiting 60 seconds for its end" in capsys.readouterr().out
    finally:
        ends.join()
        first.communicate()


def test_where_the_file_system_knows_no_locks_the_run_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "lockf", refuse)
    with only_run_in(tmp_path / "run"):
        make_run(tmp_path, 2)


def test_settings_that_decide_what_is_learned_cannot_change_in_the_middle(tmp_path: Path) -> None:
    run, _ = make_run(tmp_path, 2)
    here = [f"output_dir={tmp_path}", "run_name=run"]
    before = (run / "config.json").read_text()
    changed = [*here, "learning_rate=1", "seed=7", "max_steps=99"]
    with pytest.raises(UserError, match=r"(?s)  - seed: 1 there, 7 now.*training\.learning_rate") as refused:
        Journal(load_config(CONFIG, changed), "resume")
    assert "max_steps" not in str(refused.value)
    assert (run / "config.json").read_text() == before
    Journal(load_config(CONFIG, [*here, "max_steps=99", "save_steps=3"]), "resume")
    assert json.loads((run / "config.json").read_text())["training"]["max_steps"] == 99


def test_the_table_of_what_may_change_names_settings_that_there_are() -> None:
    known = {where: set(model.model_fields) for where, model in sections()}
    assert {where: keys - known[where] for where, keys in MAY_CHANGE.items() if keys - known[where]} == {}


def test_the_newest_checkpoint_is_the_one_of_the_latest_step(tmp_path: Path) -> None:
    run, _ = make_run(tmp_path, 2, 10)
    checkpoint, broken = newest_whole(run / "checkpoints")
    assert checkpoint is not None
    assert (checkpoint.step, broken) == (10, {})


def training(output_dir: Path, model: str, server: FaultServer, *settings: str) -> list[str]:
    """The arguments of a small run in float32 that looks, changes its requests, and saves every second step."""
    own = (
        *(f"output_dir={output_dir}", f"policy.model={model}", f"base_url={server.base_url}", "task_model.model=task"),
        *("lr_scheduler_type=linear", "warmup_steps=1"),
        *("policy.dtype=float32", "learning_rate=1e-4", "max_steps=4", "save_steps=2", "eval_steps=2", "num_sampled=1"),
        *("num_parents=2", "num_races=2"),
        *("beta=0.04", "sync_ref_model=true", "ref_model_sync_steps=1"),
    )
    return ["train.py", *SMALL, *with_settings(*own, *settings)]


def told(run: Path) -> dict[str, list[dict[str, Any]]]:
    """What the run wrote down, without how long it took."""
    clocks = ("seconds/", "tokens_per_second/", "rewrites_per_second")
    return {
        name: [{k: v for k, v in line.items() if not k.startswith(clocks)} for line in read_lines(run / name)]
        for name in LINES
    }


@pytest.mark.slow
@pytest.mark.parametrize(("ranks", "signum"), [(1, signal.SIGTERM), (2, signal.SIGKILL)], ids=["stopped", "killed"])
def test_a_run_that_is_stopped_or_killed_and_resumed_ends_as_one_that_was_not(
    tmp_path: Path, talkative_model: str, ranks: int, signum: signal.Signals
) -> None:
    """system-017, system-019: rows, rates, moments go on. No answer that was there is asked for again.

    SIGTERM ends one rank after its step, with the only checkpoint of its start. Two ranks train in three stages, each
    but the first from the base model; the kill is in the second.
    """
    stages = three_stages(tmp_path) if ranks > 1 else ()
    with FaultServer(a_label) as server:
        command = training(tmp_path / "whole", talkative_model, server, *stages)
        code, stdout, stderr = finish(start_loaded(*command, ranks=ranks))
        assert code == 0, stdout[-3000:] + stderr[-3000:]
        asked = len(server.bodies)
        ended = tmp_path / "ended" / "quickstart"
        saving = ("save_steps=0",) if signum == signal.SIGTERM else ()
        command = training(tmp_path / "ended", talkative_model, server, *stages, *saving)
        process = start_loaded(*command, ranks=ranks)
        deadline = time.monotonic() + 400
        # At the kill step 3 is written down and no checkpoint has it; its lines must not be there twice.
        reached = '"step": 1' if signum == signal.SIGTERM else '"step": 3'
        while reached not in (lines.read_text() if (lines := ended / "metrics.jsonl").exists() else ""):
            assert time.monotonic() < deadline
            assert process.poll() is None
            time.sleep(0.05)
        if signum == signal.SIGTERM:
            process.send_signal(signum)
            check_stop(ended, finish(process, timeout=120))
        else:
            os.killpg(process.pid, signum)
            finish(process)
            time.sleep(1)  # what the server has read is in its list by now
        answered = len((ended / ANSWERS).read_bytes().splitlines())
        under_way = len(server.bodies) - asked - answered
        latest = max(path.name for path in (ended / "checkpoints").glob("step_*"))
        code, stdout, stderr = finish(start_loaded(*command, "--resume", ranks=ranks))
        assert code == 0, stdout[-3000:] + stderr[-3000:]
        # Beside what was under way, the ended run's requests are those of the whole one, and a first question a start.
        assert len(server.bodies) - 2 * asked == under_way
    whole = tmp_path / "whole" / "quickstart"
    assert f"going on after step {int(latest[-1])}, from" in stdout
    first, second = told(whole), told(ended)
    if ranks == 1:
        assert [line["step"] for line in second["metrics.jsonl"]] == [0, 1, 2, 3, 4]
        rates = {line["learning_rate"] for line in first["metrics.jsonl"] if "learning_rate" in line}
        assert len(rates) > 2, "the schedule moves"
    else:
        check_stages(ended, Path(talkative_model), stdout)
    assert any(line.get("grad_norm") for line in first["metrics.jsonl"][3:]), "steps after the checkpoint teach"
    assert second == first
    for model in ("", "reference"):
        before, ours, theirs = (
            load_file(run / "checkpoints" / step / model / "model.safetensors")
            for run, step in ((whole, "step_000002"), (whole, "step_000004"), (ended, "step_000004"))
        )
        assert max(float((ours[name] - before[name]).abs().max()) for name in ours) > 1e-5, "weights move"
        assert max(float((ours[name] - theirs[name]).abs().max()) for name in ours) < 1e-6


def check_stop(run: Path, ended: tuple[int, str, str]) -> None:
    """What a run leaves and says that a signal ended after its step."""
    code, _, stderr = ended
    assert code == 130, stderr[-3000:]
    assert "stopping after this step" in stderr
    assert "Traceback" not in stderr
    last = read_lines(run / "metrics.jsonl")[-1]["step"]
    assert last < 4
    checkpoint, broken = newest_whole(run / "checkpoints")
    assert checkpoint is not None
    assert (checkpoint.step, broken) == (last, {})
    assert {line["step"] for line in read_lines(run / "log.jsonl")} == set(range(1, last + 1))


TERM, INT, USR1 = signal.SIGTERM, signal.SIGINT, signal.SIGUSR1


@pytest.mark.parametrize(
    ("signals", "seconds_between", "last"),
    [
        ((TERM, TERM, INT, TERM, INT), 0.0, 4),  # launchers send bursts; a second Ctrl-C is a person's
        ((TERM, TERM), 4.0, None),
        ((TERM, TERM), 6.0, 1),
        ((USR1, TERM, USR1), 6.0, 2),
        ((INT, TERM), 6.0, None),
    ],
)
def test_a_second_signal_leaves_at_once_but_not_a_burst(
    monkeypatch: pytest.MonkeyPatch, signals: tuple[int, ...], seconds_between: float, last: int | None
) -> None:
    """last: which of them ends the run at once; None = it stops after its step."""
    monkeypatch.setattr("prewrite.training.stopping.distributed.gather", lambda value: [False, value])
    sent: list[int | None] = []

    def asked() -> None:
        with Stopping() as stopping:
            assert not stopping.agreed()
            for place, signum in enumerate(signals):
                monkeypatch.setattr("prewrite.training.stopping._now", lambda: len(sent) * seconds_between)
                sent.append(place)
                os.kill(os.getpid(), signum)
                assert stopping.agreed()
            sent.append(None)

    with pytest.raises(KeyboardInterrupt):
        asked()
    assert sent[-1] == last
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_rank_that_was_not_asked_stops_with_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("prewrite.training.stopping.distributed.gather", lambda value: [True, value])
    with pytest.raises(KeyboardInterrupt), Stopping() as stopping:
        assert stopping.agreed()


def test_what_ends_the_last_step_is_told_and_the_run_counts_as_stopped(capsys: pytest.CaptureFixture[str]) -> None:
    def end(*asked: int) -> None:
        with Stopping():
            for signum in asked:
                os.kill(os.getpid(), signum)
            raise UserError("the endpoint is gone")

    with pytest.raises(UserError):
        end()
    assert capsys.readouterr().err == ""
    with pytest.raises(KeyboardInterrupt):
        end(signal.SIGTERM)
    assert "the endpoint is gone" in capsys.readouterr().err


def test_a_file_that_cannot_be_written_whole_is_told_in_words(tmp_path: Path) -> None:
    draft = tmp_path / ".step_000002.part"
    draft.mkdir()
    _, hard = limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, hard))
    try:
        told = r"step_000002 cannot be written.*Earlier ones are as they were"
        with pytest.raises(UserError, match=told), _faults_told(draft):
            torch.save({"a": torch.zeros(1 << 20)}, draft / "rank_00000.pt")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_beyond_the_limit_the_oldest_go_and_the_best_stays(tmp_path: Path) -> None:
    for step, score in ((2, 0.5), (4, 0.9), (6, 0.4), (8, None), (10, 0.6)):
        make_checkpoint(tmp_path, step, score=score)
    folder = tmp_path / "checkpoints"

    def left(limit: int | None) -> list[int]:
        _drop_old(folder, limit)
        return sorted(int(path.name[5:]) for path in folder.iterdir())

    assert left(None) == [2, 4, 6, 8, 10]
    assert left(3) == [4, 8, 10]
    assert left(2) == [4, 10]
    assert left(1) == [10]

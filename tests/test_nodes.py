"""Several machines, played by launchers with a meeting point and working folders of their own."""

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import psutil
import pytest

from prewrite.engine.agreement import refuse_differences
from prewrite.engine.distributed import free_port
from prewrite.errors import UserError
from tests.fault_server import FaultServer, Reply, query_of
from tests.launching import ROOT, SMALL_SETTINGS, descendants, finish, start, start_nodes, with_settings
from tests.test_train import a_label, read_lines

HARD_TEXT = (
    'Give JSON like {"a": 1} for {x}. A = {1; 2; 3}, {} and {0}. {question.__class__.__mro__} %s $x '
    "漢字 👩‍🚀 e\u0301 \u2028 positive or negative?"
)
HARD_ARGUMENT = """Say "it's" [better] $HOME `id` * \\n {x}; #"""
QUICKSTART = ("--config", str(ROOT / "configs" / "quickstart.json"), *SMALL_SETTINGS)


def two_folders(folder: Path) -> tuple[Path, Path]:
    """The working folders of two machines."""
    folders = (folder / "a", folder / "b")
    for one in folders:
        one.mkdir()
    return folders


def end(processes: Sequence[subprocess.Popen[str]]) -> None:
    """Nothing of their sessions is left, however the test went."""
    for process in processes:
        for member in psutil.process_iter():
            try:
                if os.getsid(member.pid) == process.pid:
                    member.kill()
            except (ProcessLookupError, psutil.NoSuchProcess):
                pass


@pytest.mark.slow
@pytest.mark.parametrize(("launcher", "broken"), [("torchrun", "reward"), ("deepspeed", "loss")])
def test_two_nodes_train_and_a_second_step_that_breaks_on_one_ends_both(
    launcher: str, broken: str, tmp_path: Path, shallow_model: str
) -> None:
    """system-034. No launcher ends the rank that is well, so it must learn of the fault. Both functions are a user's.

    On an instruction that formatting or a default encoding would break: system-054, system-055, system-056, system-057.
    Arguments arrive whole, and the run folder is rank 0's.
    """
    functions = {
        "reward": ("tests.ranks.broken_reward:breaks_on_rank_1", "tests.ranks.broken_loss:reinforce"),
        "loss": ("tests.ranks.broken_reward:length", "tests.ranks.broken_loss:nan_in_the_second_step"),
    }
    reward, loss = functions[broken]
    folders = two_folders(tmp_path)
    for folder in folders:
        row = {"instruction": HARD_TEXT, "dataset_name": "sentiment"}
        (folder / "rows.jsonl").write_text(json.dumps(row, ensure_ascii=False), "utf-8")
    with FaultServer(a_label) as server:
        settings = with_settings(
            *(f"policy.model={shallow_model}", f"base_url={server.base_url}", "task_model.model=task"),
            *("data.tasks=[]", "instructions_file=rows.jsonl", f"meta_instruction={HARD_ARGUMENT}"),
            *(f'reward_funcs=["{reward}"]', f"loss_type={loss}", "max_completion_length=12"),
        )
        command = [str(ROOT / "train.py"), *QUICKSTART, *settings]
        # vLLM compiles a line of its sampler, seconds of each start.
        nodes = start_nodes(launcher, folders, command, command, LC_ALL="C", TORCHDYNAMO_DISABLE="1")
        try:
            ends = [finish(node, timeout=400) for node in nodes]
        finally:
            end(nodes)
        queries = [query_of(body) for body in server.bodies]
    told = "".join(stderr for _, _, stderr in ends)
    # torchrun makes 1 of every code, with a traceback of its own.
    assert [code for code, _, _ in ends] == ([2, 2] if launcher == "deepspeed" else [1, 1]), told[-6000:]
    (run,) = [folder / "runs" / "quickstart" for folder in folders if (folder / "runs").exists()]
    settings_used = json.loads((run / "config.json").read_text("utf-8"))
    assert settings_used["rollout"]["meta_instruction"] == HARD_ARGUMENT
    assert settings_used["reward"]["reward_funcs"] == [reward]
    (first,) = read_lines(run / "metrics.jsonl")
    assert (first["step"], first["grad_norm"] > 0) == (1, True)
    log = read_lines(run / "log.jsonl")
    assert {row["instruction"] for row in log} == {HARD_TEXT}
    arrived = {query for query in queries if query.startswith(f"{HARD_TEXT}\nSentence: ")}
    assert len(arrived) >= 12, "one for each dev example, and more in the race"
    (told_by_0,) = [stderr for _, stdout, stderr in ends if "step 1/2" in stdout]
    (told_by_1,) = [stderr for _, stdout, stderr in ends if "step 1/2" not in stdout]
    if broken == "reward":
        fault = "it raised ZeroDivisionError: the reward broke ("
        assert told_by_1.count(f"train.py: reward {reward}: {fault}") == 1
        assert told_by_0.count(f"train.py: rank 1 failed while scoring rewrites: reward {reward}: {fault}") == 1
        assert [row["step"] for row in log] == [1] * 8
    else:  # every rank knows it, and the first of each machine tells it
        fault = "train.py: step 2: the loss is nan in rows 4 to 7, counted from 0 in the lines of log.jsonl's step 2."
        assert (told_by_0.count(fault), told_by_1.count(fault)) == (1, 1)
        assert [row["step"] for row in log] == [1] * 8 + [2] * 8


@pytest.mark.slow
def test_ranks_that_differ_are_refused_in_words_on_both(tmp_path: Path, shallow_model: str) -> None:
    """One start of two ranks with a folder of the program each; what differs, differs in one round alone."""
    folders = two_folders(tmp_path)
    copy = folders[1] / "program"
    shutil.copytree(ROOT / "prewrite", copy / "prewrite", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "train.py", copy)
    for name, folder in zip("ab", folders, strict=True):
        (folder / "same.jsonl").write_text('{"instruction": "Positive or negative?", "dataset_name": "sentiment"}\n')
        (folder / "other.jsonl").write_text(
            f'{{"instruction": "Positive or negative, {name}?", "dataset_name": "sentiment"}}\n'
        )
    (folders[0] / "model").symlink_to(shallow_model)
    rounds = {
        "code and a setting": ({"file": str(copy / "prewrite" / "extra.py")}, ["seed=1"], ["seed=2", "beta=0.5"]),
        "a server of rank 0's own": ({}, ["base_url=null"], ["base_url=null"]),
        "data": ({}, ["instructions_file=other.jsonl"], ["instructions_file=other.jsonl"]),
        "a model that one has not": ({}, ["policy.model=model"], ["policy.model=model"]),
        "the run folder": ({}, ["output_dir=/proc/self/cwd/runs"], ["output_dir=/proc/self/cwd/runs"]),
        "a key": ({}, ["task_model.api_key_env=PREWRITE_KEY"], ["task_model.api_key_env=PREWRITE_KEY"]),
        "nothing": ({}, [], []),
    }
    shared = (f"policy.model={shallow_model}", "data.tasks=[]", "instructions_file=same.jsonl", "max_retries=0")
    shared = (*shared, "base_url=http://127.0.0.1:9/v1", "output_dir=runs")
    starts: tuple[list[dict], list[dict]] = ([], [])
    for number, (only_1, *settings) in enumerate(rounds.values()):
        port = str(free_port())
        for rank in (0, 1):
            arguments = [*QUICKSTART, *with_settings(*shared, f"run_name=round{number}", *settings[rank])]
            environment = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
            if rank == 0:
                environment["PREWRITE_KEY"] = "s3cret"
            one = {"arguments": arguments, "environment": environment, "host": f"host{rank}"}
            starts[rank].append(one | (only_1 if rank else {}))
    ranks = []
    for rank, (folder, own) in enumerate(zip(folders, starts, strict=True)):
        (folder / "starts.json").write_text(json.dumps(own))
        program = str(ROOT) if rank == 0 else f"{copy}{os.pathsep}{ROOT}"
        command = [sys.executable, str(ROOT / "tests" / "ranks" / "starts.py"), "starts.json", "found.json"]
        world = {"RANK": str(rank), "LOCAL_RANK": "0", "WORLD_SIZE": "2", "GROUP_RANK": str(rank)}
        ranks.append(start(command, ranks=2, cwd=folder, **world, PYTHONPATH=program))
    try:
        outputs = [finish(process, timeout=240) for process in ranks]
    finally:
        end(ranks)
    assert [code for code, _, _ in outputs] == [0, 0], outputs
    found = [dict(zip(rounds, json.loads((folder / "found.json").read_text()), strict=True)) for folder in folders]
    assert {code for by_round in found for code, _ in by_round.values()} == {2}, found
    told = {name: (found[0][name][1], found[1][name][1]) for name in rounds}
    for name in ("code and a setting", "a server of rank 0's own", "data", "the run folder"):
        assert told[name][0] == told[name][1], "every rank has the same message"
    head, *lines = told["code and a setting"][0].splitlines()
    assert head.startswith("train.py: the ranks do not agree; ")
    assert [line.partition(":")[0] for line in lines] == [
        "  - the hash of prewrite's code",
        "  - seed",
        "  - loss.beta",
    ]
    assert lines[1] == "  - seed: 1 on rank 0 (host0); 2 on rank 1 (host1)"
    assert "base_url is null" in told["a server of rank 0's own"][0]
    assert "host0, host1" in told["a server of rank 0's own"][0]
    data_lines = [line.partition(":")[0] for line in told["data"][0].splitlines()[1:]]
    assert [line.removeprefix("  - the hash of ") for line in data_lines] == [
        "the instruction rows",
        "the requests, by the policy's tokenizer and chat template",
    ]
    assert told["a model that one has not"][1].startswith("train.py: policy.model")
    assert "train.py: rank 1 failed while reading its data: policy.model" in told["a model that one has not"][0]
    folder = "run folder /proc/self/cwd/runs/round4 of rank 0 (host0) is not seen by rank 1 (host1)"
    assert folder in told["the run folder"][0]
    assert all("PREWRITE_KEY" in words or "api_key_env" in words for words in told["a key"])
    assert not any("s3cret" in words for pair in told.values() for words in pair)
    assert "nothing answers" in told["nothing"][0], "both ranks agree, and rank 1 sees the folder that rank 0 has made"
    assert "rank 0 failed while asking the task model a first question" in told["nothing"][1]
    assert (folders[0] / "runs" / "round6" / "config.json").is_file()
    assert not list(folders[0].rglob(".seen-*"))
    assert not (folders[1] / "runs" / "round6").exists()


@pytest.mark.slow
@pytest.mark.parametrize(("launcher", "killed"), [("torchrun", "launcher"), ("deepspeed", "node")])
def test_a_node_that_is_killed_ends_the_other(launcher: str, killed: str, tmp_path: Path, shallow_model: str) -> None:
    """Rank 1 waits in a collective while rank 0 asks its first question. By SIGKILL go rank 1's launcher alone, whose
    rank then has to end itself, or the whole node of rank 0."""
    folders = two_folders(tmp_path)
    answered = threading.Event()

    def late(body: dict, tried: int) -> Reply:
        answered.wait(120)
        return a_label(body, tried)

    with FaultServer(late) as server:
        settings = (f"policy.model={shallow_model}", f"base_url={server.base_url}", "task_model.model=task")
        command = [str(ROOT / "train.py"), *QUICKSTART, *with_settings(*settings)]
        nodes = start_nodes(launcher, folders, command, command)
        try:
            deadline = time.monotonic() + 200
            while not server.bodies and time.monotonic() < deadline and all(node.poll() is None for node in nodes):
                time.sleep(0.2)
            assert server.bodies, [finish(node, timeout=30)[2][-3000:] for node in nodes]
            by_rank = {}
            for node in nodes:
                (worker,) = [one for one in descendants(node) if is_rank(one) and not is_rank(one.parent())]
                by_rank[int(worker.environ()["RANK"])] = (node, worker)
            (node_0, worker_0), (node_1, worker_1) = by_rank[0], by_rank[1]
            began = time.monotonic()
            if killed == "launcher":
                node_1.kill()
                worker_1.wait(30)
                answered.set()
                other = node_0
            else:
                for one in [*descendants(node_0), psutil.Process(node_0.pid)]:
                    one.send_signal(signal.SIGKILL)
                other = node_1
            code, _, stderr = finish(other, timeout=120 - (time.monotonic() - began))
            assert code != 0, stderr
            _, told = (node_1 if killed == "launcher" else node_0).communicate(timeout=10)
        finally:
            answered.set()
            end(nodes)
    # The launcher of rank 1 may have kept the ranks' meeting point, whose end a rank meets before its own watch does.
    ended_itself = "the launcher of rank 1 has died" in told or "remote worker crashing" in told
    assert ended_itself == (killed == "launcher"), told
    assert not worker_0.is_running()
    assert not worker_1.is_running()


def is_rank(process: psutil.Process) -> bool:
    return "RANK" in process.environ()


def slurm(*arguments: str, script: Path = ROOT / "scripts" / "slurm.sh", **environment: str) -> tuple[int, str, str]:
    path = {"PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])}
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM_", "OMP_"))}
    command = ["bash", str(script), *arguments]
    done = subprocess.run(command, env=clean | path | environment, capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout, done.stderr


TRAINING = (
    "--config",
    "configs/math.json",
    "--set",
    'data.tasks=["copa"]',
    "--set",
    f"data.instruction={HARD_ARGUMENT}",
)


def test_slurm_runs_what_its_dry_run_prints_with_arguments_whole(tmp_path: Path) -> None:
    code, stdout, _ = slurm("--dry-run", *TRAINING)
    assert code == 0
    printed = shlex.split(stdout.partition(": ")[2].partition(": ")[2])
    assert printed[0] == "srun"
    assert printed[-1 - len(TRAINING) :] == ["train.py", *TRAINING]
    assert printed[printed.index("--rdzv-endpoint") + 1] == "FIRST_NODE:20000"
    # As in a job: the script is a copy of Slurm's, and its two programs are there.
    for name, body in {"srun": 'printf "%s\\0" "$PWD" "$@"', "scontrol": 'printf "node7\\nnode9\\n"'}.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{body}\n")
        (tmp_path / name).chmod(0o755)
    copy = shutil.copy(ROOT / "scripts" / "slurm.sh", tmp_path / "slurm_script")
    job = {"SLURM_JOB_ID": "123456", "SLURM_JOB_NODELIST": "node[7,9]", "SLURM_JOB_NUM_NODES": "2"}
    cores = {"SLURM_CPUS_ON_NODE": "96", "SLURM_GPUS_ON_NODE": "8", "SLURM_SUBMIT_DIR": str(ROOT)}
    bins = {"PATH": os.pathsep.join([str(tmp_path), str(Path(sys.executable).parent), os.environ["PATH"]])}
    code, stdout, stderr = slurm(*TRAINING, script=Path(copy), **job, **cores, **bins)
    assert code == 0, stderr
    folder, *run = stdout.partition("\n")[2].removesuffix("\0").split("\0")
    assert Path(folder).resolve() == ROOT.resolve()
    _, stdout, _ = slurm("--dry-run", *TRAINING, script=Path(copy), **job, **cores, **bins)
    assert run == shlex.split(stdout.partition(": ")[2].partition(": ")[2])[1:]
    assert run[-1 - len(TRAINING) :] == ["train.py", *TRAINING]
    assert {"node7:23456", "OMP_NUM_THREADS=12"} <= set(run)


def test_slurm_refuses_in_words(tmp_path: Path) -> None:
    for arguments, environment, words in (
        ((), {}, "no arguments for train.py"),
        (TRAINING, {}, "not in a Slurm job"),
        (TRAINING, {"SLURM_SUBMIT_DIR": str(tmp_path)}, "call sbatch in the project's root"),
    ):
        code, stdout, stderr = slurm(*arguments, **environment)
        assert (code, stdout) == (2, "")
        assert words in stderr


def test_ranks_and_machines_that_differ_are_named() -> None:
    ranks = [{"torch": "2.1", "seed": "1"}] * 4 + [{"torch": "2.2", "seed": "1"}] * 3 + [{"seed": "1"}]
    with pytest.raises(UserError) as caught:
        refuse_differences(ranks, ["a"] * 4 + ["b"] * 4)
    assert str(caught.value).splitlines()[1:] == [
        "  - torch: 2.1 on ranks 0 to 3 (a); 2.2 on ranks 4 to 6 (b); absent on rank 7 (b)"
    ]
    refuse_differences([{"torch": "2.1"}] * 3, ["a", "b", "c"])
    with pytest.raises(UserError, match=r"2 on ranks 0, 2 \(a, c\); 1 on rank 1 \(b\)"):
        refuse_differences([{"x": "2"}, {"x": "1"}, {"x": "2"}], ["a", "b", "c"])

"""Kills a training run at random moments, goes on with it each time, and compares it with one that ran in peace.

    python -m scripts.kill_and_resume FOLDER --kills 20 --ranks 2
    python -m scripts.kill_and_resume FOLDER --kills 20 --ranks 2 --seconds 280     in pieces: call it until it is done

A random model of two layers rewrites in float32, against an endpoint in this process whose answers depend on the query
alone. Every third kill comes while a checkpoint is being written, every fourth while the run starts, the rest anywhere.
At the end it prints what was killed when, and exits with 1 unless the killed run's lines are those of the other one,
every checkpoint is whole, and no more calls were asked again than can have been under way.
"""

import argparse
import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
import zlib
from pathlib import Path
from typing import Any

from prewrite.engine.task_probe import PROBE_QUERY
from tests.conftest import save_random_model
from tests.fault_server import FaultServer, Reply, completion, query_of
from tests.launching import SMALL, launched, start, with_settings

LINES = ("log.jsonl", "metrics.jsonl", "dev.jsonl")
CLOCKS = ("seconds/", "tokens_per_second/", "rewrites_per_second")
CONCURRENCY = 8
CYCLE_SECONDS = 100  # a start, some steps, and the end of the processes


def a_label(body: dict[str, Any], tried: int) -> Reply:
    """An answer that depends on the query alone, after a while, so that calls are under way when a kill comes."""
    return Reply(body=completion(("negative", "positive")[zlib.crc32(query_of(body).encode()) % 2]), delay=0.05)


class Runs:
    """The two runs in a folder, and what is known of them, which outlives this process."""

    def __init__(self, folder: Path, ranks: int, kills: int, steps: int):
        self.folder, self.ranks, self.kills, self.steps = folder, ranks, kills, steps
        self.notes: dict[str, Any] = {"killed": [], "requests": {"killed": [], "peace": []}, "done": []}
        if (notes := folder / "notes.json").exists():
            self.notes = json.loads(notes.read_text())
        self.model = folder / "model"
        if not self.model.exists():
            save_random_model(str(self.model), end_every=12)

    def command(self, name: str, base_url: str) -> list[str]:
        own = (
            *(f"output_dir={self.folder / name}", f"policy.model={self.model}", f"base_url={base_url}"),
            *("task_model.model=task", "policy.dtype=float32", "learning_rate=1e-4", f"max_steps={self.steps}"),
            *("save_steps=1", "save_total_limit=3", "eval_steps=5", "num_sampled=1", "num_parents=2", "num_races=2"),
            f"concurrency={CONCURRENCY}",
        )
        return launched(self.ranks, "train.py", *SMALL, *with_settings(*own), "--resume")

    def run_of(self, name: str) -> Path:
        return self.folder / name / "quickstart"

    def go(self, name: str, kill: str = "") -> bool:
        """One start of a run, to its end or to a kill; whether it came to its end."""
        with FaultServer(a_label) as server:
            process = start(self.command(name, server.base_url), ranks=self.ranks)
            with (self.folder / f"{name}.log").open("a") as log:
                _follow(process.stdout, log)
                _follow(process.stderr, log)
                try:
                    if kill:
                        self._wait(process, self.run_of(name), kill)
                    else:
                        process.wait()
                finally:
                    if process.poll() is None:
                        os.killpg(process.pid, signal.SIGKILL)
                code = process.wait()
            asked = [body for body in server.bodies if PROBE_QUERY not in query_of(body)]
            hashes = [hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()[:16] for body in asked]
            self.notes["requests"][name] += hashes
        if code == 0:
            self.notes["done"].append(name)
        elif not kill or code != -signal.SIGKILL:
            sys.exit(f"a start ended with exit code {code}: see {self.folder / f'{name}.log'}")
        (self.folder / "notes.json").write_text(json.dumps(self.notes))
        return code == 0

    def _wait(self, process: "subprocess.Popen[str]", run: Path, kill: str) -> None:
        """Until the moment of a kill of this kind, or the run's end."""
        began, before = time.monotonic(), last_step(run)
        moment = {"start": random.uniform(1, 25), "save": random.uniform(0, 0.15), "any": random.uniform(0, 2.5)}[kill]
        while kill != "start" and process.poll() is None:
            saving = any((run / "checkpoints").glob(".step_*.part"))
            if saving if kill == "save" else last_step(run) > before:
                break
            time.sleep(0.005)
        time.sleep(moment)
        drafts = [path.name for path in (run / "checkpoints").glob(".step_*.part")]
        note = {"kind": kill, "after_seconds": round(time.monotonic() - began, 2), "step": last_step(run)}
        self.notes["killed"].append(note | {"in_a_save": bool(drafts)})
        print(self.notes["killed"][-1], flush=True)

    def kind(self) -> str:
        """Of the next kill."""
        number = len(self.notes["killed"]) + 1
        return "save" if number % 3 == 0 else "start" if number % 4 == 0 else "any"

    def compared(self) -> list[str]:
        """What is wrong with the killed run; nothing is best."""
        from prewrite.training.checkpoint import all_in, fault

        wrong, (peace, killed) = [], (self.run_of("peace"), self.run_of("killed"))
        for name in LINES:
            first, second = told(peace / name), told(killed / name)
            if first != second:
                wrong.append(f"{name}: {len(first)} lines in peace, {len(second)} killed, or others")
        wrong += [f"{path}: {why}" for path in all_in(killed / "checkpoints") if (why := fault(path))]
        requests = self.notes["requests"]
        again = len(requests["killed"]) - len(requests["peace"])
        most = CONCURRENCY * self.ranks * len(self.notes["killed"])
        print(f"calls: {len(requests['peace'])} in peace, {again} more where it was killed; under way at most {most}")
        kept = sum(1 for _ in (killed / "answers.jsonl").open())
        if not 0 <= again <= most:
            wrong.append(f"{again} calls were asked again")
        if kept != len(requests["peace"]):
            wrong.append(f"{kept} answers were kept of {len(requests['peace'])}")
        return wrong


def _follow(stream: Any, log: Any) -> None:
    """Takes a process's output into a file, so that its pipe is never full."""

    def copy() -> None:
        for line in stream:
            log.write(line)
            log.flush()

    threading.Thread(target=copy, daemon=True).start()


def last_step(run: Path) -> int:
    """The last step in metrics.jsonl; -1 without one."""
    try:
        lines = (run / "metrics.jsonl").read_text().splitlines()
        return int(json.loads(lines[-1])["step"])
    except (OSError, IndexError, ValueError):
        return -1


def told(path: Path) -> list[dict[str, Any]]:
    """The lines, without how long things took."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return [{key: value for key, value in line.items() if not key.startswith(CLOCKS)} for line in lines]


def main() -> int:
    """0 = the killed run is as the other; 1 = it is not; 3 = call again."""
    parser = argparse.ArgumentParser("kill_and_resume", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no other start after so long")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    arguments.folder.mkdir(parents=True, exist_ok=True)
    runs = Runs(arguments.folder.resolve(), arguments.ranks, arguments.kills, arguments.steps)
    deadline = time.monotonic() + arguments.seconds - CYCLE_SECONDS
    while len(runs.notes["killed"]) < arguments.kills and "killed" not in runs.notes["done"]:
        if time.monotonic() > deadline:
            return 3
        runs.go("killed", runs.kind())
    for name in ("killed", "peace"):
        if name not in runs.notes["done"]:
            if time.monotonic() > deadline:
                return 3
            runs.go(name)
    wrong = runs.compared()
    saves = sum(kill["in_a_save"] for kill in runs.notes["killed"])
    killed = f"{len(runs.notes['killed'])} kills, {saves} of them in a save"
    print(f"{killed}; {arguments.steps} steps on {arguments.ranks} ranks")
    print("\n".join(wrong) or "the killed run is as the other one, line by line")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

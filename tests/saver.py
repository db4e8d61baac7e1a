"""Saves checkpoints of a small model over and over, each in a process that is killed at another operation on a file.

    python -m tests.saver everywhere OUTPUT_DIR          prints a JSON line a kill: the operation, what is whole then
    python -m tests.saver disk OUTPUT_DIR                on a disk of its own: until it is full, and where it is closed
    python -m tests.saver fails OUTPUT_DIR RANK STORE    a rank of two, of which the second cannot write its file

Everything but the policy, whose weights are those of a random model without DeepSpeed, is the run's own.
"""

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
from transformers import LlamaConfig, LlamaForCausalLM

from prewrite.config.loading import load_config
from prewrite.engine.distributed import World
from prewrite.errors import RankFailure, UserError
from prewrite.reporting.journal import Journal, Start
from prewrite.training.checkpoint import newest_whole
from prewrite.training.progress import Progress
from prewrite.training.resume import go_back
from prewrite.training.saving import save_checkpoint

ALONE = World(0, 1, torch.device("cpu"))
SHAPE = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2}
DATA = {"the train examples": "0123456789ab"}


def parts(output_dir: str, start: Start, world: World = ALONE) -> tuple[Any, Any]:
    """(config, engines) of a run."""
    config = load_config("configs/quickstart.json", [f"output_dir={output_dir}", "run_name=run"])
    lm = LlamaForCausalLM(LlamaConfig(**SHAPE))  # type: ignore[arg-type]
    optimizer = [{"master": torch.zeros(1000), "exp_avg": torch.zeros(1000)}]
    engines = SimpleNamespace(
        world=world,
        journal=Journal(config, start) if world.is_main else None,
        policy=SimpleNamespace(
            world=world,
            trained=dict(lm.named_parameters()),
            save=lambda folder, weights: lm.save_pretrained(folder, state_dict=weights),
            optimizer_state=lambda: optimizer,
        ),
        reference=None,
        tokenizer=SimpleNamespace(save_pretrained=lambda folder: Path(folder, "tokenizer.json").write_text("{}")),
        task_model=SimpleNamespace(state=lambda: {"counts": {}, "failures": {}, "answers_bytes": 0}),
        data=DATA,
    )
    return config, engines


def save(config: Any, engines: Any, step: int) -> None:
    """The line and the checkpoint of a step."""
    if engines.journal is not None:
        engines.journal.write_step({"step": step})
    save_checkpoint(config, engines, Progress(step=step), None)


class Killer:
    """An audit hook that kills the process before its nth operation on a file below the folder, once it is armed."""

    WRITES = ("open", "os.rename", "os.mkdir", "os.remove", "os.rmdir", "shutil.copyfile", "shutil.rmtree")

    def __init__(self, folder: str):
        self.folder, self.left = folder, 0

    def __call__(self, event: str, args: tuple[Any, ...]) -> None:
        if not self.left or event not in self.WRITES or self.folder not in str(args[0]):
            return
        self.left -= 1
        if not self.left:
            print(json.dumps({"killed at": f"{event} {Path(str(args[0])).name}"}), flush=True)
            os.kill(os.getpid(), signal.SIGKILL)


def kill_everywhere(output_dir: str) -> None:
    """Until a save is through."""
    torch.set_num_threads(1)
    config, engines = parts(output_dir, "new")
    save(config, engines, 2)
    folder, killer = engines.journal.folder, Killer(output_dir)
    sys.addaudithook(killer)
    place, status = 0, 1
    while status:
        place += 1
        sys.stdout.flush()
        if not (child := os.fork()):
            killer.left = place
            save(config, engines, 4)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        checkpoint, broken = newest_whole(folder / "checkpoints")
        found = {"whole": checkpoint and checkpoint.step, "broken": len(broken)}
        again = go_back(Journal(config, "resume"), config, ALONE, DATA)
        left = sorted(path.name for path in (folder / "checkpoints").iterdir())
        lines = (folder / "metrics.jsonl").read_text().splitlines()
        steps = [json.loads(line)["step"] for line in lines]
        print(json.dumps(found | {"again": again and again.step, "left": left, "steps": steps}), flush=True)
        if found["whole"] == 4 and status:  # killed after the rename
            engines.journal.cut_back({**engines.journal.sizes(), "metrics.jsonl": len(lines[0]) + 1})
            os.rename(folder / "checkpoints" / "step_000004", folder / f"kept_{place}")


def save_once(output_dir: str) -> None:
    """The checkpoint of the next even step."""
    config, engines = parts(output_dir, "resume" if Path(output_dir, "run", "metrics.jsonl").exists() else "new")
    step = 2 + 2 * len(list((engines.journal.folder / "checkpoints").glob("step_*")))
    save(config, engines, step)


def save_on_a_small_disk(output_dir: str) -> int:
    """A save, three more with room for two and a half in all, and one where nothing may be written: its exit code."""

    def remount(options: str) -> None:
        subprocess.run(["mount", "-o", f"remount,{options}", output_dir], check=True)

    save_once(output_dir)
    used = subprocess.run(["du", "-sk", output_dir], check=True, capture_output=True, text=True).stdout.split()[0]
    remount(f"size={int(used) * 5 // 2}k")
    exit_code(lambda: [save_once(output_dir) for _ in range(3)])
    print(*Path(output_dir).rglob(".step*"))
    shutil.copytree(Path(output_dir, "run"), Path(output_dir).with_name("copy"))
    remount("ro")
    print("closed", file=sys.stderr, flush=True)
    return exit_code(lambda: save_once(output_dir))


def save_where_one_fails(output_dir: str, rank: int) -> None:
    """A save that is whole, then one in which rank 1 may write no file of more than a kilobyte."""
    config, engines = parts(output_dir, "new", World(rank, 2, torch.device("cpu")))
    save(config, engines, 2)
    if rank == 1:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 10, 1 << 10))
    save(config, engines, 4)


def main(kind: str, output_dir: str, rank: str = "0", store: str = "") -> int:
    shared = dist.FileStore(store, 2) if store else dist.HashStore()
    dist.init_process_group("gloo", store=shared, rank=int(rank), world_size=2 if store else 1)
    if kind == "disk":
        return save_on_a_small_disk(output_dir)
    if kind == "fails":
        return exit_code(lambda: save_where_one_fails(output_dir, int(rank)))
    assert kind == "everywhere"
    return exit_code(lambda: kill_everywhere(output_dir))


def exit_code(work: Callable[[], object]) -> int:
    """As train.py tells what went wrong."""
    try:
        work()
    except UserError as error:
        print(f"saver.py: {error}", file=sys.stderr)
        return 2
    except RankFailure as failure:
        print(f"saver.py: {failure}", file=sys.stderr)
        return failure.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

"""The work of `python -m prewrite.export`: a checkpoint in, a model folder with its card out, on the hub if wanted."""

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import torch

from prewrite.config import PolicySettings
from prewrite.engine.adapter import copy_adapter, write_merged
from prewrite.engine.policy import load_lm, load_tokenizer, quiet_libraries
from prewrite.errors import UserError
from prewrite.export.card import model_card
from prewrite.model_folder import adapter_base
from prewrite.report.folder import read_folder
from prewrite.training.checkpoint import newest_whole


@dataclass(frozen=True)
class Source:
    """checkpoint: a model folder, or an adapter's. run: the run that it came from; None for a folder by itself."""

    checkpoint: Path
    run: Path | None


def export(source: Source, out: Path, *, merge: bool = False) -> None:
    """Writes the folder, whole or not at all: weights in bfloat16 (safetensors; tied ones once), tokenizer, generation
    config, README.md. An adapter's folder stays one (peft), or is merged into its base model. Raises UserError."""
    given = str(source.checkpoint)
    settings = PolicySettings(model=given, dtype="bfloat16", attn_implementation="sdpa")
    quiet_libraries()
    base = adapter_base(given)
    if merge and base is None:
        raise UserError(f"--merge: {given} is a whole model, and holds no adapter; leave --merge out")
    draft = out.with_name(f".{out.name}.part")
    try:
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(parents=True)
        if base is None:
            tokenizer = load_tokenizer(settings)
            load_lm(settings).save_pretrained(draft)
            tokenizer.save_pretrained(draft)
        elif merge:
            write_merged("--merge", given, draft, dtype=torch.bfloat16, trust_remote_code=False)
        else:
            copy_adapter(source.checkpoint, draft)
        run = read_folder(source.run) if source.run else None
        card = model_card(out.name, source.checkpoint.name, run, adapter_on=None if merge else base)
        (draft / "README.md").write_text(card, encoding="utf-8")
        if out.exists():
            out.rmdir()
        os.replace(draft, out)
    except OSError as error:
        raise UserError(f"--out {out}: cannot be written ({error})") from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def find_source(given: Path) -> Source:
    """What a run folder, or a checkpoint, stands for. UserError where it is neither."""
    if (given / "checkpoints").is_dir():
        checkpoint, broken = newest_whole(given / "checkpoints")
        told = "".join(f"\n  - {path.name}: {wrong}" for path, wrong in broken.items())
        if checkpoint is None:
            raise UserError(f"{given}: none of its checkpoints is whole{told or ': it has none'}")
        if broken:
            print(f"checkpoints that are broken are passed over{told}", flush=True)
        return Source(checkpoint.folder, given)
    if not (given / "config.json").is_file() and adapter_base(str(given)) is None:
        rule = "neither a run folder (with checkpoints/) nor a model's (with config.json, or adapter_config.json)"
        raise UserError(f"{given}: {rule}: give runs/NAME, or runs/NAME/checkpoints/step_N")
    run = given.absolute().parent.parent
    return Source(given, run if given.absolute().parent.name == "checkpoints" else None)


def refuse_out(out: Path) -> None:
    """UserError where the folder holds something already."""
    if out.exists() and not (out.is_dir() and not any(out.iterdir())):
        raise UserError(f"--out {out}: it is there already, and nothing is written over: give another folder")

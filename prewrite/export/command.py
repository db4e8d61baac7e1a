"""The work of `python -m prewrite.export`: a checkpoint in, a model folder with its card out, on the hub if wanted."""

import contextlib
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from prewrite.config import PolicySettings
from prewrite.engine.adapter import copy_adapter, write_merged
from prewrite.engine.policy import DTYPES, load_lm, load_tokenizer, quiet_libraries
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
    """Writes the folder: weights in bfloat16 (safetensors; tied ones once), tokenizer with its chat template,
    generation config, README.md. An adapter's folder stays one (peft), or is merged into its base model. Whole or not
    at all. Raises UserError."""
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
            write_merged("--merge", given, draft, dtype=DTYPES["bfloat16"], trust_remote_code=False)
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
        raise UserError(
            f"{given}: neither a run folder (it holds checkpoints/) nor a model's (it holds config.json, or as an "
            "adapter's adapter_config.json): give runs/NAME, or runs/NAME/checkpoints/step_N"
        )
    run = given.absolute().parent.parent
    return Source(given, run if given.absolute().parent.name == "checkpoints" else None)


def refuse_out(out: Path) -> None:
    """UserError where the folder holds something already."""
    if out.exists() and not (out.is_dir() and not any(out.iterdir())):
        raise UserError(f"--out {out}: it is there already, and nothing is written over: give another folder")


class Hub:
    """A model repository on the hub (HF_ENDPOINT, HF_TOKEN), made where it is not there. Raises UserError."""

    def __init__(self, repo: str, revision: str | None):
        from huggingface_hub import HfApi

        self.repo, self.revision, self.api = repo, revision, HfApi()
        with _faults_told(
            f"--push-to-hub {repo}", "look at the name, at HF_TOKEN (`hf auth login`) and at HF_ENDPOINT"
        ):
            self.api.create_repo(repo, exist_ok=True)
            if revision is not None:
                self.api.create_branch(repo, branch=revision, exist_ok=True)

    def push(self, folder: Path) -> str:
        """Sends a folder; returns its address."""
        again = f"{folder} is whole; once more: hf upload {self.repo} {folder}"
        with _faults_told(
            f"--push-to-hub {self.repo}", again + (f" --revision {self.revision}" if self.revision else "")
        ):
            info = self.api.upload_folder(
                repo_id=self.repo,
                folder_path=folder,
                revision=self.revision,
                commit_message=f"{folder.name}, exported by PRewrite",
            )
        return str(info.commit_url)


@contextlib.contextmanager
def _faults_told(where: str, way_out: str) -> Iterator[None]:
    import httpx
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    try:
        yield
    except (HfHubHTTPError, HFValidationError, httpx.HTTPError, RuntimeError, OSError) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise UserError(f"{where}: {reason}. {way_out[0].upper()}{way_out[1:]}") from error

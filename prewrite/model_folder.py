"""Whether a setting names a model that can be there, told at once: a hub that does not answer takes half a minute."""

import json
import os
from pathlib import Path

from prewrite.errors import UserError


def name_of(given: str) -> str:
    """A model's or a file's name, without the folders of this machine."""
    return Path(given).name if Path(given).exists() else given


def adapter_base(model: str) -> str | None:
    """The base model of an adapter's folder (peft); None where it is none. UserError where it names none."""
    path = Path(model) / "adapter_config.json"
    if not os.path.isfile(path) or os.path.isfile(Path(model) / "config.json"):  # Path.is_file fails on long names
        return None
    try:
        base = json.loads(path.read_text(encoding="utf-8"))["base_model_name_or_path"]
    except (ValueError, RecursionError, LookupError, TypeError) as error:
        raise UserError(f"{path}: no JSON that names base_model_name_or_path ({error!r})") from error
    if not isinstance(base, str) or not base:
        raise UserError(f"{path}: base_model_name_or_path is {base!r}; the rule: the name or folder of its base model")
    return base


def refuse_no_model(setting: str, model: str) -> None:
    """UserError for a folder that is missing or holds no model, in the name of the setting; a hub name passes.

    owner/name is a missing folder where there is a folder `owner` here.
    """
    folder = Path(model)
    if (base := adapter_base(model)) is not None:
        raise UserError(
            f"{setting} {model!r} is an adapter on {base!r}, and a whole model is wanted: python -m prewrite.export "
            f"{model} --merge --out DIR makes one"
        )
    if os.path.exists(folder) and not os.path.isfile(folder / "config.json"):
        raise UserError(
            f"{setting} {model!r} is no model folder: it has no config.json. Give a folder with config.json, the "
            "weights and the tokenizer, or a hub name."
        )
    if os.path.exists(folder):
        try:
            json.loads((folder / "config.json").read_text(encoding="utf-8"))
        except (ValueError, RecursionError) as error:
            raise UserError(f"{setting} {model!r}: its config.json is no JSON that can be read ({error}).") from error
        return
    is_path = folder.is_absolute() or model.startswith((".", "~")) or model.count("/") > 1
    beside = sorted(path.parent.name for path in folder.parent.glob("*/config.json")) if "/" in model else []
    if is_path or ("/" in model and folder.parent.is_dir()):
        near = f" In {folder.parent} there are {', '.join(beside[:5])}." if beside else ""
        raise UserError(
            f"{setting} {model!r}: no such folder, and no hub name (owner/name) either; paths are relative to "
            f"{Path.cwd()}.{near}"
        )

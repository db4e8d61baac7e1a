"""What tests of several files share."""

import gc
import json
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.launching import MODEL

LAYERS = 4
VOCABULARY = 4096  # on a CPU, of SmolLM2's 49,152: the whole embedding's gradients are most of a small model's work

gc.disable()  # while tests are collected: what is imported stays

# A shell starts its background jobs with Ctrl-C ignored, and what the tests start would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files with most slow tests first: workers that share out the files (scripts/test.sh) then end together."""
    slow = Counter(item.path for item in items if item.get_closest_marker("slow"))
    items.sort(key=lambda item: -slow[item.path])


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


def save_tokenizer(folder: str) -> Any:
    """SmolLM2's tokenizer, on a CPU with its first VOCABULARY tokens: merges make tokens in the ids' order."""
    from transformers import AutoTokenizer

    AutoTokenizer.from_pretrained(MODEL).save_pretrained(folder)
    if not torch.cuda.is_available():
        file = Path(folder, "tokenizer.json")
        whole = json.loads(file.read_text(encoding="utf-8"))
        model = whole["model"]
        model["vocab"] = {token: number for token, number in model["vocab"].items() if number < VOCABULARY}
        model["merges"] = [pair for pair in model["merges"] if "".join(pair) in model["vocab"]]
        file.write_text(json.dumps(whole), encoding="utf-8")
    return AutoTokenizer.from_pretrained(folder)


@pytest.fixture(scope="session")
def shallow_model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Folder of SmolLM2's first layers: real weights, for tests to whom it does not matter what the model says."""
    from transformers import AutoModelForCausalLM

    folder = str(tmp_path_factory.mktemp("shallow_model"))
    model = AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.bfloat16)
    model.model.layers = model.model.layers[:LAYERS]
    model.config.num_hidden_layers = LAYERS
    model.resize_token_embeddings(len(save_tokenizer(folder)))
    model.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def random_model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Folder of a random model of two layers, whose four heads two ranks can share."""
    folder = str(tmp_path_factory.mktemp("random_model"))
    save_random_model(folder)
    return folder


@pytest.fixture(scope="session")
def talkative_model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The random model, to which every twelfth token is an end: rewrites that are whole, short, and all different."""
    folder = str(tmp_path_factory.mktemp("talkative_model"))
    save_random_model(folder, end_every=12)
    return folder


def save_random_model(folder: str, end_every: int = 0) -> None:
    """end_every: of the tokens from 100 on, those that end a completion too."""
    from transformers import LlamaConfig, LlamaForCausalLM

    tokenizer = save_tokenizer(folder)
    torch.manual_seed(0)
    shape = {"hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
    ids = {"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id}
    config = LlamaConfig(vocab_size=len(tokenizer), tie_word_embeddings=True, **shape, **heads, **ids)
    model = LlamaForCausalLM(config)
    if end_every:
        model.generation_config.eos_token_id = [tokenizer.eos_token_id, *range(100, len(tokenizer), end_every)]
    model.save_pretrained(folder)

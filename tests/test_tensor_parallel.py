"""One vLLM engine that spans two ranks, on a random model of two layers, whose four heads two ranks can share."""

import json
from pathlib import Path

import pytest
import torch
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

from tests.launching import MODEL, finish, launched, start


@pytest.mark.slow
def test_an_engine_of_two_ranks_follows_the_push_and_shares_out_its_samples(tmp_path: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    torch.manual_seed(0)
    shape = {"hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
    ids = {"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id}
    config = LlamaConfig(vocab_size=len(tokenizer), tie_word_embeddings=True, **shape, **heads, **ids)
    LlamaForCausalLM(config).save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")

    out = tmp_path / "report.json"
    command = launched(2, "tests/ranks/tensor_parallel.py", str(tmp_path / "model"), str(out))
    code, stdout, stderr = finish(start(command, ranks=2))
    assert code == 0, stdout[-3000:] + stderr[-3000:]
    report = json.loads(out.read_text())
    assert max(report["gaps"]) < 1e-4
    assert min(report["gaps_without_push"]) > 0.1
    first, second = report["completions"]
    assert len(first) == len(second) == 4
    assert first != second

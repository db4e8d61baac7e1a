"""`policy.torch_compile`: what is compiled, and what is refused. That its gradients agree is in test_ranks.py."""

import os

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from prewrite.config import PolicySettings
from prewrite.engine.policy import _compile_layers, refuse_compiling_without_compiler
from prewrite.errors import UserError

SHAPE = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4, "vocab_size": 50}


@pytest.fixture
def lm():
    return LlamaForCausalLM(LlamaConfig(**SHAPE))


def test_the_decoder_layers_are_compiled_and_nothing_else(lm, monkeypatch: pytest.MonkeyPatch):
    compiled = []
    monkeypatch.setattr(torch, "compile", lambda forward, **how: compiled.append((forward.__self__, how)))
    _compile_layers(lm)
    assert compiled == [(layer, {"dynamic": True}) for layer in lm.model.layers]


@pytest.mark.parametrize(("path", "named"), [("", None), (os.defpath, "nonesuch"), (os.defpath, "false")])
def test_a_machine_without_a_compiler_is_told(path: str, named: str | None, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", path)
    monkeypatch.delenv("CXX", raising=False)
    if named:
        monkeypatch.setenv("CXX", named)
    words = f"policy.torch_compile: .*'{named or 'g++'}' does not run here".replace("+", "[+]")
    with pytest.raises(UserError, match=words + ".*set torch_compile to false"):
        refuse_compiling_without_compiler(PolicySettings(model="any", torch_compile=True))
    refuse_compiling_without_compiler(PolicySettings(model="any"))


def test_an_architecture_that_names_no_layers_is_refused(lm):
    lm._no_split_modules = None
    with pytest.raises(UserError, match=r"policy\.torch_compile: LlamaForCausalLM .*set it to false"):
        _compile_layers(lm)

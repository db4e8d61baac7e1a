"""`policy.torch_compile`: what is compiled, and what is refused. That its gradients agree is in test_ranks.py."""

import shutil

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from prewrite.engine.policy import _compile_layers
from prewrite.errors import UserError

SHAPE = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4, "vocab_size": 50}


@pytest.fixture
def lm():
    return LlamaForCausalLM(LlamaConfig(**SHAPE))


def test_the_decoder_layers_are_compiled_and_nothing_else(lm, monkeypatch: pytest.MonkeyPatch):
    compiled = []
    monkeypatch.setattr(shutil, "which", lambda name: name)
    monkeypatch.setattr(torch, "compile", lambda forward, **how: compiled.append((forward.__self__, how)))
    _compile_layers(lm)
    assert compiled == [(layer, {"dynamic": True}) for layer in lm.model.layers]


@pytest.mark.parametrize(("named", "words"), [(None, "no 'g\\+\\+' here"), ("nonesuch", "no 'nonesuch' here")])
def test_a_machine_without_a_compiler_is_told_before_the_first_step(
    named: str | None, words: str, lm, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("PATH", "")
    if named:
        monkeypatch.setenv("CXX", named)
    else:
        monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(UserError, match=rf"policy\.torch_compile: .*{words}.*set torch_compile to false"):
        _compile_layers(lm)


def test_an_architecture_that_names_no_layers_is_refused(lm, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(shutil, "which", lambda name: name)
    lm._no_split_modules = None
    with pytest.raises(UserError, match=r"policy\.torch_compile: LlamaForCausalLM .*set it to false"):
        _compile_layers(lm)

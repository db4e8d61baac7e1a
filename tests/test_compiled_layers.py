"""`policy.torch_compile`: what is compiled, and what is refused. Under ZeRO-3 it is tested on a GPU (test_gpu.py)."""

import os

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from prewrite.config import PolicySettings
from prewrite.engine.compiling import compile_layers, compiler_runs, refuse_compiling_without_compiler
from prewrite.errors import UserError

SHAPE = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4, "vocab_size": 50}


@pytest.fixture
def lm():
    return LlamaForCausalLM(LlamaConfig(**SHAPE))


def test_the_decoder_layers_are_compiled_and_nothing_else(lm, monkeypatch: pytest.MonkeyPatch):
    compiled = []
    monkeypatch.setattr(torch, "compile", lambda forward, **how: compiled.append((forward.__self__, how)))
    compile_layers(lm)
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
        compile_layers(lm)


@pytest.mark.slow
@pytest.mark.skipif(not compiler_runs(os.environ.get("CXX", "g++")), reason="no C++ compiler: nothing is compiled here")
def test_compiled_layers_compute_the_same_with_checkpointing(lm):
    lm.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    ids = torch.arange(40).reshape(2, 20)
    torch._dynamo.utils.counters.clear()  # other tests may have compiled
    found = []
    for compiles in (False, True):
        if compiles:
            compile_layers(lm)
        lm.zero_grad()
        logits = lm.train()(input_ids=ids, use_cache=False).logits
        logits.square().mean().backward()
        found.append([logits.detach(), *(parameter.grad.clone() for parameter in lm.parameters())])
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] > 0, "nothing was compiled"
    torch.testing.assert_close(found[1], found[0], rtol=1e-4, atol=1e-6)

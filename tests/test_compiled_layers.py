"""`policy.torch_compile`: what is compiled, and what is refused. That its gradients agree is in test_ranks.py."""

import pytest
from transformers import LlamaConfig, LlamaForCausalLM

from prewrite.engine.policy import _compile_layers
from prewrite.errors import UserError

SHAPE = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4, "vocab_size": 50}


@pytest.fixture
def lm():
    return LlamaForCausalLM(LlamaConfig(**SHAPE))


def test_the_decoder_layers_are_compiled_and_nothing_else(lm):
    _compile_layers(lm)
    compiled = [name for name, module in lm.named_modules() if "forward" in vars(module)]
    assert compiled == ["model.layers.0", "model.layers.1", "model.layers.2"]


def test_a_machine_without_a_compiler_is_told_before_the_first_step(lm, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(UserError, match=r"policy\.torch_compile: .*C\+\+ compiler.*set torch_compile to false"):
        _compile_layers(lm)


def test_an_architecture_that_names_no_layers_is_refused(lm):
    lm._no_split_modules = None
    with pytest.raises(UserError, match=r"policy\.torch_compile: LlamaForCausalLM .*set it to false"):
        _compile_layers(lm)

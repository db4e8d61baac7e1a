"""Packed attention against transformers' own on padded rows: the same log-probs, and the same gradients."""

from pathlib import Path

import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    Gemma2Config,
    Gemma2ForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    MistralConfig,
    MistralForCausalLM,
    Qwen2Config,
)

from prewrite.algorithm.batching import collate
from prewrite.config import PolicySettings
from prewrite.engine.packed_attention import Packing
from prewrite.engine.policy import LogprobModel, load_lm
from prewrite.errors import UserError
from prewrite.types import Sample

SHAPE = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 50}
LENGTHS = [(3, 5), (1, 1), (7, 2), (2, 9), (7, 4), (3, 0), (7, 1), (1, 3), (3, 1)]
"""Of prompt and completion. Prompts of one length are one prompt: three of 7 tokens, two of 3 and of 1 that have a
completion."""
ADVANTAGES = torch.tensor([1.0, -1.0, 0.5, 2.0, -1.5, 3.0, 0.7, -0.4, 1.2])


def batch():
    samples = [
        Sample(
            tuple(range(1, prompt + 1)), tuple(range(9 + 3 * row, 9 + 3 * row + length)), (-1.0,) * length, "", "stop"
        )
        for row, (prompt, length) in enumerate(LENGTHS)
    ]
    return collate(samples, ADVANTAGES, pad_token_id=49)


@pytest.mark.parametrize(
    "config",
    [LlamaConfig(num_key_value_heads=2, **SHAPE), Qwen2Config(num_key_value_heads=4, **SHAPE)],
    ids=["shared heads", "own heads and biases"],
)
@pytest.mark.parametrize("gradient_checkpointing", [False, True])
def test_the_same_as_eager_attention_on_padded_rows(config, gradient_checkpointing):
    found = []
    for attention in ("eager", "packed"):
        torch.manual_seed(0)
        lm = AutoModelForCausalLM.from_config(config, attn_implementation=attention, dtype=torch.float32).train()
        if gradient_checkpointing:
            lm.gradient_checkpointing_enable()
        logprob_BT, entropy_BT = LogprobModel(lm, temperature=0.7, chunk_tokens=4)(batch(), 5, False)
        (logprob_BT.sum(1) * ADVANTAGES).sum().backward()
        found.append((logprob_BT, entropy_BT, [parameter.grad for parameter in lm.parameters()]))
    (logprob_BT, entropy_BT, gradients), (packed_BT, packed_entropy_BT, packed_gradients) = found
    assert logprob_BT.shape == (9, 10)
    torch.testing.assert_close(packed_BT, logprob_BT, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(packed_entropy_BT, entropy_BT, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(packed_gradients, gradients, rtol=1e-5, atol=1e-5)


def test_a_packed_row_holds_no_padding_and_what_rows_share_once():
    rows = batch()
    packing = Packing.of(rows)
    keywords = packing.keywords
    sizes = [7, 1, 8, 10, 4, 2, 1, 3, 1]  # of 7 + 1 + 8 + 10 + 10 + 2 + 7 + 3 + 3, less 6 twice and 2 once
    assert packing.ids_1N.shape == (1, rows.num_computed) == (1, sum(sizes))
    assert keywords["cu_seq_lens_q"].diff().tolist() == sizes
    assert keywords["cu_seq_lens_k"].diff().tolist() == rows.length_B.tolist()
    assert keywords["position_ids"][0].tolist() == [
        *range(7), 0, *range(8), *range(10), *range(6, 10), *range(2), 6, *range(3), 2
    ]  # fmt: skip
    is_real_BT = torch.arange(10) < rows.length_B[:, None]
    assert packing.ids_1N[0][packing.slot_BT[is_real_BT]].equal(rows.input_ids_BT[is_real_BT])
    assert keywords["slot_K"].equal(packing.slot_BT[is_real_BT])


@pytest.mark.parametrize("rows", [[0, 1, 2, 3], [5, 0], []], ids=["four prompts", "no completion", "nothing"])
def test_rows_that_share_nothing_read_their_own_keys(rows: list[int]):
    part = batch().select(rows)
    assert part.num_computed == part.num_positions
    assert "slot_K" not in Packing.of(part).keywords


@pytest.mark.parametrize(
    ("lm", "words"),
    [
        (
            Gemma2ForCausalLM(Gemma2Config(num_key_value_heads=2, head_dim=8, **SHAPE)),
            "capped scores, sliding_attention",
        ),
        (MistralForCausalLM(MistralConfig(num_key_value_heads=2, sliding_window=6, **SHAPE)), "a sliding window"),
        (GPT2LMHeadModel(GPT2Config(n_embd=32, n_layer=1, n_head=2, vocab_size=50)), "dropout"),
    ],
    ids=["Gemma 2", "Mistral", "GPT-2"],
)
def test_architectures_whose_attention_does_more_are_refused(lm, words: str, tmp_path: Path):
    lm.save_pretrained(tmp_path)
    with pytest.raises(UserError, match=rf"that of \w+ has .*{words}.*: set it to 'sdpa'"):
        load_lm(PolicySettings(model=str(tmp_path)))
    assert load_lm(PolicySettings(model=str(tmp_path), attn_implementation="eager")) is not None

"""Chunked log-probs against the plain way, values and gradients; and that the chunks are what is held."""

import inspect
import math

import pytest
import torch
from torch import nn
from transformers import (
    CohereConfig,
    CohereForCausalLM,
    Gemma2Config,
    Gemma2ForCausalLM,
    GraniteConfig,
    GraniteForCausalLM,
    PhiConfig,
    PhiForCausalLM,
)

from prewrite.algorithm.logprobs import chunked_logprobs, count_chunks

B, T, H, V = 3, 7, 16, 31


@pytest.fixture
def parts():
    generator = torch.Generator().manual_seed(0)
    hidden_BTH = torch.randn(B, T, H, generator=generator, dtype=torch.float64, requires_grad=True)
    target_BT = torch.randint(V, (B, T), generator=generator)
    mask_BT = torch.rand(B, T, generator=generator) < 0.5
    head = nn.Linear(H, V, dtype=torch.float64)
    nn.init.normal_(head.weight, generator=generator)
    nn.init.normal_(head.bias, generator=generator)
    return hidden_BTH, head, target_BT, mask_BT


class CountingHead(nn.Module):
    def __init__(self, head):
        super().__init__()
        self.head, self.sizes = head, []

    def forward(self, hidden):
        self.sizes.append(len(hidden))
        return self.head(hidden)


def plain(hidden_BTH, head, target_BT, temperature):
    logp_BTV = torch.log_softmax(head(hidden_BTH) / temperature, -1)
    return logp_BTV.gather(2, target_BT[..., None]).squeeze(2), -(logp_BTV.exp() * logp_BTV).sum(-1)


def gradients(loss, hidden_BTH, head):
    return torch.autograd.grad(loss, [hidden_BTH, *head.parameters()])


@pytest.mark.parametrize("chunk_tokens", [1, 4, 1000])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_agrees_with_the_plain_way(parts, chunk_tokens, masked, temperature):
    hidden_BTH, head, target_BT, mask_BT = parts
    mask_BT = mask_BT if masked else torch.ones_like(mask_BT)
    want_logprob, want_entropy = plain(hidden_BTH, head, target_BT, temperature)
    logprob_BT, entropy_BT = chunked_logprobs(
        hidden_BTH, head, target_BT, mask_BT=mask_BT if masked else None, temperature=temperature,
        chunk_tokens=chunk_tokens, entropy_grad=True,
    )  # fmt: skip
    torch.testing.assert_close(logprob_BT, want_logprob * mask_BT)
    torch.testing.assert_close(entropy_BT, want_entropy * mask_BT)
    weight_BT = torch.rand(B, T, dtype=torch.float64)
    got = gradients((weight_BT * logprob_BT + 0.3 * weight_BT * entropy_BT).sum(), hidden_BTH, head)
    want = gradients((weight_BT * mask_BT * (want_logprob + 0.3 * want_entropy)).sum(), hidden_BTH, head)
    torch.testing.assert_close(got, want)


def test_hand_worked_temperature():
    # logits 2 and 0 at T 0.5 are 4 and 0: log sigmoid(4) = -0.0181499; entropy of (0.9820138, 0.0179862) = 0.0900946
    hidden_BTH = torch.tensor([[[2.0, 0.0]]])
    logprob_BT, entropy_BT = chunked_logprobs(hidden_BTH, nn.Identity(), torch.tensor([[0]]), temperature=0.5)
    assert logprob_BT.item() == pytest.approx(-0.0181499, abs=1e-6)
    assert entropy_BT.item() == pytest.approx(0.0900946, abs=1e-6)


def test_defaults():
    given = {name: parameter.default for name, parameter in inspect.signature(chunked_logprobs).parameters.items()}
    assert {name: value for name, value in given.items() if value is not inspect.Parameter.empty} == {
        "mask_BT": None, "slot_BT": None, "num_tokens": None, "temperature": 1.0, "chunk_tokens": 2048,
        "num_chunks": None, "scale": 1.0, "divisor": 1.0, "softcap": None, "entropy_grad": False,
    }  # fmt: skip


def test_entropy_is_detached_unless_asked_for(parts):
    hidden_BTH, head, target_BT, _ = parts
    assert not chunked_logprobs(hidden_BTH, head, target_BT)[1].requires_grad
    assert chunked_logprobs(hidden_BTH, head, target_BT, entropy_grad=True)[1].requires_grad
    with torch.no_grad():
        assert not chunked_logprobs(hidden_BTH, head, target_BT, entropy_grad=True)[1].requires_grad


def test_half_precision_logits_are_widened_before_the_softmax():
    hidden_BTH = torch.tensor([[[10.0, 0.01]]], dtype=torch.bfloat16)
    logprob_BT, entropy_BT = chunked_logprobs(hidden_BTH, nn.Identity(), torch.tensor([[0]]))
    assert logprob_BT.dtype == entropy_BT.dtype == torch.float32
    exact = -math.log1p(math.exp(float(hidden_BTH[0, 0, 1]) - 10))
    assert logprob_BT.item() == pytest.approx(exact, rel=1e-3)


@pytest.mark.parametrize(
    ("positions", "chunk_tokens", "chunks"), [(0, 4, 1), (1, 4, 1), (4, 4, 1), (5, 4, 2), (9, 4, 3)]
)
def test_count_chunks(positions, chunk_tokens, chunks):
    assert count_chunks(positions, chunk_tokens) == chunks


@pytest.mark.parametrize(("masked_on", "num_chunks", "sizes"), [
    (10, None, [4, 3, 3]), (10, 5, [2] * 5), (10, 2, [5, 5]), (2, 5, [1] * 5), (0, 3, [1] * 3), (0, None, [1]),
])  # fmt: skip
def test_head_calls_are_those_agreed_on_forward_and_backward(parts, masked_on, num_chunks, sizes):
    hidden_BTH, head, target_BT, _ = parts
    mask_BT = (torch.arange(B * T) < masked_on).view(B, T).roll(1, 0)
    counting = CountingHead(head)
    logprob_BT, _ = chunked_logprobs(
        hidden_BTH, counting, target_BT, mask_BT=mask_BT, chunk_tokens=4, num_chunks=num_chunks
    )
    assert counting.sizes == sizes
    want = plain(hidden_BTH, head, target_BT, 1.0)[0]
    torch.testing.assert_close(logprob_BT, want * mask_BT)
    got = gradients(logprob_BT.square().sum(), hidden_BTH, head)
    assert sorted(counting.sizes) == sorted(sizes * 2)
    torch.testing.assert_close(got, gradients((want * mask_BT).square().sum(), hidden_BTH, head))
    if masked_on == 0:
        assert not any(grad.any() for grad in got)


def test_logits_of_all_tokens_are_never_held():
    """The largest tensor that autograd keeps, or that any operation makes, is a chunk's logits."""
    hidden_BTH = torch.randn(1, 64, 8, requires_grad=True)
    head, target_BT = nn.Linear(8, 500), torch.randint(500, (1, 64))
    kept, made = [], []

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            out = func(*args, **(kwargs or {}))
            made.extend(t.numel() for t in (out if isinstance(out, tuple | list) else [out]) if torch.is_tensor(t))
            return out

    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t.numel()) or t, lambda t: t), Watch():
        chunked_logprobs(hidden_BTH, head, target_BT, chunk_tokens=8)[0].sum().backward()
    assert max(made) == 8 * 500
    assert max(kept) <= 8 * 500
    outside_chunks = [numel for numel in kept if numel > 64 * 8]
    assert all(numel in (8 * 500, 500 * 8) for numel in outside_chunks)


def tiny(config_class, model_class, **extra):
    torch.manual_seed(0)
    config = config_class(
        vocab_size=40, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, head_dim=8, max_position_embeddings=64, pad_token_id=0, **extra,
    )  # fmt: skip
    return model_class(config).eval()


MODELS = {
    "gemma2: soft-capping, tied head": (tiny, Gemma2Config, Gemma2ForCausalLM, {"final_logit_softcapping": 0.05}),
    "cohere: scale, tied head": (tiny, CohereConfig, CohereForCausalLM, {"logit_scale": 7.0}),
    "granite: divisor": (tiny, GraniteConfig, GraniteForCausalLM, {"logits_scaling": 0.1}),
    "phi: head with bias": (tiny, PhiConfig, PhiForCausalLM, {}),
}


def logit_shape(config):
    names = {"final_logit_softcapping": "softcap", "logit_scale": "scale", "logits_scaling": "divisor"}
    return {ours: float(value) for theirs, ours in names.items() if (value := getattr(config, theirs, None))}


@pytest.mark.parametrize("name", MODELS)
def test_real_architectures(name):
    make, config_class, model_class, extra = MODELS[name]
    model = make(config_class, model_class, **extra)
    for parameter in model.get_output_embeddings().parameters():
        nn.init.normal_(parameter, std=0.5)
    ids_BT = torch.randint(1, 40, (2, 9))
    input_ids, target_BT = ids_BT[:, :-1], ids_BT[:, 1:]
    logp = torch.log_softmax(model(input_ids=input_ids).logits.float() / 0.7, -1)
    want_BT = logp.gather(2, target_BT[..., None]).squeeze(2)
    hidden_BTH = model.get_decoder()(input_ids=input_ids).last_hidden_state
    logprob_BT, _ = chunked_logprobs(
        hidden_BTH,
        model.get_output_embeddings(),
        target_BT,
        temperature=0.7,
        chunk_tokens=5,
        **logit_shape(model.config),
    )
    torch.testing.assert_close(logprob_BT, want_BT, atol=1e-6, rtol=1e-5)
    weights = list(model.parameters())
    want = torch.autograd.grad(want_BT.square().sum(), weights)
    got = torch.autograd.grad(logprob_BT.square().sum(), weights)
    scale = max(grad.abs().max() for grad in want)
    for got_one, want_one in zip(got, want, strict=True):
        torch.testing.assert_close(got_one, want_one, atol=1e-5 * float(scale), rtol=1e-4)


def test_a_row_is_the_same_alone_and_padded_on_the_right():
    model = tiny(GraniteConfig, GraniteForCausalLM)
    short, long = torch.randint(1, 40, (1, 5)), torch.randint(1, 40, (1, 9))
    both = torch.cat([torch.cat([short, torch.zeros(1, 4, dtype=torch.int64)], 1), long])

    def logprobs(ids_BT):
        hidden_BTH = model.get_decoder()(input_ids=ids_BT[:, :-1]).last_hidden_state
        return chunked_logprobs(hidden_BTH, model.get_output_embeddings(), ids_BT[:, 1:], chunk_tokens=3)[0]

    torch.testing.assert_close(logprobs(both)[0, :4], logprobs(short)[0], atol=1e-5, rtol=0)
    torch.testing.assert_close(logprobs(both)[1], logprobs(long)[0], atol=1e-5, rtol=0)

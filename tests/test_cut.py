"""A model's gradient is the same however a step is cut into micro-batches, by count or by tokens, for any ranks."""

import random

import pytest
import torch

from prewrite.algorithm.batching import collate, deal, micro_batches, pack_by_tokens
from prewrite.algorithm.logprobs import count_chunks
from prewrite.algorithm.losses import LossTensors, StepTotals, policy_loss
from prewrite.config import LossSettings
from prewrite.config.loss import LOSS_TYPES
from prewrite.types import Sample
from tests.test_loss_cases import CausalToy


def random_step():
    rng = random.Random(0)
    samples = []
    for _ in range(8):
        length = rng.randint(1, 12)
        ids = tuple(rng.randrange(1, 20) for _ in range(length))
        reason = rng.choice(["stop", "length"])
        samples.append(Sample(tuple(rng.choices(range(1, 20), k=rng.randint(1, 6))), ids, (-2.5,) * length, "", reason))
    advantages = [rng.uniform(-1, 1) for _ in samples]
    verdicts = [row != 3 for row in range(8)]
    return collate(samples, advantages, pad_token_id=0, has_verdict=verdicts, mask_truncated_completions=True)


def loss_of(model, micro, step, loss_type):
    tensors = LossTensors(model(micro), micro.sampler_logprob_BT, micro.advantage_B, micro.mask_BT)
    settings = LossSettings(loss_type=loss_type, sampler_correction="none")
    return policy_loss(tensors, settings, StepTotals(step.num_tokens, step.num_sequences, 12)).value


def gradient(step, shares, loss_type):
    """Summed over ranks and micro-batches, as the optimizer sees it; every rank makes the same number of head calls."""
    model = CausalToy()
    assert len({len(share) for share in shares}) == 1
    for micro in (step.select(rows) for share in shares for rows in share):
        loss_of(model, micro, step, loss_type).backward()
    return torch.cat([parameter.grad.flatten() for parameter in model.parameters()])


@pytest.mark.parametrize("loss_type", [loss_type for loss_type in LOSS_TYPES if loss_type != "bnpo"])
def test_gradient_does_not_depend_on_the_cut(loss_type):
    step = random_step()
    whole = gradient(step, [[list(range(8))]], loss_type)
    assert whole.abs().max() > 1e-3
    lengths = step.length_B.tolist()
    plans = [deal(micro_batches(step, size=size), ranks) for size in (4, 2) for ranks in (1, 2)]
    plans += [deal(pack_by_tokens(lengths, 30), ranks) for ranks in (1, 2, 4)]
    assert any([] in share for plan in plans for share in plan)  # an empty micro-batch is among them
    for plan in plans:
        torch.testing.assert_close(gradient(step, plan, loss_type), whole, rtol=1e-5, atol=1e-6)


def test_an_empty_micro_batch_touches_the_graph_and_pulls_nothing():
    step, model = random_step(), CausalToy()
    empty = step.select([])
    assert count_chunks(empty.num_tokens, 4) == 1
    value = loss_of(model, empty, step, "dapo")
    assert value == 0
    value.backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert not parameter.grad.any(), name

"""The public cases of kinds `loss` and `soft_overlong`: failures that people reported, each with its right answer."""

import json
import math
import os
from pathlib import Path

import pytest
import torch
from torch import nn

from prewrite.algorithm.advantages import combine_rewards, group_advantages
from prewrite.algorithm.batching import collate
from prewrite.algorithm.logprobs import chunked_logprobs
from prewrite.algorithm.losses import LossTensors, StepTotals, aggregate, kl_divergence, policy_loss
from prewrite.algorithm.metrics import metric_values
from prewrite.config import Config, LossSettings, TrainingSettings
from prewrite.config.loading import check_world
from prewrite.errors import UserError
from prewrite.rewards.solving import soft_overlong
from prewrite.training.schedule import learning_rate_at
from prewrite.types import Sample

CASES_FILE = Path(os.environ.get("PREWRITE_CASES", Path(__file__).parents[2] / "shared" / "cases")) / "cases.jsonl"


def cases():
    if not CASES_FILE.exists():
        reason = f"no cases at {CASES_FILE}; set PREWRITE_CASES to the folder of cases.jsonl"
        return [pytest.param({}, marks=pytest.mark.skip(reason=reason), id="no cases")]
    rows = map(json.loads, CASES_FILE.read_text().splitlines())
    wanted = [row for row in rows if row["kind"] in ("loss", "soft_overlong")]
    return [pytest.param(row, id=row["id"]) for row in wanted]


def tensor(values):
    return torch.tensor([math.nan if value is None else value for value in values], dtype=torch.float64)


def loss_of(logprob_BT, old_BT, advantage_B, mask_BT, length=1, ref_BT=None, **settings):
    """`policy_loss` of one micro-batch that is the whole step."""
    tensors = LossTensors(logprob_BT, old_BT, advantage_B, mask_BT, ref_logprob_BT=ref_BT)
    totals = StepTotals(int(mask_BT.sum()), len(mask_BT), max_completion_length=length)
    return policy_loss(tensors, LossSettings(sampler_correction="none", **settings), totals)


def token_losses(ratios, advantages, **settings):
    """One rollout of one token for each ratio; dapo, so that the value is their mean."""
    logprob_BT = torch.tensor(ratios, dtype=torch.float64).log()[:, None].requires_grad_()
    count = len(ratios)
    loss = loss_of(logprob_BT, torch.zeros(count, 1), torch.tensor(advantages), torch.ones(count, 1), **settings)
    loss.value.backward()
    return loss, logprob_BT.grad


def group_advantage(case):
    got = group_advantages(tensor(case["rewards"]), case["group_size"]).tolist()
    if isinstance(case["expected"], dict):
        assert max(map(abs, got)) < case["expected"]["abs_max_below"]
    else:
        assert got == pytest.approx(case["expected"], abs=1e-3)


def sum_advantage(case):
    got = group_advantages(tensor(case["rewards"]), case["group_size"])
    assert float(got.sum()) == pytest.approx(case["expected"], abs=1e-5)
    assert got.any()


def combine(case):
    # None is the other library's "not my row"
    value_FB = torch.stack([tensor(row) for row in case["rewards_per_func"]]).T
    got = combine_rewards(value_FB, ~value_FB.isnan(), torch.tensor(case["weights"]))
    assert got.tolist() == pytest.approx(case["expected"])


def clip(case):
    bounds = dict(epsilon=case["eps_low"], epsilon_high=case["eps_high"], delta=case.get("delta"))
    loss, grad = token_losses([case["ratio"]], [float(case["advantage"])], **bounds)
    assert loss.value.item() == pytest.approx(case["expected"])
    assert bool(grad.any()) == case["grad_nonzero"]


def clip_fraction(case):
    advantages = [float(advantage) for advantage in case["advantages"]]
    loss, _ = token_losses(case["ratios"], advantages, epsilon=case["eps"], epsilon_high=case["eps"])
    metrics = metric_values(loss.metrics)
    assert metrics["clip_low"] + metrics["clip_high"] == pytest.approx(case["expected"])


def reduce(case):
    mask_BT = torch.tensor(case["mask"], dtype=torch.bool)
    length = case.get("max_completion_length", mask_BT.shape[1])
    step = StepTotals(int(mask_BT.sum()), int(mask_BT.any(1).sum()), length)
    expected = dict(case["expected"])
    finite_grad = expected.pop("finite_grad", False)
    for loss_type, value in expected.items():
        per_token_BT = torch.tensor(case["per_token"], dtype=torch.float64, requires_grad=True)
        got = aggregate(per_token_BT, mask_BT, loss_type, step)
        got.backward()
        assert got.item() == pytest.approx(value)
        if finite_grad:
            assert not per_token_BT.grad.any()


def kl_k3(case):
    now, ref = (torch.tensor([[float(case[key])]]) for key in ("logp", "ref_logp"))
    assert float(kl_divergence(now, ref, "k3")) == pytest.approx(case["expected"], abs=1e-6)


def policy_loss_backward(case):
    logprob_BT = torch.tensor([case["logp"]], requires_grad=True)
    old_BT, mask_BT = torch.tensor([case["old_logp"]]), torch.tensor([case["mask"]])
    loss = loss_of(logprob_BT, old_BT, torch.tensor([case["advantage"]]), mask_BT)
    loss.value.backward()
    assert loss.value.isfinite() == case["expected"]["finite_loss"]
    assert logprob_BT.grad.isfinite().all() == case["expected"]["finite_grad"]


def kl_zero_variance_group(case):
    advantage_B = group_advantages(tensor(case["rewards"]), len(case["rewards"]))
    count = len(advantage_B)
    logprob_BT, ref_BT = torch.full((count, 1), case["logp"]), torch.full((count, 1), case["ref_logp"])
    for loss_type in ("grpo", "dapo"):
        settings = dict(ref_BT=ref_BT, loss_type=loss_type, beta=float(case["beta"]))
        loss = loss_of(logprob_BT, logprob_BT, advantage_B, torch.ones(count, 1), **settings)
        assert loss.value.item() == pytest.approx(case["expected"], abs=1e-6)


def ratio_dtype(case):
    now, old = torch.tensor([[case["logp"]]]), torch.tensor([[case["old_logp"]]])
    loss = loss_of(now, old, torch.ones(1), torch.ones(1, 1))
    assert metric_values(loss.metrics)["ratio_mean"] == pytest.approx(case["expected"], abs=case["tol"])
    with pytest.raises(AssertionError, match="half precision"):
        loss_of(now.bfloat16(), old.bfloat16(), torch.ones(1), torch.ones(1, 1))


class CausalToy(nn.Module):
    """Embeddings with positions, and one causal attention layer."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.token, self.position = nn.Embedding(20, 16), nn.Embedding(32, 16)
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
        self.head = nn.Linear(16, 20)

    def forward(self, batch):
        width = batch.input_ids_BT.shape[1]
        hidden_BTH = self.token(batch.input_ids_BT) + self.position(torch.arange(width))
        hidden_BTH = self.layer(hidden_BTH, nn.Transformer.generate_square_subsequent_mask(width), is_causal=True)
        return chunked_logprobs(hidden_BTH, self.head, batch.target_BT, mask_BT=batch.mask_BT, chunk_tokens=3)[0]


def right_padded(lengths):
    samples = [Sample((1, 2), tuple(range(3, 3 + length)), (-1.0,) * length, "", "stop") for length in lengths]
    return collate(samples, [1.0] * len(samples), pad_token_id=0)


def ratio_first_step(case):
    model = CausalToy()
    alone, mixed = right_padded([4]), right_padded([9, 4])
    with torch.no_grad():
        old_BT = torch.zeros_like(mixed.sampler_logprob_BT[1:])
        old_BT[:, : alone.mask_BT.shape[1]] = model(alone)
        now_BT = model(mixed)[1:]
    loss = loss_of(now_BT, old_BT, torch.ones(1), mixed.mask_BT[1:])
    metrics = metric_values(loss.metrics)
    assert metrics["ratio_mean"] == pytest.approx(case["expected"], abs=case["atol"])
    assert metrics["ratio_max"] == pytest.approx(case["expected"], abs=case["atol"])


def logp_pad_invariance(case):
    # This project pads on the right alone, so that the row is held against itself alone and in a mixed batch.
    model = CausalToy()
    alone, mixed = right_padded([4]), right_padded([9, 4, 6])
    want, got = model(alone)[0][alone.mask_BT[0]], model(mixed)[1][mixed.mask_BT[1]]
    assert want.any()
    torch.testing.assert_close(got, want, atol=case["expected"]["atol"], rtol=0)


def position_ids(case):
    # Right padding: positions are 0, 1, 2, ... and the real tokens come first.
    real = sum(case["attention_mask"])
    batch = right_padded([real - 1, len(case["attention_mask"]) - 1])
    assert batch.length_B[0] == real
    is_real = batch.input_ids_BT[0] != 0
    assert torch.arange(batch.input_ids_BT.shape[1])[is_real].tolist() == case["expected"]


def logp_temperature(case):
    logprob_BT, _ = chunked_logprobs(
        torch.tensor([[case["logits"]]]),
        nn.Identity(),
        torch.tensor([[case["token"]]]),
        temperature=case["temperature"],
    )
    assert logprob_BT.item() == pytest.approx(case["expected"], abs=1e-5)


def logp_top_p_bias(case):
    # The nucleus keeps all tokens but the last; the sampler's log-probs are those of the kept tokens alone.
    kept = case["kept_mass"]
    logits = torch.tensor([[[kept * 0.6, kept * 0.4, 1 - kept]]]).log()
    trainer, _ = chunked_logprobs(logits, nn.Identity(), torch.tensor([[0]]))
    sampler, _ = chunked_logprobs(logits[..., :2], nn.Identity(), torch.tensor([[0]]))
    assert (trainer - sampler).item() == pytest.approx(case["expected"], abs=1e-5)


def eos_mask(case):
    # A sampler ends a completion at its first EOS; what follows in the case is padding here, of a longer row's width.
    ids, ends = case["completion_ids"], case["eos_token_ids"]
    kept = ids[: min((ids.index(end) + 1 for end in ends if end in ids), default=len(ids))]
    samples = [Sample((1,), tuple(row), (-1.0,) * len(row), "", "stop") for row in (kept, ids)]
    batch = collate(samples, [1.0, 1.0], pad_token_id=case["pad_token_id"])
    assert batch.mask_BT[0].tolist() == [bool(m) for m in case["expected"]]


def lr_resume(case):
    settings = TrainingSettings(
        learning_rate=case["base_lr"], lr_scheduler_type="cosine", max_steps=case["T_max"], warmup_steps=0
    )
    assert learning_rate_at(case["step"], case["T_max"], settings) == pytest.approx(case["expected"])


def divisibility(case):
    config = Config.model_validate({
        "policy": {"model": "policy"}, "data": {"tasks": ["sentiment"]}, "task_model": {"model": "task"},
        "rollout": {"num_generations": case["num_generations"]},
        "training": {"max_steps": 1, "per_device_train_batch_size": case["per_device_batch"]},
    })  # fmt: skip
    if case["expected"]["error"]:
        with pytest.raises(UserError, match="num_generations"):
            check_world(config, case["world_size"])
    else:
        check_world(config, case["world_size"])


def overlong(case):
    got = soft_overlong(case["length"], case["max_len"], case["cache"])
    assert got == pytest.approx(case["expected"])


CHECKS = {
    check.__name__: check
    for check in (
        group_advantage, sum_advantage, clip, clip_fraction, reduce, kl_k3, policy_loss_backward,
        kl_zero_variance_group, ratio_dtype, ratio_first_step, logp_pad_invariance, position_ids, logp_temperature,
        logp_top_p_bias, eos_mask, lr_resume, divisibility,
    )
} | {"combine_rewards": combine, "soft_overlong": overlong}  # fmt: skip


@pytest.mark.parametrize("case", cases())
def test_case(case):
    CHECKS[case.get("op", case["kind"])](case)

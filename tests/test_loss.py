"""The policy loss against hand-worked numbers, an independent reference, and what must not change it."""

import itertools
import math
import random

import pytest
import torch

from prewrite.algorithm.losses import (
    LossTensors,
    StepTotals,
    aggregate,
    entropy_quantile,
    kl_divergence,
    policy_loss,
    sampler_weight,
)
from prewrite.algorithm.metrics import merge_metrics, metric_values
from prewrite.config import LossSettings
from prewrite.config.loss import LOSS_TYPES
from prewrite.errors import UserError
from tests.reference_losses import reference_loss

CORRECTIONS = ("none", "token_truncate", "token_mask", "sequence_truncate", "sequence_mask")
LEVELS = [(loss_type, "token") for loss_type in LOSS_TYPES] + [("grpo", "sequence")]
NAN = math.nan

# Two rollouts, four positions; the second completion has two tokens. Log-probs and ratios now / at rollout:
LOGPROB = [[-1.0, -2.0, -0.5, -1.0], [-1.0, -3.0, NAN, NAN]]
RATIO = [[1.0, 1.5, 0.5, 1.0], [1.0, 2.0, NAN, NAN]]
MASK = [[1, 1, 1, 1], [1, 1, 0, 0]]
ADVANTAGE = [2.0, -1.0]


def loss_of(logprob_BT, old_BT, advantage_B, mask_BT, sampler_BT=None, ref_BT=None, entropy_BT=None, **settings):
    """`policy_loss` of one micro-batch that is the whole step, unless `settings` name other totals of the step."""
    count = int(mask_BT.sum())
    totals = dict(num_tokens=count, num_sequences=len(mask_BT), max_completion_length=9, num_micro_batches=1)
    totals |= dict(entropy_threshold=None)
    totals |= {name: settings.pop(name) for name in totals if name in settings}
    tensors = LossTensors(logprob_BT, old_BT, advantage_B, mask_BT, sampler_BT, ref_BT, entropy_BT)
    made = LossSettings(**({"sampler_correction": "none"} | settings))
    return policy_loss(tensors, made, StepTotals(**totals))


def hand_example(**settings):
    logprob_BT = torch.tensor(LOGPROB, dtype=torch.float64, requires_grad=True)
    old_BT = logprob_BT.detach() - torch.tensor(RATIO, dtype=torch.float64).log()
    given = dict(max_completion_length=5, epsilon=0.2, epsilon_high=0.28) | settings
    loss = loss_of(logprob_BT, old_BT, torch.tensor(ADVANTAGE), torch.tensor(MASK), **given)
    loss.value.backward()
    return loss.value.item(), logprob_BT.grad, metric_values(loss.metrics)


# min(r A, clip(r, 0.8, 1.28) A), a token:
#   row 1, A = 2:   r 1 -> 2      r 1.5 -> 1.28 x 2 = 2.56      r 0.5 -> 1      r 1 -> 2      sum 7.56, mean 1.89
#   row 2, A = -1:  r 1 -> -1     r 2 -> min(-2, -1.28) = -2                                  sum -3,   mean -1.5
# grpo     -(1.89 - 1.5) / 2 = -0.195
# dapo     -(7.56 - 3) / 6 = -0.76; bnpo the same, in one micro-batch
# dr_grpo  -(7.56 - 3) / (2 x 5) = -0.456
# cispo    min(r, 1.6) A l: row 1 -2 - 6 - 0.5 - 2 = -10.5; row 2 1 + 1.6 x 3 = 5.8; -(-10.5 + 5.8) / 6 = 0.783333
# sapo     4 / tau sigmoid(tau (r - 1)) A, tau 1 where A > 0, else 2:
#          row 1 8 x (0.5 + 0.6224593 + 0.3775407 + 0.5) = 16, mean 4
#          row 2 -2 x (0.5 + 0.8807971) = -2.7615942, mean -1.3807971;  -(4 - 1.3807971) / 2 = -1.3096015
# GSPO     row 1 s = (1 x 1.5 x 0.5 x 1)^(1/4) = 0.9306049, 2 s = 1.8612097
#          row 2 s = sqrt(2), min(-1.4142136, -1.28) = -1.4142136;  -(1.8612097 - 1.4142136) / 2 = -0.2234981
@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (dict(loss_type="grpo"), -0.195),
        (dict(loss_type="dapo"), -0.76),
        (dict(loss_type="bnpo"), -0.76),
        (dict(loss_type="dr_grpo"), -0.456),
        (dict(loss_type="cispo", cispo_cap=1.6), 0.7833333),
        (dict(loss_type="sapo", sapo_temperature_pos=1.0, sapo_temperature_neg=2.0), -1.3096015),
        (dict(loss_type="grpo", importance_sampling_level="sequence"), -0.2234981),
        # delta 1.5: row 2's second token becomes -1.5; -(7.56 - 2.5) / 6
        (dict(loss_type="dapo", delta=1.5), -0.8433333),
    ],
)
def test_hand_worked_value(settings, expected):
    value, _, _ = hand_example(**settings)
    assert value == pytest.approx(expected, abs=1e-6)


def test_hand_worked_gradient():
    # dapo: -A r / 6 where not clipped: row 1 -2/6, clipped 0, -1/6, -2/6; row 2 1/6, 2/6, padding 0
    _, grad, _ = hand_example(loss_type="dapo")
    expected = torch.tensor([[-2, 0, -1, -2], [1, 2, 0, 0]], dtype=torch.float64) / 6
    torch.testing.assert_close(grad, expected)


def test_hand_worked_kl():
    # d = ref - now = ln 2: k1 -0.6931472, k2 0.2402265, k3 2 - 0.6931472 - 1 = 0.3068528; never negative but for k1
    now, ref = torch.tensor([[-1.0]]), torch.tensor([[-1.0 + math.log(2)]])
    for estimator, expected in (("k1", -0.6931472), ("k2", 0.2402265), ("k3", 0.3068528)):
        assert float(kl_divergence(now, ref, estimator)) == pytest.approx(expected, abs=1e-6)


def test_hand_worked_sampler_correction():
    # One row, A = 1, ratio 1, exp(l_old - l_smp) = 0.25, 1, 4: surrogate = weight
    # token, bounds 0.5, 2:   truncate 0.5 + 1 + 2 = 3.5       mask 0 + 1 + 0 = 1
    # sequence: product 1 for each token, 3; with bounds (0.5, 2) nothing cut
    # second row, factors 2, 2, 1, product 4: truncate 2 x 3 = 6, mask 0
    old_BT = torch.full((2, 3), -3.0)
    sampler_BT = old_BT - torch.tensor([[0.25, 1.0, 4.0], [2.0, 2.0, 1.0]]).log()
    expected = {"token_truncate": (3.5, 5), "token_mask": (1, 5), "sequence_truncate": (3, 6), "sequence_mask": (3, 0)}
    for correction, row_sums in expected.items():
        for row, row_sum in enumerate(row_sums):
            loss = loss_of(
                old_BT[[row]], old_BT[[row]], torch.ones(1), torch.ones(1, 3), sampler_BT=sampler_BT[[row]],
                sampler_correction=correction, sampler_bounds=(0.5, 2.0),
            )  # fmt: skip
            assert loss.value.item() == pytest.approx(-row_sum / 3, rel=1e-6), (correction, row)


def test_a_sampler_weight_at_a_bound_is_not_cut():
    for correction in CORRECTIONS[1:]:
        weight_BT, is_cut_BT = sampler_weight(torch.zeros(1, 2), correction, (1.0, 1.0))
        assert weight_BT.tolist() == [[1.0, 1.0]]
        assert not is_cut_BT.any()


def test_hand_worked_metrics():
    # Of 6 tokens one is above 1.28 with A > 0; none below 0.8 with A < 0. Ratios sum to 4 + 3.
    sampler_BT = torch.tensor(LOGPROB) - torch.tensor(RATIO).log() - torch.tensor([[0.0, 0, 0, -1.5], [1.0, 0, 0, 0]])
    _, _, metrics = hand_example(
        loss_type="dapo", sampler_correction="token_truncate", sampler_BT=sampler_BT, beta=0.5,
        ref_BT=torch.tensor(LOGPROB) + 0.3, kl_estimator="k2", entropy_BT=torch.tensor([[1.0] * 4, [4.0] * 4]),
    )  # fmt: skip
    expected = {
        "tokens": 6, "clip_low": 0, "clip_high": 1 / 6, "ratio_mean": 7 / 6, "ratio_max": 2,
        "sampler_gap": 2.5 / 6, "sampler_gap_max": 1.5, "sampler_weight_mean": (4 + math.exp(-1.5) + 2) / 6,
        "sampler_weight_min": math.exp(-1.5), "sampler_cut": 1 / 6, "kl": 0.045, "entropy": (4 + 8) / 6,
    }  # fmt: skip
    loss = metrics.pop("loss")
    assert metrics == pytest.approx(expected, rel=1e-5)
    # weights 1 1 1 e^-1.5 and 2 1: -(2 + 2.56 + 1 + 2 e^-1.5 - 2 - 2) / 6 + 0.5 x 0.045
    assert loss == pytest.approx(-(1.56 + 2 * math.exp(-1.5)) / 6 + 0.0225, rel=1e-6)


def clip_shares(ratios, advantage, **settings):
    """(clip_low, clip_high) of one row."""
    ratio_BT = torch.tensor([ratios], dtype=torch.float64)
    count = len(ratios)
    ones_BT = torch.ones(1, count)
    loss = loss_of(ratio_BT.log(), torch.zeros(1, count), torch.tensor([advantage]), ones_BT, **settings)
    metrics = metric_values(loss.metrics)
    return metrics["clip_low"], metrics["clip_high"]


def test_clip_shares():
    # below 0.8 only with A < 0, above 1.28 only with A > 0
    for advantage, expected in ((1.0, (0, 0.25)), (-1.0, (0.5, 0)), (0.0, (0, 0)), (0.5, (0, 0.25)), (-0.5, (0.5, 0))):
        assert clip_shares([1.5, 0.5, 0.7, 1.0], advantage) == expected
    # at a bound nothing is cut
    for advantage in (1.0, -1.0):
        assert clip_shares([0.5, 1.5], advantage, epsilon=0.5, epsilon_high=0.5) == (0, 0)
    # the cap of cispo does not look at the sign; sapo cuts nothing
    for advantage in (1.0, -1.0):
        assert clip_shares([1.0, 2.0, 3.0, 0.1], advantage, loss_type="cispo", cispo_cap=2.5) == (0, 0.25)
        assert clip_shares([1.0], advantage, loss_type="cispo", cispo_cap=1.0) == (0, 0)
        assert clip_shares([9.0, 0.1], advantage, loss_type="sapo") == (0, 0)


def test_defaults_are_those_documented():
    documented = {
        "loss_type": "dapo", "epsilon": 0.2, "epsilon_high": 0.28, "delta": None, "cispo_cap": 5.0,
        "sapo_temperature_pos": 1.0, "sapo_temperature_neg": 1.05, "importance_sampling_level": "token", "beta": 0.0,
        "kl_estimator": "k3", "sampler_correction": "token_truncate", "sampler_bounds": (0.0, 2.0),
        "entropy_coef": 0.0,
    }  # fmt: skip
    assert documented.items() <= LossSettings().model_dump().items()
    step = StepTotals(1, 2, 3)
    assert (step.num_micro_batches, step.entropy_threshold) == (1, None)


def random_rows(seed, lengths=(5, 1, 3, 7), spread=1.0):
    rng = random.Random(seed)
    rows = []
    for length in lengths:
        logprob = [rng.uniform(-4, -0.1) for _ in range(length)]
        rows.append({
            "logprob": logprob,
            "old": [value + rng.uniform(-spread, spread) for value in logprob],
            "ref": [value + rng.uniform(-spread, spread) for value in logprob],
            "sampler": [value + rng.uniform(-spread, spread) for value in logprob],
            "entropy": [rng.uniform(0, 3) for _ in range(length)],
            "advantage": rng.choice([-1, 1]) * rng.uniform(0.2, 2),
        })  # fmt: skip
    return rows


def padded(rows, key, width, pad=NAN, side="right"):
    out = torch.full((len(rows), width), pad, dtype=torch.float64)
    for index, row in enumerate(rows):
        where = slice(0, len(row[key])) if side == "right" else slice(width - len(row[key]), width)
        out[index, where] = torch.tensor(row[key], dtype=torch.float64)
    return out


def tensors(rows, width=8, pad=NAN, side="right"):
    made = {key: padded(rows, key, width, pad, side) for key in ("logprob", "old", "ref", "sampler", "entropy")}
    made["mask"] = ~padded(rows, "logprob", width, NAN, side).isnan()
    made["advantage"] = torch.tensor([row["advantage"] for row in rows], dtype=torch.float64)
    return made


def run(data, **settings):
    """(value, logprob gradient) of the tensors of `tensors`, all optional inputs handed over."""
    logprob_BT = data["logprob"].clone().requires_grad_()
    loss = loss_of(
        logprob_BT, data["old"], data["advantage"], data["mask"], data["sampler"], data["ref"], data["entropy"],
        **settings,
    )  # fmt: skip
    loss.value.backward()
    return loss.value.detach(), logprob_BT.grad, loss.metrics


@pytest.mark.parametrize(("loss_type", "level"), LEVELS)
@pytest.mark.parametrize("correction", CORRECTIONS)
def test_every_combination_agrees_with_the_reference(loss_type, level, correction):
    deltas = (None, 1.6) if loss_type not in ("cispo", "sapo") else (None,)
    for seed, (kl, delta, threshold) in enumerate(itertools.product((None, "k1", "k2", "k3"), deltas, (None, 1.2))):
        rows = random_rows(seed)
        data = tensors(rows)
        bounds = (0.6, 1.5) if seed % 2 else (0.0, 2.0)
        value, grads, entropy_grads = reference_loss(
            rows, loss_type=loss_type, level=level, epsilon=0.2, epsilon_high=0.28, delta=delta, cap=1.4, tau_pos=1.0,
            tau_neg=1.3, beta=0.07 if kl else 0.0, kl=kl, correction=correction, bounds=bounds,
            entropy_threshold=threshold, entropy_coef=0.01 * (seed % 3), max_completion_length=9,
        )  # fmt: skip
        data["entropy"].requires_grad_()
        got, got_grad, _ = run(
            data, loss_type=loss_type, importance_sampling_level=level, epsilon=0.2, epsilon_high=0.28, delta=delta,
            cispo_cap=1.4, sapo_temperature_pos=1.0, sapo_temperature_neg=1.3, beta=0.07 if kl else 0.0,
            kl_estimator=kl or "k3", sampler_correction=correction, sampler_bounds=bounds, entropy_threshold=threshold,
            entropy_coef=0.01 * (seed % 3),
        )  # fmt: skip
        torch.testing.assert_close(float(got), value, rtol=1e-9, atol=1e-12)
        for row, (expected, expected_entropy) in enumerate(zip(grads, entropy_grads, strict=True)):
            torch.testing.assert_close(got_grad[row, : len(expected)].tolist(), expected, rtol=1e-9, atol=1e-12)
            assert not got_grad[row, len(expected) :].any()
            if seed % 3:
                entropy_grad = data["entropy"].grad[row, : len(expected)].tolist()
                torch.testing.assert_close(entropy_grad, expected_entropy, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("loss_type", LOSS_TYPES)
def test_float32_agrees_with_the_reference(loss_type):
    data64 = tensors(random_rows(3))
    data32 = {key: value if key == "mask" else value.float() for key, value in data64.items()}
    settings = dict(loss_type=loss_type, beta=0.1, sampler_correction="token_truncate")
    (value64, grad64, _), (value32, grad32, _) = run(data64, **settings), run(data32, **settings)
    assert value32.dtype == torch.float32
    torch.testing.assert_close(value32.double(), value64, rtol=1e-5, atol=1e-7)
    torch.testing.assert_close(grad32.double(), grad64, rtol=1e-5, atol=1e-7)


EVERYTHING = dict(beta=0.1, sampler_correction="token_truncate", entropy_threshold=1.0, entropy_coef=0.02)


@pytest.mark.parametrize(("loss_type", "level"), LEVELS)
def test_padding_and_order_of_rows_do_not_matter(loss_type, level):
    rows = random_rows(5)
    settings = dict(loss_type=loss_type, importance_sampling_level=level, **EVERYTHING)
    value, grad, _ = run(tensors(rows), **settings)
    for pad, side in ((NAN, "left"), (0.0, "right"), (math.inf, "right"), (-1e30, "left")):
        other_value, other_grad, _ = run(tensors(rows, 11, pad, side), **settings)
        torch.testing.assert_close(other_value, value)
        for row, length in enumerate(map(len, (row["logprob"] for row in rows))):
            where = slice(0, length) if side == "right" else slice(11 - length, 11)
            torch.testing.assert_close(other_grad[row, where], grad[row, :length])
            assert other_grad[row].count_nonzero() <= length
    reversed_value, reversed_grad, _ = run(tensors(rows[::-1]), **settings)
    torch.testing.assert_close(reversed_value, value)
    torch.testing.assert_close(reversed_grad.flip(0), grad)


def run_cut(rows, cuts, **settings):
    """The step as `cuts` micro-batches of equal rows: summed value and gradient, merged metrics."""
    num_tokens = sum(len(row["logprob"]) for row in rows)
    size = len(rows) // cuts
    parts = [
        run(tensors(rows[start : start + size]), num_tokens=num_tokens, num_sequences=len(rows),
            num_micro_batches=cuts, **settings)
        for start in range(0, len(rows), size)
    ]  # fmt: skip
    metrics = metric_values(merge_metrics(part[2] for part in parts))
    return sum(part[0] for part in parts), torch.cat([part[1] for part in parts]), metrics


@pytest.mark.parametrize(("loss_type", "level"), [pair for pair in LEVELS if pair[0] != "bnpo"])
def test_the_cut_into_micro_batches_does_not_matter(loss_type, level):
    rows = random_rows(7)
    settings = dict(loss_type=loss_type, importance_sampling_level=level, **EVERYTHING)
    value, grad, metrics = run_cut(rows, 1, **settings)
    for cuts in (2, 4):
        other_value, other_grad, other_metrics = run_cut(rows, cuts, **settings)
        torch.testing.assert_close(other_value, value)
        torch.testing.assert_close(other_grad, grad)
        assert other_metrics == pytest.approx(metrics)
    assert metrics["loss"] == pytest.approx(float(value))


def test_bnpo_depends_on_the_cut():
    # In one micro-batch -0.76 (above); in two, the mean of -7.56 / 4 and 3 / 2: -0.195
    rows = [
        {key: values for key, values in zip(("logprob", "old"), row, strict=True)} | {"advantage": advantage}
        for row, advantage in (
            (([-1.0, -2.0, -0.5, -1.0], [-1.0, -2.0 - math.log(1.5), -0.5 + math.log(2), -1.0]), 2.0),
            (([-1.0, -3.0], [-1.0, -3.0 - math.log(2)]), -1.0),
        )
    ]
    for row in rows:
        row |= {key: row["logprob"] for key in ("ref", "sampler", "entropy")}
    assert float(run_cut(rows, 1, loss_type="bnpo")[0]) == pytest.approx(-0.76)
    assert float(run_cut(rows, 2, loss_type="bnpo")[0]) == pytest.approx(-0.195)


@pytest.mark.parametrize(("loss_type", "level"), LEVELS)
@pytest.mark.parametrize("correction", CORRECTIONS)
def test_nothing_to_learn_from_is_finite_with_a_zero_gradient(loss_type, level, correction):
    settings = dict(loss_type=loss_type, importance_sampling_level=level, sampler_correction=correction)
    data = tensors(random_rows(9))
    flat = data | {"advantage": torch.zeros(4, dtype=torch.float64)}
    value, grad, _ = run(flat, **settings)
    assert value == 0
    assert not grad.any()

    data["mask"][2] = False
    _, grad, _ = run(data, **(EVERYTHING | settings))
    assert grad.isfinite().all()
    assert not grad[2].any()
    assert grad[[0, 1, 3]].any()

    data["mask"][:] = False
    value, grad, metrics = run(data, **(EVERYTHING | settings | dict(num_tokens=0, num_sequences=0)))
    assert value == 0
    assert not grad.any()
    assert metric_values(metrics) == {"loss": 0.0, "tokens": 0.0}


def test_a_step_without_tokens_on_this_rank_adds_nothing_to_the_metrics():
    data = tensors(random_rows(9))
    settings = dict(sampler_correction="token_truncate", num_tokens=16, num_sequences=4)
    full = run(data, **settings)[2]
    empty = run(data | {"mask": torch.zeros_like(data["mask"])}, **settings)[2]
    merged = merge_metrics([empty, full, empty])
    assert metric_values(merged) == metric_values(full)


@pytest.mark.parametrize(("loss_type", "level"), LEVELS)
@pytest.mark.parametrize("advantage", [1.0, -1.0])
def test_huge_log_ratios_stay_finite(loss_type, level, advantage):
    for dtype, shift, kl in itertools.product((torch.float32, torch.float64), (1e4, -1e4), ("k1", "k2", "k3")):
        logprob_BT = torch.full((2, 3), -1.0, dtype=dtype, requires_grad=True)
        other_BT = logprob_BT.detach() + shift
        for correction in CORRECTIONS:
            loss = loss_of(
                logprob_BT, other_BT, torch.full((2,), advantage), torch.ones(2, 3), sampler_BT=other_BT - shift,
                ref_BT=other_BT, loss_type=loss_type, importance_sampling_level=level, beta=0.1, kl_estimator=kl,
                sampler_correction=correction,
            )  # fmt: skip
            (grad,) = torch.autograd.grad(loss.value, logprob_BT)
            assert loss.value.isfinite(), (dtype, shift, kl, correction)
            assert grad.isfinite().all(), (dtype, shift, kl, correction)


def test_ratios_are_bounded_by_exp_20():
    loss = loss_of(torch.zeros(1, 1), torch.full((1, 1), -30.0), torch.ones(1), torch.ones(1, 1))
    assert metric_values(loss.metrics)["ratio_max"] == pytest.approx(math.exp(20), rel=1e-5)


def test_kl_far_from_the_reference_pushes_towards_it():
    logprob = torch.tensor([-1.0], requires_grad=True)
    for ref, sign in ((-5000.0, 1.0), (5000.0, -1.0), (10.0, -1.0)):
        for estimator in ("k2", "k3"):
            (grad,) = torch.autograd.grad(kl_divergence(logprob, torch.tensor([ref]), estimator).sum(), logprob)
            assert grad.sign() in (sign, 0.0), (ref, estimator)


@pytest.mark.parametrize(("loss_type", "level"), LEVELS)
def test_ratio_one_gives_the_reinforce_gradient(loss_type, level):
    data = tensors(random_rows(11))
    lengths = data["mask"].sum(1, keepdim=True)
    share = {"grpo": 1 / (4 * lengths), "sapo": 1 / (4 * lengths), "dr_grpo": torch.tensor(1 / (4 * 9))}
    expected = -data["advantage"][:, None] * share.get(loss_type, 1 / lengths.sum()) * data["mask"]
    for old in (data["logprob"], None):
        _, grad, metrics = run(data | {"old": old}, loss_type=loss_type, importance_sampling_level=level)
        torch.testing.assert_close(grad, expected)
        assert metric_values(metrics)["ratio_mean"] == 1


def test_old_logprobs_left_out_are_those_of_now_for_the_sampler_correction_too():
    data = tensors(random_rows(12))
    given = run(data | {"old": data["logprob"]}, sampler_correction="token_truncate")
    left_out = run(data | {"old": None}, sampler_correction="token_truncate")
    torch.testing.assert_close(left_out[:2], given[:2])


def test_only_tokens_that_reach_the_entropy_threshold_carry_the_surrogate():
    data = tensors(random_rows(13, lengths=(3,)))
    data["entropy"][0, :3] = torch.tensor([1.0, 2.0, 3.0])
    _, grad, _ = run(data | {"old": None}, entropy_threshold=2.0)
    assert (grad[0, :3] != 0).tolist() == [False, True, True]


def test_entropy_quantile_is_the_share_of_active_tokens():
    entropy_BT = torch.tensor([[1.0, 2, 3, 99], [4, 5, 99, 99]])
    mask_BT = torch.tensor([[1, 1, 1, 0], [1, 1, 0, 0]])
    for share, expected in ((0.2, 5.0), (0.4, 4.0), (1.0, 1.0), (0.01, 5.0)):
        assert entropy_quantile(entropy_BT, mask_BT, share) == expected
    assert entropy_quantile(entropy_BT, torch.zeros(2, 4), 0.2) == 0.0


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        (dict(loss_type="ppo"), "loss_type"),
        *[(dict(loss_type=kind, importance_sampling_level="sequence"), "GSPO") for kind in LOSS_TYPES[1:]],
        (dict(importance_sampling_level="word"), "importance_sampling_level"),
        (dict(sampler_correction="clip"), "sampler_correction"),
        (dict(sampler_bounds=(0.0, 0.5)), "sampler_bounds"),
        (dict(sampler_bounds=(1.5, 2.0)), "sampler_bounds"),
        (dict(sampler_bounds=(-0.1, 2.0)), "sampler_bounds"),
        (dict(beta=0.1, kl_estimator="k4"), "kl_estimator"),
        (dict(epsilon=0.0), "epsilon"),
        (dict(epsilon=1.0), "epsilon"),
        (dict(epsilon_high=0.0), "epsilon_high"),
        (dict(delta=1.28), "delta"),
        (dict(delta=3.0, loss_type="cispo"), "delta"),
        (dict(delta=3.0, loss_type="sapo"), "delta"),
    ],
)  # fmt: skip
def test_contradictions_are_refused(settings, reason):
    with pytest.raises(ValueError, match=reason):
        LossSettings(**settings)


def test_the_entropy_bonus_counts_as_often_as_the_step_says():
    tensors = LossTensors(
        torch.tensor([[-1.0, -2.0]]), None, torch.ones(1), torch.ones(1, 2, dtype=torch.bool),
        sampler_logprob_BT=torch.tensor([[-1.0, -2.0]]), entropy_BT=torch.tensor([[0.3, 0.5]]),
    )  # fmt: skip
    paid, thrice, rests, none = (
        float(policy_loss(tensors, LossSettings(entropy_coef=coef), StepTotals(2, 1, 4, entropy_scale=scale)).value)
        for coef, scale in ((0.5, 1), (0.5, 3), (0.5, 0), (0.0, 1))
    )
    assert rests == none
    assert paid == pytest.approx(none - 0.5 * 0.4)
    assert thrice == pytest.approx(none - 1.5 * 0.4)


def test_edge_settings_are_allowed():
    LossSettings(epsilon=0.01, epsilon_high=0.01, delta=1.02, sampler_bounds=(0.0, 1.0))
    LossSettings(epsilon=0.99, sampler_bounds=(1.0, 1.0))


def test_what_a_setting_needs_is_demanded():
    plain = torch.zeros(1, 2)
    for settings in (dict(beta=0.1), dict(sampler_correction="token_mask"), dict(entropy_coef=0.1),
                     dict(entropy_threshold=0.1)):  # fmt: skip
        with pytest.raises(AssertionError, match="needs"):
            loss_of(plain, plain, torch.ones(1), torch.ones(1, 2), **settings)
    with pytest.raises(AssertionError, match="half precision"):
        loss_of(plain.bfloat16(), plain, torch.ones(1), torch.ones(1, 2))


def test_aggregate_guards_an_empty_step():
    zero_BT = torch.ones(1, 2)
    for loss_type in LOSS_TYPES:
        assert aggregate(zero_BT, torch.zeros(1, 2, dtype=torch.bool), loss_type, StepTotals(0, 0, 4, 0)) == 0


@pytest.mark.parametrize("loss_type", LOSS_TYPES)
def test_one_token_is_its_own_mean(loss_type):
    only_BT = torch.tensor([[3.0, 99.0]])
    assert aggregate(only_BT, torch.tensor([[True, False]]), loss_type, StepTotals(1, 1, 1)) == 3
    assert aggregate(only_BT, torch.tensor([[True, True]]), "bnpo", StepTotals(1, 1, 1, 2)) == 25.5


def test_extremes_are_those_of_active_tokens_and_metrics_have_no_graph():
    # the only active token has ratio 0.5 and sampler weight 2; padding would have 1 and 1
    data = tensors(random_rows(14, lengths=(1,)))
    data["old"] = data["logprob"] + math.log(2)
    data["sampler"] = data["old"] - math.log(2)
    data["entropy"].requires_grad_()
    _, _, metrics = run(data, sampler_correction="token_truncate", beta=0.1)
    values = metric_values(metrics)
    assert values["ratio_max"] == pytest.approx(0.5)
    assert values["sampler_weight_min"] == pytest.approx(2.0)
    assert not any(value.requires_grad for value in (*metrics.sums.values(), *metrics.maxima.values()))


def squared(tensors, settings):
    """A loss of the user's own: it may read everything, and finds 0 outside the mask."""
    parts = [tensors.logprob_BT, tensors.old_logprob_BT, tensors.sampler_logprob_BT, tensors.ref_logprob_BT]
    assert not any(part[~tensors.mask_BT].any() for part in [*parts, tensors.entropy_BT])
    log_ratio_BT = tensors.logprob_BT - tensors.old_logprob_BT
    return (log_ratio_BT - settings.epsilon * tensors.advantage_B[:, None]) ** 2


def raises(tensors, settings):
    return tensors.nothing


def without_gradient(tensors, settings):
    return torch.zeros_like(tensors.logprob_BT)


def one_number(tensors, settings):
    return tensors.logprob_BT.sum()


def no_tensor(tensors, settings):
    return 1.0


def takes_one(tensors):
    return tensors.logprob_BT


def test_a_loss_of_ones_own_stands_for_the_surrogate_and_the_other_terms_join_it():
    data, name = tensors(random_rows(15)), f"{__name__}:squared"
    value, grad, metrics = run(data, loss_type=name, epsilon=0.3)
    log_ratio_BT = (data["logprob"] - data["old"]).nan_to_num()
    distance_BT = (log_ratio_BT - 0.3 * data["advantage"][:, None]) * data["mask"]
    torch.testing.assert_close(value, (distance_BT**2).sum() / 16)  # 16 tokens
    torch.testing.assert_close(grad, 2 * distance_BT / 16)
    assert metric_values(metrics)["clip_high"] == 0
    more, _, _ = run(
        data, loss_type=name, epsilon=0.3, beta=0.5, kl_estimator="k1", sampler_correction="token_truncate"
    )
    weight_BT = (data["old"] - data["sampler"]).nan_to_num().exp().clamp(0, 2)
    kl_BT = (data["logprob"] - data["ref"]).nan_to_num()
    torch.testing.assert_close(more, (distance_BT**2 * weight_BT + 0.5 * kl_BT).sum() / 16)
    first, _, _ = run(data | {"old": None}, loss_type=name, epsilon=0.3)
    torch.testing.assert_close(first, ((0.3 * data["advantage"][:, None] * data["mask"]) ** 2).sum() / 16)


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        ("raises", r"it raised AttributeError: .*nothing.*test_loss.py, line"),
        ("without_gradient", "no gradient"),
        ("one_number", r"it returned \(\); a loss for every token is a tensor \(4, 8\)"),
        ("no_tensor", "it returned float"),
        ("takes_one", "called with 2 arguments"),
        ("squarde", "Did you mean 'squared'"),
    ],
)
def test_what_a_loss_of_ones_own_does_wrong_is_one_message(function, reason):
    with pytest.raises(UserError, match=reason):
        run(tensors(random_rows(1)), loss_type=f"{__name__}:{function}")
    with torch.no_grad():  # where a step teaches nothing there is no graph to ask for
        loss_of(torch.zeros(1, 1), None, torch.zeros(1), torch.ones(1, 1), loss_type=f"{__name__}:without_gradient")

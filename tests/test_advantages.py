"""Advantages and the sum of several rewards: hand-worked numbers, a slow reference, and the two kinds of nothing."""

import itertools
import math
import random

import pytest
import torch

from prewrite.algorithm.advantages import combine_rewards, flat_groups, group_advantages
from tests.reference_losses import reference_advantages

NAN = math.nan


def advantages(rewards, num_generations, **settings):
    return group_advantages(torch.tensor(rewards, dtype=torch.float64), num_generations, **settings).tolist()


def test_hand_worked():
    # group 1, 2, 3, 6: mean 3, squares 4 + 1 + 0 + 9 = 14, std sqrt(14 / 3) = 2.1602469
    assert advantages([1, 2, 3, 6], 4) == pytest.approx([-2 / 2.1603469, -1 / 2.1603469, 0, 3 / 2.1603469])
    assert advantages([1, 2, 3, 6], 4, scale_rewards="none") == pytest.approx([-2, -1, 0, 3])
    assert advantages([1, 2, 3, 6], 4, scale_rewards="none", leave_one_out=True) == pytest.approx(
        [1 - 11 / 3, 2 - 10 / 3, 0, 6 - 2]
    )
    # batch 0, 1, 2, 5: mean 2, squares 4 + 1 + 0 + 9, the same std; groups (0, 1) and (2, 5): centred by 0.5 and 1.5
    scale = 2.1603469
    assert advantages([0, 1, 2, 5], 2, scale_rewards="batch") == pytest.approx(
        [-0.5 / scale, 0.5 / scale, -1.5 / scale, 1.5 / scale]
    )


def test_no_verdict_is_left_out_of_the_baseline_and_gets_nothing():
    # verdicts 0 and 1: mean 0.5, std 0.7071068
    assert advantages([0, NAN, 1, NAN], 4) == pytest.approx([-0.5 / 0.7072068, 0, 0.5 / 0.7072068, 0])
    assert advantages([NAN, 1, 0, 1], 2, scale_rewards="none") == [0, 0, -0.5, 0.5]
    assert advantages([0, 1, NAN, NAN], 2, scale_rewards="batch") == pytest.approx(
        [-0.5 / 0.7072068, 0.5 / 0.7072068, 0, 0]
    )


@pytest.mark.parametrize("scale_rewards", ["group", "batch", "none"])
@pytest.mark.parametrize("leave_one_out", [False, True])
def test_flat_groups_and_groups_without_two_verdicts_are_exactly_zero(scale_rewards, leave_one_out):
    settings = dict(scale_rewards=scale_rewards, leave_one_out=leave_one_out)
    for rewards in ([0.1] * 4, [0.1, 0.1 + 1e-7, 0.1 - 1e-7, 0.1], [NAN, 5, NAN, NAN], [NAN] * 4, [NAN, 2, 2, NAN],
                    [-3e6, -3e6 + 1, -3e6, -3e6], [1e6, 1e6 + 0.5, 1e6, 1e6]):  # fmt: skip
        assert advantages(rewards, 4, **settings) == [0.0] * 4, rewards
    assert advantages([0.1, 0.1 + 1e-5], 2, **settings)[1] > 0
    # what is left over of a sum in float32 is noise as well
    noisy = torch.tensor([0.1 + 0.2, 0.3, 0.3, 0.3], dtype=torch.float32).roll(1)
    assert not group_advantages(noisy, 4, **settings).any()


@pytest.mark.parametrize("scale_rewards", ["group", "batch", "none"])
@pytest.mark.parametrize("leave_one_out", [False, True])
def test_agrees_with_the_reference(scale_rewards, leave_one_out):
    for seed, num_generations in itertools.product(range(5), (2, 3, 8)):
        rng = random.Random(seed)
        rewards = [rng.choice([0.0, 1.0, rng.gauss(0, 2), NAN]) for _ in range(num_generations * 6)]
        settings = dict(scale_rewards=scale_rewards, leave_one_out=leave_one_out, eps=1e-4)
        expected = reference_advantages([None if math.isnan(r) else r for r in rewards], num_generations, **settings)
        assert advantages(rewards, num_generations, **settings) == pytest.approx(expected, rel=1e-9, abs=1e-12)
        single = group_advantages(torch.tensor(rewards), num_generations, **settings)
        assert single.dtype == torch.float32
        assert single.tolist() == pytest.approx(expected, rel=1e-6, abs=1e-6)


def test_advantages_of_a_group_sum_to_zero_and_eps_is_read():
    rewards = torch.rand(6, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    advantage_NG = group_advantages(rewards.flatten(), 8).view(6, 8)
    torch.testing.assert_close(advantage_NG.sum(1), torch.zeros(6, dtype=torch.float64), atol=1e-9, rtol=0)
    assert advantages([0, 2], 2, eps=1.0)[1] == pytest.approx(1 / (math.sqrt(2) + 1))
    assert advantages([0, 2], 2, eps=1.0, scale_rewards="batch")[1] == pytest.approx(1 / (math.sqrt(2) + 1))


def test_integer_rewards_give_float32():
    assert group_advantages(torch.tensor([0, 1]), 2).dtype == torch.float32


def test_flat_groups():
    rewards = torch.tensor([1, 1, 1, 0, NAN, 0, NAN, NAN, 0.25, 0.2500001, 0.25, 0.26])
    assert flat_groups(rewards, 2).tolist() == [True, False, True, True, True, False]
    assert flat_groups(torch.tensor([NAN, 0.0, 1.0]), 3).tolist() == [False]
    assert flat_groups(torch.tensor([NAN, 2.0, 2.0]), 3).tolist() == [True]
    # The bound is 1e-6, itself included, and grows with rewards above 1 alone.
    exact = [0.0, 1e-6, 0.1, 0.1 + 2e-6, -1e3, -1e3 + 9e-4, -1e3, -1e3 + 2e-3, 0.0, 1e-3]
    assert flat_groups(torch.tensor(exact, dtype=torch.float64), 2).tolist() == [True, False, True, False, False]


@pytest.mark.parametrize(
    ("rewards", "num_generations", "settings", "reason"),
    [
        ([1.0, 2.0, 3.0], 2, {}, "whole number of groups"),
        ([1.0, math.inf], 2, {}, "infinite"),
        ([1.0, 2.0], 2, {"scale_rewards": "std"}, "scale_rewards"),
    ],
)
def test_refused(rewards, num_generations, settings, reason):
    with pytest.raises(ValueError, match=reason):
        advantages(rewards, num_generations, **settings)


def test_groups_of_one_teach_nothing():
    assert advantages([0.7, 3.0], 1) == [0, 0]


def combined(value_FB, applies_FB, weight_F, **settings):
    return combine_rewards(
        torch.tensor(value_FB), torch.tensor(applies_FB), torch.tensor(weight_F), **settings
    ).tolist()


def test_not_my_row_is_skipped_and_no_verdict_spoils_the_total():
    value_FB = [[1.0, 2.0, NAN, 3.0, NAN], [10.0, NAN, 5.0, 20.0, NAN]]
    applies_FB = [[True, True, True, False, False], [True, False, True, True, False]]
    # 1 + 20; only the first, 2; no verdict; only the second, 40; nobody's row
    assert combined(value_FB, applies_FB, [1.0, 2.0]) == pytest.approx([21, 2, NAN, 40, NAN], nan_ok=True)


def test_a_function_of_weight_zero_is_only_looked_at():
    assert combined([[1.0, 0.0], [NAN, 7.0]], [[True, True]] * 2, [1.0, 0.0]) == [1.0, 0.0]
    assert combined([[1.0, 0.0], [2.0, 7.0]], [[True, True]] * 2, [1.0, -1.0]) == [-1.0, -7.0]


def test_the_sum_is_made_in_double_precision():
    assert combined([[1e8], [1.0], [-1e8]], [[True]] * 3, [1.0] * 3) == [1.0]


def test_normalize_then_sum_makes_ranges_equal():
    # Each function alone gives -+0.7070068 (0.5 / (0.7071068 + 1e-4) and 500 / (707.1068 + 1e-4) = 0.7071067)
    value_FB = [[0.0, 1.0, 1.0, 0.0], [0.0, 1000.0, 0.0, 1000.0]]
    summed = combined(value_FB, [[True] * 4] * 2, [1.0, 2.0], aggregation="normalize_then_sum", num_generations=2)
    assert summed == pytest.approx([-0.7070068 - 1.4142134, 2.1212202, 0.7070068 - 1.4142134, 0.7072066], rel=1e-6)
    # not the first function's row: out of its mean; no verdict of the second: no total
    value_FB = [[9.0, 1.0, 3.0], [1.0, 2.0, NAN]]
    applies_FB = [[False, True, True], [True, True, True]]
    summed = combined(value_FB, applies_FB, [1.0, 1.0], aggregation="normalize_then_sum", num_generations=3)
    spread = 1 / (math.sqrt(2) + 1e-4)
    assert summed == pytest.approx([-0.5 / 0.7072068, 0.5 / 0.7072068 - spread, NAN], abs=1e-7, nan_ok=True)


def test_combine_refuses():
    with pytest.raises(ValueError, match="num_generations"):
        combined([[1.0, 2.0]], [[True, True]], [1.0], aggregation="normalize_then_sum")
    with pytest.raises(ValueError, match="aggregation"):
        combined([[1.0, 2.0]], [[True, True]], [1.0], aggregation="mean")
    assert combine_rewards(torch.tensor([[1]]), torch.tensor([[True]]), torch.tensor([2])).dtype == torch.float32

"""Collation, masks, and the cut into micro-batches."""

import random

import pytest
import torch

from prewrite.algorithm.batching import (
    Batch,
    collate,
    deal,
    micro_batches,
    pack_by_tokens,
    pack_evenly,
)
from prewrite.types import Sample


def sample(prompt, completion, finish_reason="stop"):
    logprobs = tuple(-0.1 * (position + 1) for position in range(len(completion)))
    return Sample(tuple(prompt), tuple(completion), logprobs, "", finish_reason)


SAMPLES = [sample([1, 2], [5, 6, 9]), sample([3], [7, 9]), sample([4, 4, 4], [8, 8], "length")]


def test_hand_worked():
    batch = collate(SAMPLES, [0.5, -0.5, 1.0], pad_token_id=9)
    # 1 2 | 5 6 9: inputs 1 2 5 6, targets 2 5 6 9; position 1 predicts the first token of the completion
    assert batch.input_ids_BT.tolist() == [[1, 2, 5, 6], [3, 7, 9, 9], [4, 4, 4, 8]]
    assert batch.target_BT.tolist() == [[2, 5, 6, 9], [7, 9, 9, 9], [4, 4, 8, 8]]
    assert batch.mask_BT.tolist() == [[False, True, True, True], [True, True, False, False], [False, False, True, True]]
    assert batch.advantage_B.tolist() == [0.5, -0.5, 1.0]
    assert batch.length_B.tolist() == [4, 2, 4]
    assert batch.num_positions == 10
    expected = torch.tensor([[0, -0.1, -0.2, -0.3], [-0.1, -0.2, 0, 0], [0, 0, -0.1, -0.2]])
    torch.testing.assert_close(batch.sampler_logprob_BT, expected)
    assert (batch.input_ids_BT.dtype, batch.target_BT.dtype, batch.mask_BT.dtype) == (
        torch.int64,
        torch.int64,
        torch.bool,
    )
    assert (batch.advantage_B.dtype, batch.sampler_logprob_BT.dtype) == (torch.float32, torch.float32)
    assert (batch.num_tokens, batch.num_sequences) == (7, 3)
    assert (batch.old_logprob_BT, batch.ref_logprob_BT) == (None, None)


def test_truncated_rows_leave_the_mask_only_where_asked():
    batch = collate(SAMPLES, [1.0, 1.0, 1.0], pad_token_id=0, mask_truncated_completions=True)
    assert batch.mask_BT.any(1).tolist() == [True, True, False]
    assert (batch.num_tokens, batch.num_sequences) == (5, 2)
    assert not batch.sampler_logprob_BT[2].any()
    assert batch.input_ids_BT[2].tolist() == [4, 4, 4, 8]


def test_rows_without_verdict_leave_the_mask():
    batch = collate(SAMPLES, [1.0, 0.0, 1.0], pad_token_id=0, has_verdict=[True, False, True])
    assert batch.mask_BT.any(1).tolist() == [True, False, True]
    assert (batch.num_tokens, batch.num_sequences) == (5, 2)


def test_the_eos_that_ends_a_completion_is_active_and_padding_is_not_even_where_both_are_one_token():
    batch = collate([sample([1], [5, 9, 6, 9]), sample([1], [9])], [1.0, 1.0], pad_token_id=9)
    assert batch.mask_BT.tolist() == [[True, True, True, True], [True, False, False, False]]
    torch.testing.assert_close(batch.sampler_logprob_BT[1], torch.tensor([-0.1, 0.0, 0.0, 0.0]))


def test_completions_without_a_token():
    batch = collate([sample([1, 2], []), sample([3], [])], [1.0, 1.0], pad_token_id=0)
    assert batch.num_tokens == 0
    assert batch.length_B.tolist() == [1, 1]
    assert collate([sample([3], [])], [1.0], pad_token_id=7).input_ids_BT.tolist() == [[7]]
    with pytest.raises(AssertionError, match="prompt_ids is empty"):
        collate([sample([], [1, 2])], [1.0], pad_token_id=0)


def test_select_takes_rows_in_order_and_trims_to_the_longest():
    batch = collate(SAMPLES, [0.5, -0.5, 1.0], pad_token_id=0)
    batch = Batch(**(vars(batch) | {"old_logprob_BT": batch.sampler_logprob_BT - 1}))
    part = batch.select([1])
    assert part.input_ids_BT.tolist() == [[3, 7]]
    assert part.mask_BT.tolist() == [[True, True]]
    assert part.advantage_B.tolist() == [-0.5]
    torch.testing.assert_close(part.old_logprob_BT, torch.tensor([[-1.1, -1.2]]))
    assert part.ref_logprob_BT is None
    assert (part.num_tokens, part.num_positions) == (2, 2)
    assert batch.select([1, 0]).input_ids_BT.tolist() == [[3, 7, 0, 0], [1, 2, 5, 6]]
    assert batch.select([2, 0]).input_ids_BT.tolist() == [[4, 4, 4, 8], [1, 2, 5, 6]]


def test_an_empty_micro_batch_counts_for_nothing():
    full = collate(SAMPLES, [0.5, -0.5, 1.0], pad_token_id=0)
    full = Batch(**(vars(full) | {"old_logprob_BT": full.sampler_logprob_BT}))
    for batch in (full.select([]), full.select([1]).select([]), full.empty()):
        assert batch.input_ids_BT.shape == batch.mask_BT.shape == batch.old_logprob_BT.shape == (1, 1)
        assert (batch.num_tokens, batch.num_sequences) == (0, 0)
        assert batch.advantage_B.tolist() == [0.0]
        assert batch.length_B.tolist() == [1]
    nobody = collate([], [], pad_token_id=3)
    assert nobody.input_ids_BT.tolist() == [[3]]
    assert nobody.target_BT.tolist() == [[3]]
    assert nobody.num_tokens == 0
    assert nobody.select([]).num_tokens == 0


def test_to_moves_every_tensor():
    batch = collate(SAMPLES, torch.tensor([0.5, -0.5, 1.0]), pad_token_id=0).to("meta")
    assert {value.device.type for value in vars(batch).values() if isinstance(value, torch.Tensor)} == {"meta"}
    assert (batch.num_tokens, batch.num_positions, batch.num_computed) == (7, 10, 10), "counted before the move"


def test_rows_of_one_prompt_have_the_first_of_them_as_lead():
    first, other, second, silent = sample([1, 2, 3], [5, 6]), sample([4], [5]), sample([1, 2, 3], [7]), sample([4], [])
    batch = collate([first, other, second, silent, other], [0.0] * 5, pad_token_id=0)
    assert batch.lead_B.tolist() == [0, 1, 0, 3, 1]
    assert batch.prefix_length_B.tolist() == [2, 0, 2, 0, 0]
    assert (batch.num_positions, batch.num_computed) == (4 + 1 + 3 + 1 + 1, 10 - 2)
    part = batch.select([4, 2, 1, 0])
    assert part.lead_B.tolist() == [0, 1, 0, 1]
    assert (part.num_positions, part.num_computed) == (9, 7)
    assert batch.select([2]).num_computed == 3
    assert batch.empty().num_computed == 1


def test_micro_batches_by_count():
    batch = collate([*SAMPLES, SAMPLES[0], SAMPLES[1]], [0.0] * 5, pad_token_id=0)
    assert micro_batches(batch, size=2) == [[0, 1], [2, 3], [4]]
    assert micro_batches(batch, size=5) == [[0, 1, 2, 3, 4]]


def padding_share(packs, lengths):
    area = sum(len(pack) * max(lengths[row] for row in pack) for pack in packs)
    return 1 - sum(lengths) / area


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("shape", ["uniform", "heavy tail", "two lengths", "all equal"])
def test_packs_hold_every_row_once_within_the_budget_and_with_little_padding(seed, shape):
    rng = random.Random(seed)
    draw = {
        "uniform": lambda: rng.randint(1, 1000),
        "heavy tail": lambda: min(8000, int(100 * rng.paretovariate(1.1))),
        "two lengths": lambda: rng.choice([10, 1000]),
        "all equal": lambda: 100,
    }[shape]
    lengths = [draw() for _ in range(200)]
    packs = pack_by_tokens(lengths, 4096)
    assert sorted(row for pack in packs for row in pack) == list(range(200))
    assert padding_share(packs, lengths) < 0.1
    assert all(len(pack) == 1 or len(pack) * max(lengths[row] for row in pack) <= 4096 for pack in packs)
    longest = [max(lengths[row] for row in pack) for pack in packs]
    assert longest == sorted(longest, reverse=True)
    if shape == "all equal":
        assert [len(pack) for pack in packs] == [40] * 5


def test_packs_hand_worked():
    # budget 20: 10 + 10 fills one; 9 alone (a third row of 5 would pad 4 of 18); 5 + 5 + 5 fit, 3 does not
    assert pack_by_tokens([5, 10, 9, 5, 10, 3, 5], 20) == [[1, 4], [2], [0, 3, 6], [5]]
    # a tenth of padding is too much, just below is not; longer than the budget: alone
    assert pack_by_tokens([10, 8], 100) == [[0], [1]]
    assert pack_by_tokens([100, 81], 1000) == [[0, 1]]
    assert pack_by_tokens([100, 80], 1000) == [[0], [1]]
    assert pack_by_tokens([30, 30], 20) == [[0], [1]]
    assert pack_by_tokens([10, 10], 19) == [[0], [1]]
    assert pack_by_tokens([], 20) == []


def alone(lengths):
    """Rows that share nothing: lengths, prefixes, leads."""
    return lengths, [0] * len(lengths), list(range(len(lengths)))


def computed(pack, lengths, prefix_lengths, leads):
    prefixes = {leads[row]: prefix_lengths[row] for row in pack}
    return sum(lengths[row] - prefix_lengths[row] for row in pack) + sum(prefixes.values())


@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_even_packs_are_few_and_equally_full(world_size):
    rng = random.Random(world_size)
    lengths = [rng.randint(50, 700) for _ in range(200)]
    packs = pack_evenly(*alone(lengths), 4096, world_size)
    assert sorted(row for pack in packs for row in pack) == list(range(200))
    filled = [sum(lengths[row] for row in pack) for pack in packs]
    assert max(filled) <= 4096
    assert max(filled) - min(filled) < 100, "about the shortest rows"
    assert len(packs) % world_size == 0
    assert len(packs) <= -(-sum(lengths) // 4096) + world_size, "at most a round more than the tokens need"


def test_even_packs_hand_worked():
    # 24 positions in micro-batches of at most 13: two; 9, then 7, 5 and 3 each to the emptier one: 9 + 3 and 7 + 5
    assert pack_evenly(*alone([3, 9, 5, 7]), 13, 1) == [[1, 0], [3, 2]]
    # 8 + 8 + 8 do not fit twice into 12, though 24 positions would
    assert pack_evenly(*alone([8, 8, 8]), 12, 1) == [[0], [1], [2]]
    # 32 positions, one row of 30: the limit is 30, so two
    assert pack_evenly(*alone([30, 2]), 10, 1) == [[0], [1]]
    assert pack_evenly(*alone([5]), 10, 4) == [[0]]
    assert pack_evenly(*alone([]), 10, 2) == []


@pytest.mark.parametrize("world_size", [1, 2, 8])
@pytest.mark.parametrize(
    ("groups", "size", "max_tokens", "extra"),
    [(64, 16, 32_768, 0.03), (1, 64, 32_768, 0.3), (5, 16, 32_768, 0.3), (64, 16, 1_500, 0.1), (32, 8, 4_096, 0.06)],
    ids=["many", "one prompt", "few", "groups as large as a micro-batch", "groups of 8"],
)
def test_even_packs_keep_rows_of_one_prompt_together(world_size, groups, size, max_tokens, extra):
    """extra: what prefixes computed twice and the wait for the fullest add to the positions of each rank."""
    rng = random.Random(0)
    prefix_lengths = [length for _ in range(groups) for length in [rng.randint(100, 200)] * size]
    leads = [group * size for group in range(groups) for _ in range(size)]
    lengths = [prefix + rng.randint(30, 90) for prefix in prefix_lengths]
    rows = lengths, prefix_lengths, leads
    packs = pack_evenly(*rows, max_tokens, world_size)
    assert sorted(row for pack in packs for row in pack) == list(range(groups * size))
    filled = [computed(pack, *rows) for pack in packs]
    total = computed(range(groups * size), *rows)
    assert max(filled) <= max_tokens
    assert len(packs) % world_size == 0
    waited = sum(max(filled[start : start + world_size]) for start in range(0, len(packs), world_size))
    assert waited <= (1 + extra) * total / world_size
    assert len(packs) <= 1.5 * total / max_tokens + world_size


def test_even_packs_of_shared_prompts_hand_worked():
    # two groups of 10 + 3 x 4 = 22 positions, and a row alone of 6: 50 in two of at most 30: one group each, 28 and 22
    rows = [14] * 6 + [6], [10] * 6 + [5], [0, 0, 0, 3, 3, 3, 6]
    assert pack_evenly(*rows, 30, 1) == [[0, 1, 2, 6], [3, 4, 5]]
    # one group of 10 + 4 x 4 = 26 for two ranks: 18 and 18
    assert pack_evenly([14] * 4, [10] * 4, [0] * 4, 30, 2) == [[0, 2], [1, 3]]


@pytest.mark.parametrize(("count", "world_size"), [(1, 1), (5, 2), (4, 2), (1, 4), (7, 3)])
def test_ranks_get_equal_counts_and_every_micro_batch_once(count, world_size):
    shares = deal([[row] for row in range(count)], world_size)
    assert len(shares) == world_size
    assert {len(share) for share in shares} == {-(-count // world_size)}
    assert sorted(row for share in shares for pack in share for row in pack) == list(range(count))


def test_ranks_work_on_neighbours_at_the_same_time():
    assert deal([[0], [1], [2], [3], [4]], 2) == [[[0], [2], [4]], [[1], [3], []]]

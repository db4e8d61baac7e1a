"""Rollouts as tensors, and the cut of a step into micro-batches.

Legend: B rollouts, T target positions (the longest prompt + completion, less 1).
Rows are padded on the right: under causal attention nothing before the padding sees it, so that no attention mask is
needed and positions are 0, 1, 2, ... in every row. Targets are shifted here, once.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
import torch
from torch import Tensor

from prewrite.types import Sample, TokenRow

MAX_PADDING_SHARE = 0.1


@dataclass(frozen=True)
class Batch:
    """Rollouts of a step or of a micro-batch; position t holds what predicts token t + 1.

    input_ids_BT, target_BT: int64, the sequence without its last and without its first token.
    mask_BT: bool, the target is a completion token, up to and including the first EOS.
    advantage_B: float32. length_B: int64, positions of a row that are no padding.
    sampler_logprob_BT: float32; old_logprob_BT, ref_logprob_BT: None until computed. All 0 outside the mask.
    lead_B: int64, the first row that has the same prompt, often the row itself. prefix_length_B: int64, positions
    before the one that predicts the first completion token: rows of one lead have them in common.
    num_tokens: active tokens. Summed over micro-batches and ranks: `policy_loss`'s normaliser of the same name.
    num_positions: positions that are no padding; num_computed: what is left of them where those that rows have in
    common count once. All three are counted on the CPU, since to ask a GPU is to wait for it.
    """

    input_ids_BT: Tensor
    target_BT: Tensor
    mask_BT: Tensor
    advantage_B: Tensor
    length_B: Tensor
    sampler_logprob_BT: Tensor
    lead_B: Tensor
    prefix_length_B: Tensor
    num_tokens: int = 0
    num_positions: int = 0
    num_computed: int = 0
    old_logprob_BT: Tensor | None = None
    ref_logprob_BT: Tensor | None = None

    @property
    def num_sequences(self) -> int:
        """Rows with an active token. Summed over micro-batches and ranks: `policy_loss`'s normaliser."""
        return int(self.mask_BT.any(1).sum())

    def to(self, device: torch.device | str) -> "Batch":
        """The same batch on another device."""
        return self._map(lambda tensor: tensor.to(device))

    def select(self, indices: Sequence[int]) -> "Batch":
        """The given rows, trimmed to the longest of them. No rows: one position whose mask is off (`empty`)."""
        if not indices:
            return self.empty()
        rows = torch.as_tensor(indices, device=self.length_B.device)
        longest = int(self.length_B[rows].max())
        part = self._map(lambda tensor: (tensor if tensor.dim() == 1 else tensor[:, :longest]).index_select(0, rows))
        return part._counted()

    def empty(self) -> "Batch":
        """One row of one position that counts for nothing: what a rank forwards when it has run out of work."""
        first = self._map(lambda tensor: tensor[:1] if tensor.dim() == 1 else tensor[:1, :1])
        zeroed = ("mask_BT", "advantage_B", "prefix_length_B")
        nothing = {name: torch.zeros_like(getattr(first, name)) for name in zeroed}
        return replace(first, length_B=torch.ones_like(first.length_B), **nothing)._counted()

    def _map(self, change: Callable[[Tensor], Tensor]) -> "Batch":
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return replace(self, **{name: change(value) for name, value in values.items() if isinstance(value, Tensor)})

    def _counted(self) -> "Batch":
        """Leads and counts of the rows that are here now."""
        _, first, prompt_B = np.unique(self.lead_B.numpy(force=True), return_index=True, return_inverse=True)
        lead_B = torch.from_numpy(first[prompt_B]).to(self.lead_B.device)
        is_led_B = lead_B != torch.arange(len(lead_B), device=lead_B.device)
        num_positions, num_shared = int(self.length_B.sum()), int((self.prefix_length_B * is_led_B).sum())
        counts = {"num_positions": num_positions, "num_computed": num_positions - num_shared}
        return replace(self, lead_B=lead_B, num_tokens=int(self.mask_BT.sum()), **counts)


def collate(
    samples: Sequence[Sample],
    advantages: Sequence[float] | Tensor,
    *,
    pad_token_id: int,
    has_verdict: Sequence[bool] | None = None,
    mask_truncated_completions: bool = False,
) -> Batch:
    """Samples and their advantages as one `Batch`.

    pad_token_id: fills the input; masks never look at it, since it may equal EOS.
    has_verdict: False = no verdict: the row leaves the mask, and with it num_tokens and num_sequences.
    mask_truncated_completions: rows with finish_reason "length" leave the mask too (DAPO, overlong filtering).
    """
    rows = max(len(samples), 1)
    longest = max([1, *(len(sample.prompt_ids) + len(sample.completion_ids) - 1 for sample in samples)])
    # numpy reads tuples in a fraction of the time that torch needs, and the GPU waits for this.
    input_ids_BT, target_BT = np.full((2, rows, longest), pad_token_id, dtype=np.int64)
    mask_BT = np.zeros((rows, longest), dtype=np.bool_)
    sampler_logprob_BT = np.zeros((rows, longest), dtype=np.float32)
    length_B = np.ones(rows, dtype=np.int64)
    lead_B = np.arange(rows)
    prefix_length_B = np.zeros(rows, dtype=np.int64)
    leads: dict[tuple[int, ...], int] = {}
    advantage_B = torch.zeros(rows)
    advantage_B[: len(samples)] = torch.as_tensor(advantages, dtype=torch.float32)
    for row, sample in enumerate(samples):
        assert sample.prompt_ids, "a completion's first token is predicted from a prompt: prompt_ids is empty"
        ids = np.array(sample.prompt_ids + sample.completion_ids)
        start, length = len(sample.prompt_ids) - 1, len(ids) - 1
        input_ids_BT[row, :length], target_BT[row, :length] = ids[:-1], ids[1:]
        length_B[row] = max(length, 1)
        if sample.completion_ids:
            lead_B[row] = leads.setdefault(sample.prompt_ids, row)
            prefix_length_B[row] = start
        is_truncated = sample.finish_reason == "length"
        if (has_verdict is not None and not has_verdict[row]) or (mask_truncated_completions and is_truncated):
            continue
        mask_BT[row, start:length] = True
        sampler_logprob_BT[row, start:length] = sample.sampler_logprobs
    tensor = torch.from_numpy
    tokens = tensor(input_ids_BT), tensor(target_BT), tensor(mask_BT)
    rest = tensor(length_B), tensor(sampler_logprob_BT), tensor(lead_B), tensor(prefix_length_B)
    return Batch(*tokens, advantage_B, *rest)._counted()


def collate_rows(rows: Sequence[TokenRow], *, pad_token_id: int) -> Batch:
    """Rows to imitate as one `Batch`: every advantage is 1, no sampler has seen them. The first token has no target."""
    longest = max(len(row.token_ids) for row in rows) - 1
    input_ids_BT, target_BT = np.full((2, len(rows), longest), pad_token_id, dtype=np.int64)
    mask_BT = np.zeros((len(rows), longest), dtype=np.bool_)
    lengths = [len(row.token_ids) - 1 for row in rows]
    for number, (row, length) in enumerate(zip(rows, lengths, strict=True)):
        ids = np.array(row.token_ids)
        input_ids_BT[number, :length], target_BT[number, :length] = ids[:-1], ids[1:]
        mask_BT[number, :length] = np.frombuffer(row.is_trained, dtype=np.bool_)[1:]
    tokens = torch.from_numpy(input_ids_BT), torch.from_numpy(target_BT), torch.from_numpy(mask_BT)
    length_B, lead_B = torch.tensor(lengths), torch.arange(len(rows))
    own = torch.ones(len(rows)), length_B, torch.zeros(mask_BT.shape), lead_B, torch.zeros_like(length_B)
    return Batch(*tokens, *own)._counted()


def micro_batches(batch: Batch, *, size: int) -> list[list[int]]:
    """Micro-batches of `size` rows each, the last one of what is left: lists of row indices for `Batch.select`."""
    rows = list(range(len(batch.length_B)))
    return [rows[start : start + size] for start in range(0, len(rows), size)]


def pack_by_tokens(lengths: Sequence[int], max_tokens: int) -> list[list[int]]:
    """Micro-batches of at most max_tokens positions, padding included: lists of row indices, longest rows first.

    Rows are sorted by length, and a micro-batch closes before its padding passes a tenth of it, so that padding stays
    under 10% whatever the lengths are. A row longer than max_tokens stands alone.
    """
    packs: list[list[int]] = []
    used = 0
    for row in sorted(range(len(lengths)), key=lambda row: (-lengths[row], row)):
        if packs:
            area = lengths[packs[-1][0]] * (len(packs[-1]) + 1)
            if area <= max_tokens and used + lengths[row] > (1 - MAX_PADDING_SHARE) * area:
                packs[-1].append(row)
                used += lengths[row]
                continue
        packs.append([row])
        used = lengths[row]
    return packs


def pack_evenly(
    lengths: Sequence[int], prefix_lengths: Sequence[int], leads: Sequence[int], max_tokens: int, world_size: int
) -> list[list[int]]:
    """Micro-batches that compute at most max_tokens positions, about as few as that allows, about equally full.

    For rows that are trained without padding. Rows of one lead have their first prefix_lengths positions in common,
    which a micro-batch computes once. They are kept together, unless ranks would wait for each other for longer than
    it takes to compute those twice. The number of micro-batches is a multiple of world_size, unless there are fewer
    rows. A row longer than max_tokens raises the limit for all.
    """
    if not lengths:
        return []
    groups: dict[int, _Group] = {}
    for row in sorted(range(len(lengths)), key=lambda row: (-lengths[row], row)):
        group = groups.setdefault(leads[row], _Group(prefix_lengths[row], []))
        group.rows.append((row, lengths[row] - prefix_lengths[row]))
    total = sum(group.size for group in groups.values())
    limit = max(max_tokens, max(lengths))
    count = -(-total // limit)
    while True:
        count = min(-(-count // world_size) * world_size, len(lengths))
        ways = []
        for room in (limit, total / count):
            packs, filled = _fill(list(groups.values()), count, room)
            if max(filled) <= limit:
                rounds = [filled[start : start + world_size] for start in range(0, count, world_size)]
                ways.append((sum(map(max, rounds)), packs))
        if ways:
            return min(ways, key=lambda way: way[0])[1]
        count += 1


@dataclass(frozen=True)
class _Group:
    """Rows of one prompt, each with the positions that it does not share, most of them first."""

    prefix_length: int
    rows: list[tuple[int, int]]

    @property
    def size(self) -> int:
        return self.prefix_length + sum(own for _, own in self.rows)


def _fill(groups: Sequence[_Group], count: int, room: float) -> tuple[list[list[int]], list[int]]:
    """`count` micro-batches, and the positions that each computes.

    The largest group left goes where it makes the least full one; what of it would pass `room` there goes on to the
    next, and what would pass it everywhere is dealt out row by row.
    """
    packs: list[list[int]] = [[] for _ in range(count)]
    filled = [0] * count
    for group in sorted(groups, key=lambda group: -group.size):
        with_prefix = [size + group.prefix_length for size in filled]
        left = group.rows
        while left:
            size = min(with_prefix)
            emptiest = with_prefix.index(size)
            space = room - size if size + left[-1][1] <= room else left[0][1]  # where not even the shortest fits
            over = []
            for row, own in left:
                if own <= space:
                    packs[emptiest].append(row)
                    size, space = size + own, space - own
                else:
                    over.append((row, own))
            filled[emptiest] = with_prefix[emptiest] = size
            left = over
    return packs, filled


def deal(micro_batches: Sequence[list[int]], world_size: int) -> list[list[list[int]]]:
    """Each rank's micro-batches, dealt out in turn, an equal number to each: `[]` (an empty one) fills up.

    Under ZeRO-3 a forward is a collective, so that ranks with unequal counts would wait for each other for ever. Packs
    come longest first, so that ranks work on rows of like length at the same time.
    """
    rounds = -(-len(micro_batches) // world_size)
    padded = [*micro_batches, *[[]] * (rounds * world_size - len(micro_batches))]
    return [padded[rank::world_size] for rank in range(world_size)]

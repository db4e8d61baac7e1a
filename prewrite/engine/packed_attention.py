"""Attention over packed rows: the sequences of a micro-batch stand one after the other in one row, without padding.

Sequences of one prompt share its positions: the first of them holds them, the others begin where they part from it and
read the keys and values that the first has computed. (To attend to the two parts apart and merge them by their log-sum-
exp gives the same output and wrong gradients: torch 2.11's varlen_attn passes none on to the log-sum-exp.)

Legend: B sequences, T target positions of the longest, N computed positions of all together, K positions that they
read, which are as many where nothing is shared, A heads, D size of a head.
"""

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention.varlen import varlen_attn
from transformers import AttentionInterface

from prewrite.algorithm.batching import Batch
from prewrite.errors import UserError

PACKED = "packed"  # the name of this attention in `policy.attn_implementation`
# torch 2.11 lets keys and values have fewer heads without being asked.
_GROUPED: dict[str, Any] = {"enable_gqa": True} if "enable_gqa" in inspect.signature(varlen_attn).parameters else {}
_fused_attention: Callable[..., Any] = functools.partial(varlen_attn, window_size=(-1, 0), **_GROUPED)


@dataclass(frozen=True)
class Packing:
    """The rows of a batch, padded on the right, as one row that computes each position once.

    ids_1N: int64, the token ids. slot_BT: int64, where a position stands in the row; in the padding it means nothing.
    keywords: what a decoder of transformers takes beside the token ids.
    """

    ids_1N: Tensor
    slot_BT: Tensor
    keywords: dict[str, Any]

    @classmethod
    def of(cls, batch: Batch) -> "Packing":
        """Asks the device nothing: it would wait for the answer."""
        (rows, longest), length_B, device = batch.input_ids_BT.shape, batch.length_B, batch.length_B.device
        position_T = torch.arange(longest, device=device)
        is_lead_B = batch.lead_B == torch.arange(rows, device=device)
        shared_B = batch.prefix_length_B.masked_fill(is_lead_B, 0)
        is_real_BT, is_shared_BT = position_T < length_B[:, None], position_T < shared_B[:, None]
        position_N = torch.nonzero_static((is_real_BT & ~is_shared_BT).flatten(), size=batch.num_computed).squeeze(1)
        end_B = (length_B - shared_B).cumsum(0)
        start_B = end_B - length_B  # where the first position stood, if it were not shared
        slot_BT = torch.where(is_shared_BT, start_B[batch.lead_B][:, None], start_B[:, None]) + position_T
        keywords = {
            "position_ids": (position_N % longest)[None],
            "cu_seq_lens_q": F.pad(end_B, (1, 0)).int(),
            "max_length_q": longest,
        }
        if batch.num_computed < batch.num_positions:
            position_K = torch.nonzero_static(is_real_BT.flatten(), size=batch.num_positions).squeeze(1)
            keywords["slot_K"] = slot_BT.flatten()[position_K]
            keywords["cu_seq_lens_k"] = F.pad(length_B.cumsum(0), (1, 0)).int()
        return cls(batch.input_ids_BT.flatten()[position_N][None], slot_BT, keywords)


def packed_attention(
    module: nn.Module,
    query_1AND: Tensor,
    key_1AND: Tensor,
    value_1AND: Tensor,
    attention_mask: None,
    *,
    cu_seq_lens_q: Tensor,
    max_length_q: int,
    slot_K: Tensor | None = None,
    cu_seq_lens_k: Tensor | None = None,
    scaling: float | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """Causal attention within each sequence of a packed row; transformers calls it with its own keywords.

    slot_K: the keys and values that the sequences read, by their place in the row; None = each its own. Only for
    architectures that ask for no more than that (`refuse_packing`); keys and values may have fewer heads than queries.
    Returns [1, N, A, D]. On a GPU one kernel does all sequences (FlashAttention, Dao 2023, arXiv 2307.08691), in half
    precision alone; elsewhere one after the other.
    """
    query_NAD, key_KAD, value_KAD = (tensor[0].transpose(0, 1) for tensor in (query_1AND, key_1AND, value_1AND))
    if slot_K is not None:
        key_KAD, value_KAD = _gather(key_KAD, slot_K), _gather(value_KAD, slot_K)
    starts = cu_seq_lens_q, cu_seq_lens_q if cu_seq_lens_k is None else cu_seq_lens_k
    if query_NAD.is_cuda and query_NAD.dtype != torch.float32:
        longest = max_length_q, max_length_q
        out_NAD = _fused_attention(query_NAD, key_KAD, value_KAD, *starts, *longest, scale=scaling)
    else:
        out_NAD = _one_by_one(query_NAD, key_KAD, value_KAD, *starts, scaling)
    return out_NAD[None], None


def _gather(tensor_NAD: Tensor, slot_K: Tensor) -> Tensor:
    """[K, A, D]. In float32, since many readers' gradients of one position are summed up."""
    wide = torch.promote_types(tensor_NAD.dtype, torch.float32)
    return tensor_NAD.to(wide).index_select(0, slot_K).to(tensor_NAD.dtype)


def _attend_one_by_one(
    query_NAD: Tensor, key_KAD: Tensor, value_KAD: Tensor, start_q: Tensor, start_k: Tensor, scaling: float | None
) -> Tensor:
    """[N, A, D]."""
    sizes = [start.diff().tolist() for start in (start_q, start_k, start_k)]
    tensors = zip((query_NAD, key_KAD, value_KAD), sizes, strict=True)
    sequences = zip(*(tensor.transpose(0, 1).split(size, dim=1) for tensor, size in tensors), strict=True)
    attended = [_plain_attention(query, key, value, scaling) for query, key, value in sequences]
    return torch.cat(attended, dim=1).transpose(0, 1)


# Compiled, it would be compiled anew for each number of sequences.
_one_by_one: Any = torch.compiler.disable(_attend_one_by_one)


def _plain_attention(query_ATD: Tensor, key_ASD: Tensor, value_ASD: Tensor, scaling: float | None) -> Tensor:
    """[A, T, D], of queries at the last T of S positions. On a CPU it trains faster than torch's fused attention."""
    shared_by = query_ATD.shape[0] // key_ASD.shape[0]
    key_ASD, value_ASD = (tensor.repeat_interleave(shared_by, dim=0) for tensor in (key_ASD, value_ASD))
    queries, size = query_ATD.shape[1:]
    earlier = key_ASD.shape[1] - queries
    score_ATS = query_ATD @ key_ASD.transpose(1, 2) * (size**-0.5 if scaling is None else scaling)
    is_later_TS = torch.ones_like(score_ATS[0], dtype=torch.bool).triu(earlier + 1)
    weight_ATS = score_ATS.masked_fill(is_later_TS, -torch.inf).softmax(-1, dtype=torch.float32)
    return weight_ATS.to(value_ASD.dtype) @ value_ASD


def refuse_packing(lm: Any) -> None:
    """UserError where packed attention would leave something out that the architecture's own attention does."""
    config = lm.config.get_text_config()
    layer_types = set(getattr(config, "layer_types", None) or []) - {"full_attention"}
    own = {
        "a sliding window": getattr(config, "sliding_window", None),
        "capped scores": getattr(config, "attn_logit_softcapping", None),
        "dropout": getattr(config, "attention_dropout", None) or getattr(config, "attn_pdrop", None),
        "latent keys and values": getattr(config, "kv_lora_rank", None),
        "an interface of its own": not lm._supports_attention_backend,
        **dict.fromkeys(layer_types, True),
    }
    has = sorted(name for name, is_there in own.items() if is_there)
    if has:
        rule = f"is plain causal attention, and that of {type(lm).__name__} has {', '.join(has)}"
        raise UserError(f"policy.attn_implementation={PACKED!r} {rule}: set it to 'sdpa' or 'eager'")


AttentionInterface.register(PACKED, packed_attention)

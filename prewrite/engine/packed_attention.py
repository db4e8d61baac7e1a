"""Attention over packed rows: the sequences of a micro-batch stand one after the other in one row, without padding.

Legend: B sequences, T target positions of the longest, N positions of all together, A heads, D size of a head.
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

from prewrite.errors import UserError

PACKED = "packed"  # the name of this attention in `policy.attn_implementation`
# torch 2.11 lets keys and values have fewer heads without being asked.
_GROUPED: dict[str, Any] = {"enable_gqa": True} if "enable_gqa" in inspect.signature(varlen_attn).parameters else {}
_fused_attention: Callable[..., Any] = functools.partial(varlen_attn, window_size=(-1, 0), **_GROUPED)


@dataclass(frozen=True)
class Packing:
    """Where the positions of rows that are padded on the right stand in one row without padding.

    position_N: int64, in the flattened rows. keywords: what a decoder of transformers takes beside the token ids.
    """

    position_N: Tensor
    shape: tuple[int, int]
    keywords: dict[str, Any]

    @classmethod
    def of(cls, length_B: Tensor, longest: int, num_positions: int) -> "Packing":
        """For rows of `longest` positions, of which the first length_B are real, num_positions in all."""
        position_T = torch.arange(longest, device=length_B.device)
        is_real_BT = position_T < length_B[:, None]
        position_N = torch.nonzero_static(is_real_BT.flatten(), size=num_positions).squeeze(1)
        keywords = {
            "position_ids": (position_N % longest)[None],
            "cu_seq_lens_q": F.pad(length_B.cumsum(0), (1, 0)).int(),
            "max_length_q": longest,
        }
        return cls(position_N, (len(length_B), longest), keywords)

    def pack(self, value_BT: Tensor) -> Tensor:
        """[1, N]: the real positions, row after row."""
        return value_BT.flatten()[self.position_N][None]

    def unpack(self, value_1N: Tensor) -> Tensor:
        """[B, T]: back where they were, 0 in the padding."""
        rows, longest = self.shape
        return value_1N.new_zeros(rows * longest).index_put((self.position_N,), value_1N[0]).view(self.shape)


def packed_attention(
    module: nn.Module,
    query_1AND: Tensor,
    key_1AND: Tensor,
    value_1AND: Tensor,
    attention_mask: None,
    *,
    cu_seq_lens_q: Tensor,
    max_length_q: int,
    scaling: float | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """Causal attention within each sequence of a packed row; transformers calls it with its own keywords.

    Only for architectures that ask for no more than that (`refuse_packing`); keys and values may have fewer heads than
    queries. Returns [1, N, A, D]. On a GPU one kernel does all sequences
    (FlashAttention, Dao 2023, arXiv 2307.08691), in half precision alone; elsewhere one after the other.
    """
    query_NAD, key_NAD, value_NAD = (tensor[0].transpose(0, 1) for tensor in (query_1AND, key_1AND, value_1AND))
    if query_NAD.is_cuda and query_NAD.dtype != torch.float32:
        lengths = (cu_seq_lens_q, cu_seq_lens_q, max_length_q, max_length_q)
        out_NAD = _fused_attention(query_NAD, key_NAD, value_NAD, *lengths, scale=scaling)
        return out_NAD[None], None
    return _one_by_one(query_1AND, key_1AND, value_1AND, cu_seq_lens_q, scaling), None


def _attend_one_by_one(
    query_1AND: Tensor, key_1AND: Tensor, value_1AND: Tensor, cu_seq_lens_q: Tensor, scaling: float | None
) -> Tensor:
    """[1, N, A, D]."""
    sizes = cu_seq_lens_q.diff().tolist()
    sequences = zip(*(tensor.split(sizes, dim=2) for tensor in (query_1AND, key_1AND, value_1AND)), strict=True)
    attended = [_plain_attention(query, key, value, scaling) for query, key, value in sequences]
    return torch.cat(attended, dim=2).transpose(1, 2)


# Compiled, it would be compiled anew for each number of sequences.
_one_by_one: Any = torch.compiler.disable(_attend_one_by_one)


def _plain_attention(query_1ATD: Tensor, key_1ATD: Tensor, value_1ATD: Tensor, scaling: float | None) -> Tensor:
    """[1, A, T, D]. On a CPU the formula itself trains faster than torch's fused attention."""
    shared_by = query_1ATD.shape[1] // key_1ATD.shape[1]
    key_1ATD, value_1ATD = (tensor.repeat_interleave(shared_by, dim=1) for tensor in (key_1ATD, value_1ATD))
    length, size = query_1ATD.shape[2:]
    score_1ATT = query_1ATD @ key_1ATD.transpose(2, 3) * (size**-0.5 if scaling is None else scaling)
    is_later_TT = torch.ones(length, length, dtype=torch.bool, device=score_1ATT.device).triu(1)
    weight_1ATT = score_1ATT.masked_fill(is_later_TT, -torch.inf).softmax(-1, dtype=torch.float32)
    return weight_1ATT.to(value_1ATD.dtype) @ value_1ATD


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
        raise UserError(
            f"policy.attn_implementation={PACKED!r} is plain causal attention, and that of {type(lm).__name__} has "
            f"{', '.join(has)}: set it to 'sdpa' or 'eager'"
        )


AttentionInterface.register(PACKED, packed_attention)

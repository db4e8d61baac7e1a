"""Log-probs and entropies from hidden states, in chunks of tokens.

Legend: B rollouts, T target positions, H hidden size, V vocabulary, N positions that are asked for, flattened.
"""

import functools
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

Head = Callable[[Tensor], Tensor]


def count_chunks(num_positions: int, chunk_tokens: int) -> int:
    """Head calls that `chunked_logprobs` makes for so many positions: at least 1."""
    return max(1, -(-num_positions // chunk_tokens))


def chunked_logprobs(
    hidden_BTH: Tensor,
    head: Head,
    target_BT: Tensor,
    *,
    mask_BT: Tensor | None = None,
    slot_BT: Tensor | None = None,
    num_tokens: int | None = None,
    temperature: float = 1.0,
    chunk_tokens: int = 2048,
    num_chunks: int | None = None,
    scale: float = 1.0,
    divisor: float = 1.0,
    softcap: float | None = None,
    entropy_grad: bool = False,
) -> tuple[Tensor, Tensor]:
    """(logprob_BT, entropy_BT) in float32: log-probs of the targets, and the entropy of the whole distribution.

        logits_V  = softcap * tanh(head(hidden_H) * scale / divisor / softcap)      (tanh only where softcap is given)
        logprob   = log_softmax(logits_V / temperature)[target]
        entropy   = -sum(p_V * log p_V), in nats, of the same distribution

    Everything behind the head is float32 (float64 for float64 logits). B x T x V never exists: each chunk's logits are
    made, used, and made again in the backward pass.

    head: from hidden states [n, H] to logits [n, V]. Under ZeRO-3 the module itself, whose hooks gather its weights.
    mask_BT: positions wanted; elsewhere both results are 0 and the head is not run.
    slot_BT: where the hidden state of each wanted position stands in the flattened ones; None = in its own place.
    num_tokens: how many those are, where known: to ask a GPU is to wait for all that it has still to do.
    chunk_tokens: positions of a chunk at most, unless `num_chunks` says more or fewer chunks.
    num_chunks: head calls. Under ZeRO-3 each one is a collective: all ranks must pass the same number, the largest
        `count_chunks` among them, or they wait for each other for ever. Positions are dealt out evenly; where there are
        fewer positions than chunks, the rest run on a dummy position with no gradient. A rank whose mask is empty thus
        still calls the head, forward and backward, and its results still belong to the graph.
    scale, divisor, softcap: what the architecture does between head and softmax (`logit_scale` of Cohere,
        `logits_scaling` of Granite, `final_logit_softcapping` of Gemma 2).
    entropy_grad: let gradients flow through the entropy (for an entropy bonus), at the price of more memory a chunk.

    The surprise: on a GPU the step from logits to log-probs is compiled, which is what makes recomputing the logits
    cheaper than the plain way that does not; the first call takes up to a minute.
    """
    mask_BT = torch.ones_like(target_BT) if mask_BT is None else mask_BT
    num_tokens = int(mask_BT.sum()) if num_tokens is None else num_tokens
    position_N = torch.nonzero_static(mask_BT.flatten(), size=num_tokens).squeeze(1)
    chunks = count_chunks(len(position_N), chunk_tokens) if num_chunks is None else num_chunks
    dummies = max(0, chunks - len(position_N))
    run_N = torch.cat([position_N, position_N.new_zeros(dummies)])
    hidden_NH = hidden_BTH.flatten(0, 1)[run_N if slot_BT is None else slot_BT.flatten()[run_N]]
    target_N = target_BT.flatten()[run_N]

    def chunk_logprobs(hidden_nH: Tensor, target_n: Tensor) -> tuple[Tensor, Tensor]:
        logits_nV = head(hidden_nH)
        from_logits = _compiled_token_logprobs() if logits_nV.is_cuda else _token_logprobs
        return from_logits(logits_nV, target_n, scale / divisor, softcap, temperature, entropy_grad)

    parts = zip(hidden_NH.tensor_split(chunks), target_N.tensor_split(chunks), strict=True)
    pairs = [checkpoint(chunk_logprobs, hidden_nH, target_n, use_reentrant=False) for hidden_nH, target_n in parts]
    logprob_N, entropy_N = (torch.cat(parts)[: len(position_N)] for parts in zip(*pairs, strict=True))
    return _spread(logprob_N, position_N, target_BT), _spread(entropy_N, position_N, target_BT)


def _token_logprobs(
    logits_nV: Tensor, target_n: Tensor, factor: float, softcap: float | None, temperature: float, entropy_grad: bool
) -> tuple[Tensor, Tensor]:
    logits_nV = logits_nV if logits_nV.dtype == torch.float64 else logits_nV.float()
    if softcap is not None:
        logits_nV = softcap * torch.tanh(logits_nV * (factor / softcap))
        factor = 1.0
    logp_nV = F.log_softmax(logits_nV * (factor / temperature), dim=-1)
    logprob_n = logp_nV.gather(1, target_n[:, None]).squeeze(1)
    if not entropy_grad:
        logp_nV = logp_nV.detach()
    return logprob_n, -(logp_nV.exp() * logp_nV).sum(-1)


@functools.cache
def _compiled_token_logprobs() -> Callable[..., tuple[Tensor, Tensor]]:
    return torch.compile(_token_logprobs, dynamic=True)


def _spread(value_N: Tensor, position_N: Tensor, like_BT: Tensor) -> Tensor:
    zeros = value_N.new_zeros(like_BT.numel())
    return zeros.index_put((position_N,), value_N).view_as(like_BT)

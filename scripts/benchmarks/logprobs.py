"""Peak memory and time of log-probs in chunks against the plain way, forward and backward through the output head.

    python -m scripts.benchmarks.logprobs                                   on a GPU: V 151,936, 16,384 tokens
    python -m scripts.benchmarks.logprobs --tokens 512 --vocabulary 4096    on the CPU (time alone)

The plain way is what a trainer writes first: logits of all tokens, float32, log-softmax, gather, entropy. Memory is
what a pass adds to the weights and hidden states that both ways are given.
"""

import argparse
import statistics
import time

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from prewrite.algorithm.logprobs import chunked_logprobs


def plain_logprobs(hidden_BTH: Tensor, head: nn.Module, target_BT: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    logits_BTV = head(hidden_BTH).float()
    if temperature != 1:
        logits_BTV = logits_BTV / temperature
    logp_BTV = F.log_softmax(logits_BTV, dim=-1)
    with torch.no_grad():
        entropy_BT = -(logp_BTV.exp() * logp_BTV).sum(-1)
    return logp_BTV.gather(2, target_BT[..., None]).squeeze(2), entropy_BT


def measure(run, device: torch.device, repeats: int) -> tuple[float, float]:
    """(seconds, peak GiB) of `run`: the median after one pass to warm up, the memory of the pass alone."""
    on_gpu = device.type == "cuda"
    seconds = []
    peak = 0
    for _ in range(repeats + 1):
        if on_gpu:
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
        start = time.perf_counter()
        run()
        if on_gpu:
            torch.cuda.synchronize()
            peak = max(peak, torch.cuda.max_memory_allocated() - before)
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds[1:]), peak / 2**30


def main() -> None:
    parser = argparse.ArgumentParser(description="Log-probs in chunks against the plain way.")
    parser.add_argument("--tokens", type=int, default=16_384)
    parser.add_argument("--vocabulary", type=int, default=151_936)
    parser.add_argument("--hidden", type=int, default=2048)
    parser.add_argument("--temperature", type=float, default=0.7)
    parser.add_argument("--chunk-tokens", type=int, nargs="*", default=[512, 1024, 2048, 4096])
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    torch.manual_seed(0)
    head = nn.Linear(arguments.hidden, arguments.vocabulary, bias=False, device=device, dtype=dtype)
    hidden_BTH = torch.randn(1, arguments.tokens, arguments.hidden, device=device, dtype=dtype, requires_grad=True)
    target_BT = torch.randint(arguments.vocabulary, (1, arguments.tokens), device=device)
    weight_BT = torch.randn(1, arguments.tokens, device=device)

    def passes(logprobs):
        logprob_BT, entropy_BT = logprobs()
        (weight_BT * logprob_BT).sum().backward()
        grad_BTH, grad_VH = hidden_BTH.grad, head.weight.grad
        hidden_BTH.grad = head.weight.grad = None
        return logprob_BT.detach(), entropy_BT.detach(), grad_BTH, grad_VH

    def plain():
        return passes(lambda: plain_logprobs(hidden_BTH, head, target_BT, arguments.temperature))

    def chunked(chunk_tokens: int):
        return passes(
            lambda: chunked_logprobs(
                hidden_BTH, head, target_BT, temperature=arguments.temperature, chunk_tokens=chunk_tokens
            )
        )

    name = torch.cuda.get_device_name() if device.type == "cuda" else "CPU"
    print(f"{name}, torch {torch.__version__}, {dtype}, {arguments.tokens:,} tokens, H {arguments.hidden}, ", end="")
    print(f"V {arguments.vocabulary:,}, temperature {arguments.temperature}, median of {arguments.repeats}")
    plain_seconds, plain_peak = measure(plain, device, arguments.repeats)
    print(f"plain            {plain_seconds * 1e3:8.1f} ms            {plain_peak:7.2f} GiB")
    for chunk_tokens in arguments.chunk_tokens:
        seconds, peak = measure(lambda tokens=chunk_tokens: chunked(tokens), device, arguments.repeats)
        share = f" (1/{plain_peak / peak:.1f})" if peak else ""
        slowdown = f"({seconds / plain_seconds:.2f}x)"
        print(f"chunks of {chunk_tokens:5}  {seconds * 1e3:8.1f} ms {slowdown}   {peak:7.2f} GiB{share}")
    differences = [
        float((ours.float() - theirs.float()).abs().max() / theirs.float().abs().max())
        for ours, theirs in zip(chunked(arguments.chunk_tokens[0]), plain(), strict=True)
    ]
    print("largest relative difference: log-prob {:.1e}, entropy {:.1e}, grad hidden {:.1e}, grad head {:.1e}".format(
        *differences
    ))  # fmt: skip


if __name__ == "__main__":
    main()

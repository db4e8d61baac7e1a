"""A trial: does n-gram speculation, which needs no draft model, make rollouts at temperature 1 faster, with right log-probs?

    python -m scripts.benchmarks.speculation --model FOLDER

Engines without and with it take turns on two workloads: answers to GSM8K problems (--completion tokens) and rewrites of
its instruction (60). Log-probs are checked against one forward pass of the policy's model over the first completions.
"""

import argparse
import math
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM

from prewrite.config import Config
from prewrite.engine import distributed
from prewrite.engine.policy import load_tokenizer, quiet_libraries
from prewrite.tasks import get_task
from scripts.benchmarks.common import (
    add_model_arguments,
    bench_config,
    chat_request,
    exit_code,
    gsm8k_problems,
    model_folder,
    parse,
    show_heading,
    show_table,
    write_result,
)

REWRITE_TOKENS = 60
CHECKED = 16  # completions whose log-probs are computed again


def engine(config: Config, model: str, drafted: int) -> Any:
    """An engine as the sampler's, drafting `drafted` tokens a step from repeated n-grams (0: none)."""
    os.environ["VLLM_CPU_KVCACHE_SPACE"] = str(math.ceil(config.rollout.kv_cache_gib or 1))  # where there is no GPU
    from vllm import LLM

    speculation = {"method": "ngram", "num_speculative_tokens": drafted, "prompt_lookup_max": 4, "prompt_lookup_min": 2}
    on_gpu = torch.cuda.is_available()
    return LLM(
        model=model,
        dtype=config.policy.dtype,
        seed=config.seed,
        max_model_len=config.rollout.max_prompt_length + config.rollout.max_completion_length,
        gpu_memory_utilization=0.2,
        kv_cache_memory_bytes=int((config.rollout.kv_cache_gib or 1) * 2**30) if on_gpu else None,
        enforce_eager=not on_gpu,
        logprobs_mode="processed_logprobs",
        enable_prefix_caching=True,
        disable_log_stats=True,
        use_tqdm_on_load=False,
        **({"speculative_config": speculation} if drafted else {}),
    )


def sampled(llm: Any, requests: Sequence[Sequence[int]], generations: int, max_tokens: int) -> tuple[float, list[Any]]:
    """(tokens a second, (request, completion, its log-probs) of the first completion of each request)."""
    from vllm import SamplingParams

    llm.reset_prefix_cache()
    sampling = SamplingParams(n=generations, max_tokens=max_tokens, temperature=1.0, logprobs=0, detokenize=False)
    start = time.perf_counter()
    outputs = llm.generate([{"prompt_token_ids": list(r)} for r in requests], sampling, use_tqdm=False)
    seconds = time.perf_counter() - start
    tokens = sum(len(one.token_ids) for output in outputs for one in output.outputs)
    first = [
        (request, list(output.outputs[0].token_ids), [
            at[token].logprob for token, at in zip(output.outputs[0].token_ids, output.outputs[0].logprobs, strict=True)
        ])
        for request, output in zip(requests, outputs, strict=True)
    ]  # fmt: skip
    return tokens / seconds, first


@torch.no_grad()
def gap(lm: Any, samples: Sequence[Any]) -> float:
    """Mean absolute difference of the engine's log-probs from those of a forward pass."""
    device, differences = next(lm.parameters()).device, []
    for request, completion, logprobs in samples[:CHECKED]:
        ids = torch.tensor([[*request, *completion]], device=device)
        logits = lm(ids).logits[0, len(request) - 1 : -1].float()
        own = logits.log_softmax(-1).gather(1, ids[0, len(request) :, None])[:, 0]
        differences.append((own.cpu() - torch.tensor(logprobs)).abs())
    return float(torch.cat(differences).mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_model_arguments(parser)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--drafted", type=int, nargs="+", default=[3, 6], help="tokens drafted a step (default 3 and 6)")
    arguments = parse(parser)
    quiet_libraries()
    show_heading(arguments, 1)
    with tempfile.TemporaryDirectory() as name:
        model = model_folder(arguments, Path(name))
        config = bench_config(arguments, model, Path(name))
        tokenizer = load_tokenizer(config.policy)
        instruction = get_task("gsm8k").default_instruction
        rewriting = chat_request(f"{config.rollout.meta_instruction}\n\n{instruction}", tokenizer)
        workloads = {
            f"answers, {arguments.completion} tokens": (
                [chat_request(problem, tokenizer) for problem in gsm8k_problems(arguments.prompts)],
                arguments.completion,
            ),
            f"rewrites, {REWRITE_TOKENS} tokens": ([rewriting] * arguments.prompts, REWRITE_TOKENS),
        }
        engines = {f"{n} drafted" if n else "none": engine(config, model, n) for n in (0, *arguments.drafted)}
        lm = AutoModelForCausalLM.from_pretrained(model, dtype=config.policy.dtype)
        lm = lm.to("cuda" if torch.cuda.is_available() else "cpu").eval()
        result = {}
        for workload, (requests, max_tokens) in workloads.items():
            rates: dict[str, list[float]] = {way: [] for way in engines}
            gaps = {}
            for repeat in range(arguments.repeats + 1):
                for way, llm in engines.items():
                    rate, samples = sampled(llm, requests, arguments.generations, max_tokens)
                    print(f"{workload}, {way}: {rate:,.0f} tokens/s", file=sys.stderr, flush=True)
                    if repeat:  # the first warms up
                        rates[way].append(rate)
                    else:
                        gaps[way] = gap(lm, samples)
            medians = {way: statistics.median(own) for way, own in rates.items()}
            result[workload] = {
                "tokens/s": medians,
                "this / none": {way: rate / medians["none"] for way, rate in medians.items()},
                "log-prob gap": gaps,
            }
            show_table(workload, result[workload])
        write_result(arguments, 1, **result)
    distributed.stop()


if __name__ == "__main__":
    sys.exit(exit_code(main))

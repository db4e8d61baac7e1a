"""How the policy writes."""

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from prewrite.config.base import Positive, Section, Share

# Asks for a rewrite of whatever instruction follows; a newcomer's small model has to understand it too.
META_INSTRUCTION = (
    "Rewrite the following instruction so that a language model that follows it gives more correct answers. "
    "Reply with the new instruction only."
)

PLACE = "{instruction}"  # in a meta-instruction: where the instruction stands


class RolloutSettings(Section):
    """How the policy's rewrites are sampled."""

    meta_instruction: str = META_INSTRUCTION
    """what the policy is told before the instruction, or around it where {instruction} marks its place; together they
    are the user turn of the request"""
    system_prompt: str | None = None
    """system turn of every request; null = none, or what the chat template puts there"""
    chat_template_kwargs: dict[str, bool | int | float | str] = {}
    """passed to the chat template, as {"enable_thinking": false}"""
    num_generations: Annotated[int, Field(ge=2)] = 8
    """G, the rollouts of a group: completions of one request that are compared with one another"""
    temperature: Annotated[float, Field(gt=0)] = 1.0
    """of sampling, and of every log-probability in the loss"""
    top_p: Share = 1.0
    """nucleus sampling; below 1 only without sampler correction"""
    top_k: Annotated[int, Field(ge=-1)] = -1
    """sample from the k likeliest tokens; -1 or 0 = all"""
    min_p: Annotated[float, Field(ge=0, le=1)] = 0.0
    """least share of the likeliest token's probability"""
    partial_rollouts: Annotated[float, Field(ge=0, le=1)] = 0.0
    """groups under way beyond a batch's, as a share of it: a rollout ends when a batch of groups is complete, and the
    rest goes on in the next one under the new weights (docs/solving.md); 0 = off"""
    max_prompt_length: Positive = 1024
    """tokens of a request; longer ones are refused at the start"""
    max_completion_length: Positive = 256
    """tokens of a completion; longer ones are truncated"""
    gpu_memory_utilization: Share = 0.35
    """share of each GPU for the vLLM engine (weights and KV cache); ignored on the CPU"""
    kv_cache_gib: Annotated[float, Field(gt=0)] | None = None
    """KV cache of the engine in GiB, in place of gpu_memory_utilization; null = what that leaves, or 1 on a CPU"""
    enforce_eager: bool = False
    """start without compiling and CUDA graphs: a quick start, slower rollouts; always so on the CPU"""
    sleep_level: Literal[0, 1, 2] = 0
    """GPU memory the engine frees while training: 0 none, 1 the KV cache (weights wait in CPU memory), 2 both"""
    vllm_tensor_parallel_size: Positive = 1
    """ranks that share one vLLM engine, for policies that do not fit one GPU twice"""

    def faults(self) -> Iterator[str]:
        if not self.meta_instruction.strip():
            yield (
                "`meta_instruction` is empty, and the policy would not be told what to do; write one, leave it out "
                f"for the default one, or give {PLACE} alone to send the instruction as it is"
            )
        if (times := self.meta_instruction.count(PLACE)) > 1:
            yield f"`meta_instruction` has {PLACE} {times} times; the instruction stands there once: keep one of them"

"""The vLLM engine inside the trainer's process: requests in, samples out, weights in. The home of vLLM's offline API.

Token ids go in and come out; texts are decoded once they are whole. On a GPU a rollout waits for what Python does with
each token: detokenizing inside the engine and an object for each log-prob took half of its time.
"""

import functools
import itertools
import math
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor, nn

from prewrite.config import PolicySettings, RolloutSettings, TaskModelSettings
from prewrite.engine.distributed import World
from prewrite.errors import UserError
from prewrite.types import Sample


@dataclass
class _Started:
    """A completion that the engine is writing, with what was written of it before."""

    place: int
    token_ids: list[int]
    logprobs: list[float]


class Sampler:
    """Samples completions from the weights that were last pushed."""

    def __init__(self, policy: PolicySettings, rollout: RolloutSettings, tokenizer: Any, world: World, *, seed: int):
        refuse_sleep_without_gpu(rollout, world)
        on_gpu = world.device.type == "cuda"
        self.on_gpu, self.is_asleep = on_gpu, False
        self.ranks_per_engine = rollout.vllm_tensor_parallel_size
        if not on_gpu:
            os.environ["VLLM_CPU_KVCACHE_SPACE"] = str(math.ceil(rollout.kv_cache_gib or 1))  # read in whole GiB
        from vllm import LLM

        self._numbers = itertools.count()
        self.settings = rollout
        self.tokenizer = tokenizer
        try:
            self.engine: Any = LLM(
                model=policy.model,
                revision=policy.model_revision,
                tokenizer_revision=policy.model_revision,
                trust_remote_code=policy.trust_remote_code,
                dtype=policy.dtype,
                # One seed for all would make the engines write the same text; the ranks of one engine need the same.
                seed=seed + world.rank // self.ranks_per_engine,
                tensor_parallel_size=self.ranks_per_engine,
                enable_sleep_mode=rollout.sleep_level > 0,
                distributed_executor_backend="external_launcher",
                max_model_len=rollout.max_prompt_length + rollout.max_completion_length,
                gpu_memory_utilization=memory_share(rollout),
                kv_cache_memory_bytes=int(rollout.kv_cache_gib * 2**30) if on_gpu and rollout.kv_cache_gib else None,
                enforce_eager=rollout.enforce_eager or not on_gpu,
                logprobs_mode="processed_logprobs",  # those after temperature; the default is before it
                enable_prefix_caching=True,
                disable_log_stats=True,
                use_tqdm_on_load=False,
            )
        except ValueError as error:  # heads that the ranks do not divide, a KV cache too small for one request
            reason = " ".join(str(error).split())
            raise UserError(f"rollout: vLLM cannot start an engine for {policy.model!r}: {reason}") from error
        self.loads_in_place = on_gpu and all(self.engine.apply_model(_computes_with_loaded_weights))

    def close(self) -> None:
        """Ends the engine; it leaves the process groups that it joined, so call it before `distributed.stop`."""
        self.engine.llm_engine.engine_core.shutdown()

    def sample(
        self,
        requests: Sequence[Sequence[int]],
        counts: Sequence[int],
        *,
        greedy: bool = False,
        on_finished: Callable[[int, int, Sample], None] | None = None,
    ) -> list[list[Sample]]:
        """counts[i] completions of requests[i] (token ids, as the policy's chat template makes them).

        on_finished: called with (i, copy, sample) when a completion is done, while others are still being written.
        A collective of the ranks of one engine, where it has several: all with the same requests and counts.
        """
        places = [(index, copy) for index, count in enumerate(counts) for copy in range(count)]

        def finish(place: int, sample: Sample) -> bool:
            if on_finished is not None:
                on_finished(*places[place], sample)
            return False

        begun = [Sample(tuple(requests[index]), (), (), "", "abort") for index, _ in places]
        done = iter(self.go_on(begun, finish, greedy=greedy))
        return [list(itertools.islice(done, count)) for count in counts]

    def go_on(
        self, samples: Sequence[Sample], on_finished: Callable[[int, Sample], bool], *, greedy: bool = False
    ) -> list[Sample]:
        """The samples, the unfinished of them gone on with until they are done, or until it is enough.

        on_finished: called with (place in samples, sample) when one is done; True = it is enough, and those that are
        not done then are given back as far as they are. A collective as `sample` is; all have to end at the same one.
        """
        engine = self.engine.llm_engine
        params = functools.cache(lambda written: self._sampling_params(greedy, written))
        started: dict[str, _Started] = {}
        for place, sample in enumerate(samples):  # a request for each, or a group's would be handed over all at once
            if sample.finish_reason == "abort":
                read = {"prompt_token_ids": [*sample.prompt_ids, *sample.completion_ids]}
                name = engine.add_request(str(next(self._numbers)), read, params(len(sample.completion_ids)))
                started[name] = _Started(place, list(sample.completion_ids), list(sample.sampler_logprobs))
        after, enough = list(samples), False
        while engine.has_unfinished_requests() and not enough:
            if not (finished := _step(engine, started)):
                continue
            texts = self.tokenizer.batch_decode(
                [one.token_ids for one, _ in finished], skip_special_tokens=True, clean_up_tokenization_spaces=False
            )
            for (one, reason), text in zip(finished, texts, strict=True):
                assert reason in ("stop", "length"), f"vLLM ended a completion with {reason!r}"
                sample = after[one.place] = _with(samples[one.place], one, text, reason)
                enough = on_finished(one.place, sample) or enough
        engine.abort_request(list(started), internal=True)
        for one in started.values():
            after[one.place] = _with(samples[one.place], one, "", "abort")
        return after

    def _sampling_params(self, greedy: bool, written: int) -> Any:
        """written: tokens that the completion has already."""
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        settings = self.settings
        return SamplingParams(
            max_tokens=settings.max_completion_length - written,
            logprobs=0,
            detokenize=False,
            output_kind=RequestOutputKind.FINAL_ONLY,
            temperature=0.0 if greedy else settings.temperature,
            top_p=settings.top_p,
            top_k=max(0, settings.top_k),
            min_p=settings.min_p,
        )

    def sleep(self) -> None:
        """Gives GPU memory to the training phase, as much as `rollout.sleep_level` says; a push wakes the engine."""
        if self.settings.sleep_level and not self.is_asleep:
            self.engine.sleep(level=self.settings.sleep_level)
            self.is_asleep = True

    def load_weights(self, weights: Iterable[tuple[str, Tensor]]) -> None:
        """Replaces the engine's weights by (name, whole tensor) pairs and drops its prefix cache.

        The checkpoint's own names and shapes; the engine fuses and packs them itself. The prefix cache holds keys and
        values of the old weights, and would be used again where a request repeats.
        """
        if self.is_asleep:
            self.engine.wake_up(tags=["weights"])
        stream: Iterator[tuple[str, Tensor]] = iter(weights)
        if self.loads_in_place:
            self.engine.apply_model(lambda model: model.load_weights(stream))
        else:
            self.engine.collective_rpc("reload_weights", kwargs={"weights_iterator": stream})
        for _ in stream:  # ranks gather together: one that stopped early would leave the others waiting
            pass
        if not self.on_gpu:
            self.engine.apply_model(_repack_heads)
        if self.is_asleep:  # the KV cache only now: while weights arrive, its memory is free for them
            self.engine.wake_up(tags=["kv_cache"])
            self.is_asleep = False
        self.forget_prefixes()

    def forget_prefixes(self) -> None:
        """Drops the prefix cache: what is sampled next is computed as after a push, to the last bit."""
        is_empty = self.engine.reset_prefix_cache()
        assert is_empty, "a request under way holds on to old keys and values"


def memory_share(settings: RolloutSettings | TaskModelSettings) -> float:
    """vLLM's gpu_memory_utilization. Where the KV cache has its size it limits nothing, but an engine would refuse to
    start where that share is not free."""
    return settings.gpu_memory_utilization if settings.kv_cache_gib is None else 0.01


def refuse_sleep_without_gpu(rollout: RolloutSettings, world: World) -> None:
    """UserError where the engine is to sleep and cannot; costs nothing, so a run may ask before it starts anything."""
    if rollout.sleep_level and world.device.type != "cuda":
        raise UserError(f"rollout.sleep_level is {rollout.sleep_level}: vLLM sleeps on a GPU alone; set it to 0")


def _computes_with_loaded_weights(model: nn.Module) -> bool:
    """Whether the weights as they are loaded are those the engine computes with: none is packed or derived later.

    Then they can be written where they are; vLLM's general reload, which builds each layer anew, takes much longer.
    """
    from vllm.model_executor.layers.attention import MLAAttention
    from vllm.model_executor.layers.linear import UnquantizedLinearMethod
    from vllm.model_executor.layers.vocab_parallel_embedding import UnquantizedEmbeddingMethod

    methods = {type(method) for module in model.modules() if (method := getattr(module, "quant_method", None))}
    derives = any(isinstance(module, MLAAttention) for module in model.modules())
    return not derives and methods <= {UnquantizedLinearMethod, UnquantizedEmbeddingMethod}


def _repack_heads(model: nn.Module) -> None:
    """vLLM's CPU linears run on packed copies; a reload packs anew what the stream names.

    A tied head is not in the stream: without this it would go on with the weights of the start, at a gap that looks
    like noise (0.1 after a step that moves the log-probs by 4).
    """
    from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead

    for module in model.modules():
        if isinstance(module, ParallelLMHead):
            module.quant_method.process_weights_after_loading(module)


def _step(engine: Any, started: dict[str, _Started]) -> list[tuple[_Started, str]]:
    """One step of the engine: the completions that it finished, each with vLLM's finish reason.

    Tokens and log-probs are taken as they leave the engine's core, in a fifth of the time that vLLM's output processor
    needs. The processor sees the last token alone, and forgets the request.
    """
    outputs = engine.engine_core.get_output().outputs
    for output in outputs:
        one = started.get(output.request_id)  # None: an interrupted call's request may still be there
        if one is not None and output.new_token_ids:
            one.token_ids += output.new_token_ids
            one.logprobs += output.new_logprobs.logprobs[:, 0].tolist()  # the sampled token's stands first
    last = [output for output in outputs if output.finished]
    engine.output_processor.process_outputs(last)
    known = [output for output in last if output.request_id in started]
    return [(started.pop(output.request_id), str(output.finish_reason)) for output in known]


def _with(sample: Sample, one: _Started, text: str, reason: str) -> Sample:
    assert len(one.logprobs) == len(one.token_ids), "one log-prob for each token"
    return replace(
        sample,
        completion_ids=tuple(one.token_ids),
        sampler_logprobs=tuple(one.logprobs),
        text=text,
        finish_reason=reason,
    )

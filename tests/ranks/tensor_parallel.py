"""One vLLM engine over two ranks: its sampler gap before and after a push, and without; rank 0 writes one JSON file.

deepspeed --num_accelerators 2 tests/ranks/tensor_parallel.py MODEL OUT.json [DTYPE]
"""

import json
import sys

import torch

from prewrite.algorithm.batching import collate
from prewrite.config import LossSettings, PolicySettings, RolloutSettings, TrainingSettings
from prewrite.engine import distributed
from prewrite.engine.policy import Policy, load_tokenizer
from prewrite.engine.sampler import Sampler
from prewrite.engine.weight_sync import push
from prewrite.training.rollout import build_requests, roll_out
from prewrite.training.update import Updater
from prewrite.types import InstructionRow, Sample, Sampled


def main(model: str, out: str, dtype: str = "float32") -> None:
    world = distributed.start()
    settings = PolicySettings(model=model, dtype=dtype)
    rollout = RolloutSettings(
        temperature=0.7,
        max_prompt_length=200,
        max_completion_length=24,
        vllm_tensor_parallel_size=2,
        kv_cache_gib=1,
        enforce_eager=True,
        gpu_memory_utilization=0.1,  # several tests may share a card
    )
    training = TrainingSettings(max_steps=1, per_device_train_batch_size=4)
    policy = Policy(settings, training, world, temperature=rollout.temperature)
    tokenizer = load_tokenizer(settings)
    sampler = Sampler(settings, rollout, tokenizer, world, seed=1)
    torch.manual_seed(1)
    row = InstructionRow("Good or bad?", "sentiment")
    requests = build_requests([row], tokenizer, rollout)

    def read(group: int, sample: Sample) -> Sampled:
        return Sampled(sample, row, group, sample.text)

    def sample_and_gap():
        samples = [one.sample for one in roll_out(sampler, requests, 8, world, read)]
        batch = collate(samples, [1.0, -1.0, 0.5, -0.5], pad_token_id=tokenizer.pad_token_id or 0)
        batch = batch.to(world.device)
        logprob_BT, _ = policy.logprobs(batch, num_chunks=1)
        gap = (logprob_BT.detach() - batch.sampler_logprob_BT)[batch.mask_BT].abs().mean()
        return batch, [sample.completion_ids for sample in samples], float(gap)

    push(policy, sampler)
    batch, completions, gap = sample_and_gap()
    updater = Updater(policy, None, LossSettings(), training, max_completion_length=24, rollouts_per_step=4)
    list(updater.updates(batch, lambda: 1e-3, 1))
    gap_without_push = sample_and_gap()[2]
    begun = [Sample(tuple(requests[0]), (), (), "", "abort")] * 3
    head = Sample(tuple(requests[0]), (5,) * 16, (-1.0,) * 16, "", "abort")  # of 24 tokens: it is done first
    partly = sampler.go_on([head, *begun], lambda place, sample: place == 0)
    push(policy, sampler)
    whole = sampler.go_on(partly, lambda place, sample: False)
    report = {
        "going on": distributed.gather([[one.completion_ids for one in samples] for samples in (partly, whole)]),
        "gaps": distributed.gather(gap) + distributed.gather(sample_and_gap()[2]),
        "gaps_without_push": distributed.gather(gap_without_push),
        "completions": distributed.gather(completions),
    }
    sampler.close()
    if world.is_main:
        with open(out, "w", encoding="utf-8") as file:
            json.dump(report, file)
    distributed.stop()


if __name__ == "__main__":
    main(*(argument for argument in sys.argv[1:] if not argument.startswith("--local_rank")))

"""What the engine tests look at, measured on as many ranks as the launcher starts; rank 0 writes one JSON file.

deepspeed --num_accelerators 2 tests/ranks/probe.py MODEL OUT.json [DTYPE SLEEP_LEVEL]
"""

import copy
import dataclasses
import hashlib
import importlib.util
import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import deepspeed
import torch
from deepspeed.utils import safe_get_full_grad

from prewrite.algorithm.batching import Batch, collate
from prewrite.algorithm.logprobs import count_chunks
from prewrite.config import LoraSettings, LossSettings, PolicySettings, RolloutSettings, TrainingSettings
from prewrite.engine import distributed
from prewrite.engine.adapter import Adapter
from prewrite.engine.policy import Policy, load_lm, load_tokenizer
from prewrite.engine.sampler import Sampler
from prewrite.engine.weight_sync import push, trained_weights
from prewrite.errors import UserError
from prewrite.training.rollout import build_requests, roll_out
from prewrite.training.update import Updater
from prewrite.types import InstructionRow, Sample, Sampled

TEMPERATURE = 0.7
CHUNK_TOKENS = 24
STEPS = 2
LEARNING_RATE = 1e-3
LONG_INFORMATION = "Each sentence is a customer's word on a meal, a film, a room or a tool. " * 12
EMBEDDING = "model.embed_tokens.weight"
WATCHED = (EMBEDDING, "model.layers.1.mlp.down_proj.weight", "model.layers.3.input_layernorm.weight")
PROMPT = (1, 4093, 198, 44, 30, 260, 17)
KINDS: dict[str, dict] = {
    "ZeRO-3": {"zero_stage": 3},
    "ZeRO-3, offloaded": {"offload_optimizer": True},
    "ZeRO-1": {"zero_stage": 1},
    "ZeRO-1, bfloat16": {"zero_stage": 1, "dtype": "bfloat16"},
    "ZeRO-3, bfloat16": {"zero_stage": 3, "dtype": "bfloat16"},
    "ZeRO-1, bfloat16 gradients": {"zero_stage": 1, "dtype": "bfloat16", "grad_accum_dtype": "bfloat16"},
    "ZeRO-3, bfloat16 gradients": {"zero_stage": 3, "dtype": "bfloat16", "grad_accum_dtype": "bfloat16"},
}
COMPILED = {"zero_stage": 3, "torch_compile": True, "gradient_checkpointing": True}
REFUSING_KINDS = ("ZeRO-3", "ZeRO-1, bfloat16", "ZeRO-1, bfloat16 gradients")  # each looks for overflow elsewhere
EIGHT_BIT_KINDS = ("ZeRO-3", "ZeRO-1, bfloat16", "ZeRO-1, bfloat16 gradients")
EIGHT_BIT_WHOLE_KINDS = ("ZeRO-3", "ZeRO-1, bfloat16 gradients")  # of whole weights
PUSHED_KINDS = ("ZeRO-3, offloaded", "ZeRO-3, bfloat16 gradients", "ZeRO-3, compiled")  # and cut in all ways
LORA = LoraSettings(r=4, alpha=8, modules_to_save=["embed_tokens"])
LORA_KINDS: dict[str, dict] = {"ZeRO-3": {"zero_stage": 3}, "ZeRO-1": {"zero_stage": 1}}
IN_4_BITS = {"load_in_4bit": True}
LORA_WATCHED = (
    f"base_model.model.{EMBEDDING.replace('.weight', '.modules_to_save.default.weight')}",
    "base_model.model.model.layers.1.mlp.down_proj.lora_A.default.weight",
    "base_model.model.model.layers.3.self_attn.q_proj.lora_B.default.weight",
)
CUTS = {
    "4": {"per_device_train_batch_size": 4},
    "1": {"per_device_train_batch_size": 1},
    "tokens": {"max_tokens_per_micro_batch": 40},
}
TEXTS = (
    "Say whether the review is positive.",
    "Good or bad?",
    "Read the sentence with care, think about what the writer feels, and answer with one word.",
    "Decide: positive or negative.",
)


def main(model: str, out: str, dtype: str = "float32", sleep_level: str = "0") -> None:
    world = distributed.start()
    settings = PolicySettings(model=model, dtype=dtype)
    training = TrainingSettings(max_steps=1, logprob_chunk_tokens=CHUNK_TOKENS)
    tokenizer = load_tokenizer(settings)
    report: dict = {"gradients": {}, "weights": {}, "resets": {}, "refusals": {}, "pushes": {}}
    kinds = KINDS
    if world.device.type == "cuda":  # what compiling is for; on CPU ranks it takes too long
        kinds = KINDS | {"ZeRO-3, compiled": COMPILED}
    for kind, change in kinds.items():
        changed = settings.model_copy(update=change)
        other = Policy(changed, training, world, temperature=TEMPERATURE)
        batch = example_batch(tokenizer)
        losses = [loss_of(other, batch)]
        report["gradients"][kind] = gradients(other, batch, CUTS if kind == "ZeRO-3" else ("1",), WATCHED)
        sums = [weight_sum(other)]
        update(other, batch, "1", LEARNING_RATE)
        sums.append(weight_sum(other))
        if kind in ("ZeRO-3", "ZeRO-1"):
            frozen = Policy(changed, training, world, temperature=TEMPERATURE, trainable=False)
            frozen.mix_in(other, 1.0)
            sums.append(weight_sum(frozen))
        report["weights"][kind] = distributed.gather(sums)
        report["resets"][kind] = distributed.gather(reset_proof(other, changed, batch, losses))
        if kind in REFUSING_KINDS:
            report["refusals"][kind] = distributed.gather(refusals(other, batch))
    if importlib.util.find_spec("bitsandbytes"):
        report["8 bits"] = eight_bit_proofs(settings, example_batch(tokenizer), Path(out).with_suffix(".8_bits"))
    policy = Policy(settings, training, world, temperature=TEMPERATURE)
    rollout = rollout_settings(int(sleep_level))
    sampler = Sampler(settings, rollout, tokenizer, world, seed=1)
    report |= push_proof(policy, sampler)
    report["partial"] = distributed.gather(partial_proof(policy, sampler))
    for kind in PUSHED_KINDS:  # policies of their own: steps before a reset leave moments of slightly other gradients
        if kind in kinds:
            changed = settings.model_copy(update=kinds[kind])
            other = Policy(changed, training, world, temperature=TEMPERATURE)
            report["gradients"][kind] = gradients(other, example_batch(tokenizer), CUTS, WATCHED)
            report["pushes"][kind] = push_proof(other, sampler)
    if "8 bits" in report:
        eight = training.model_copy(update={"optim": "adamw_8bit"})
        for kind in EIGHT_BIT_WHOLE_KINDS:
            other = Policy(settings.model_copy(update=KINDS[kind]), eight, world, temperature=TEMPERATURE)
            report["8 bits"]["gradients"][kind] = gradients(other, example_batch(tokenizer), CUTS, WATCHED)
            report["8 bits"]["pushes"][kind] = push_proof(other, sampler)
    report["lora"] = lora_proofs(settings, sampler, Path(out).with_suffix(".adapter"))
    sampler.close()
    if world.is_main:
        with open(out, "w", encoding="utf-8") as file:
            json.dump(report, file)
    distributed.stop()


def example_batch(tokenizer) -> Batch:
    samples = [
        Sample(PROMPT, ids, tuple([-2.0] * len(ids)), text, "stop")
        for text in TEXTS
        for ids in [tuple(tokenizer(text)["input_ids"])]
    ]
    return collate(samples, [1.0, -0.5, 0.3, -0.8], pad_token_id=tokenizer.pad_token_id or 0)


def gradients(
    policy: Policy, batch: Batch, cuts: Iterable[str], watched: Sequence[str]
) -> dict[str, dict[str, list[float]]]:
    """A few entries and the norm of each watched gradient, for each cut into micro-batches."""
    found: dict[str, dict[str, list[float]]] = {}
    take_step = policy.step
    cut = ""

    def look_and_step(learning_rate: float) -> float:
        for name in watched:
            gradient = safe_get_full_grad(policy.trained[name]).float()
            looked_at = (gradient[list(PROMPT)] if "embed_tokens" in name else gradient).flatten()
            entries = looked_at[:: max(1, len(looked_at) // 50)].tolist()
            found.setdefault(cut, {})[name] = [float(gradient.norm()), *entries]
        return take_step(learning_rate)

    policy.step = look_and_step
    for cut in cuts:  # look_and_step reads it
        update(policy, batch, cut, 0.0)  # a learning rate of 0: the next cut sees the same weights
    policy.step = take_step
    return found


def update(
    policy: Policy, batch: Batch, cut: str, learning_rate: float, reference: Policy | None = None, **loss: str
) -> None:
    training = TrainingSettings(max_steps=1, logprob_chunk_tokens=CHUNK_TOKENS, **CUTS[cut])
    settings = LossSettings(beta=0.0 if reference is None else 0.04, **loss)
    updater = Updater(policy, reference, settings, training, max_completion_length=64, rollouts_per_step=4)
    list(updater.updates(batch, lambda: learning_rate, 3))


def loss_of(policy: Policy, batch: Batch) -> float:
    """Of a fixed batch: the mean of -log p over its tokens."""
    with torch.no_grad():
        batch = batch.to(policy.world.device)
        logprob_BT, _ = policy.logprobs(batch, count_chunks(batch.num_tokens, CHUNK_TOKENS))
    return -float(logprob_BT.sum()) / batch.num_tokens


def reset_proof(policy: Policy, settings: PolicySettings, batch: Batch, losses: list[float]) -> dict:
    """Checksums and losses of a policy that was trained, after a reset, after a step with rate 0, and trained again.

    losses: of the base model. Before the reset a step the other way leaves moments that would lead elsewhere.
    """
    sums, losses = [policy.checksums()], [*losses, loss_of(policy, batch)]
    update(policy, dataclasses.replace(batch, advantage_B=-batch.advantage_B), "4", LEARNING_RATE)
    base = policy.reset(settings)
    for learning_rate in (None, 0.0, LEARNING_RATE):
        if learning_rate is not None:
            update(policy, batch, "1", learning_rate)
        sums.append(policy.checksums())
        losses.append(loss_of(policy, batch))
    return {"base": base, "sums": sums, "losses": losses}


def refusals(policy: Policy, batch: Batch) -> dict[str, list]:
    """What a step that is not finite on the last rank ends with, and the weights' sums before and after it."""
    silent = torch.where(torch.arange(4)[:, None] == 1, float("-inf"), batch.sampler_logprob_BT)
    made = {"nan": batch, "gap": dataclasses.replace(batch, sampler_logprob_BT=silent), "steep": batch}
    found = {}
    for name, given in made.items():
        before = weight_sum(policy)
        loss_type = "dapo" if name == "gap" else f"tests.ranks.broken_loss:{name}"
        try:
            update(policy, given, "1", LEARNING_RATE, loss_type=loss_type)
        except UserError as error:
            found[name] = [str(error), before, weight_sum(policy)]
    return found


def weight_sum(policy: Policy) -> float:
    """The sum of |w| over all weights, whole."""
    parameters = list(policy.lm.parameters())
    with deepspeed.zero.GatheredParameters(parameters):
        return sum(float(weight.detach().double().abs().sum()) for weight in parameters)


def eight_bit_proofs(settings: PolicySettings, batch: Batch, folder: Path) -> dict:
    """Of an adapter's moments in 8 bits, by kind (of whole weights a step takes seconds on a CPU): `reset_proof`,
    `resume_proof`, their bytes a weight, and how many weights hold a gradient of their own when all are summed up."""
    training = TrainingSettings(max_steps=1, logprob_chunk_tokens=CHUNK_TOKENS, optim="adamw_8bit")
    world = distributed.start()
    report: dict = {part: {} for part in ("resets", "resumed", "bytes", "left", "gradients", "pushes")}
    for kind in EIGHT_BIT_KINDS:
        changed = settings.model_copy(update=KINDS[kind] | {"lora": LoraSettings(r=4, alpha=8)})
        policy = Policy(changed, training, world, temperature=TEMPERATURE)
        losses = [loss_of(policy, batch)]
        update(policy, batch, "1", 0.0)  # as after the reset: the second step takes rounded moments
        update(policy, batch, "1", LEARNING_RATE)
        report["resets"][kind] = distributed.gather(reset_proof(policy, changed, batch, losses))
        report["resumed"][kind] = resume_proof(policy, changed, training, batch, folder / kind)
        states = policy.optimizer_state()
        moments = [value for state in states for name, value in state.items() if name.startswith(("state", "absmax"))]
        numel = sum(state["master"].numel() for state in states)
        report["bytes"][kind] = sum(value.numel() * value.element_size() for value in moments) / numel
        logprob_BT, _ = policy.logprobs(batch.to(world.device), count_chunks(batch.num_tokens, CHUNK_TOKENS))
        policy.backward(logprob_BT.sum(), last=True)
        report["left"][kind] = sum(weight.grad is not None for weight in policy.trained.values())
    return report


def lora_proofs(settings: PolicySettings, sampler: Sampler, folder: Path) -> dict:
    """Of adapters, by kind: what `main` looks at of whole weights, the loss as it is trained on, what is trained in
    numbers, and a hash of the frozen weights before and after; all from one adapter that is not zero."""
    tokenizer, settings = sampler.tokenizer, settings.model_copy(update={"lora": LORA})
    training = TrainingSettings(max_steps=1, logprob_chunk_tokens=CHUNK_TOKENS)
    world = distributed.start()
    if world.is_main:
        write_adapter(settings, folder)
    distributed.gather(None)  # until it is there
    has_4_bits = importlib.util.find_spec("bitsandbytes") is not None
    report: dict = {part: {} for part in ("gradients", "resets", "losses", "numbers", "frozen", "pushes", "resumed")}
    for kind, change in (LORA_KINDS | ({"4 bits": IN_4_BITS} if has_4_bits else {})).items():
        changed = settings.model_copy(update=change)
        policy = Policy(changed, training, world, temperature=TEMPERATURE, weights=folder)
        frozen = [hash_of_frozen(policy)]
        batch = example_batch(tokenizer)
        report["gradients"][kind] = gradients(policy, batch, CUTS if kind == "ZeRO-3" else ("1",), LORA_WATCHED)
        below, losses = policy.without_adapter(), [loss_of(policy, batch)]
        losses.append(loss_of(below, batch))
        update(policy, dataclasses.replace(batch, advantage_B=torch.ones(4)), "1", LEARNING_RATE, reference=below)
        losses += [loss_of(policy, batch), loss_of(below, batch)]
        report["losses"][kind] = distributed.gather(losses)
        if kind == "ZeRO-3" or (kind == "4 bits" and world.size == 1):
            report["pushes"][kind] = push_proof(policy, sampler)
        if kind != "4 bits":  # ZeRO-1, as without them
            policy.reset(changed)
            losses = [loss_of(policy, batch)]
            update(policy, batch, "1", LEARNING_RATE)
            report["resets"][kind] = distributed.gather(reset_proof(policy, changed, batch, losses))
        if kind == "ZeRO-3":
            checkpoint = folder.with_suffix(".checkpoint")
            report["resumed"][kind] = resume_proof(policy, changed, training, batch, checkpoint)
        masters = sum(part["master"].numel() for part in policy.optimizer_state())
        trained = sum(getattr(weight, "ds_numel", weight.numel()) for weight in policy.trained.values())
        report["numbers"][kind] = [trained, sum(distributed.gather(masters))]
        frozen.append(hash_of_frozen(policy))
        report["frozen"][kind] = distributed.gather(frozen)
    return report


def resume_proof(
    policy: Policy, settings: PolicySettings, training: TrainingSettings, batch: Batch, folder: Path
) -> list[float]:
    """Sums of |w| of what is trained: now, a step later, and a step after what a checkpoint holds of now was read."""
    world, sums = policy.world, [policy.checksums()["weights"]]
    weights = {name: weight.detach().cpu().clone() for name, weight in trained_weights(policy)}
    if world.is_main:
        folder.mkdir(parents=True)
        policy.save(folder, weights)
    state = copy.deepcopy(policy.optimizer_state())
    distributed.gather(None)  # until it is there
    resumed = Policy(settings, training, world, temperature=TEMPERATURE, weights=folder)
    resumed.load_optimizer_state(state)
    for one in (policy, resumed):
        update(one, batch, "1", LEARNING_RATE)
        sums.append(one.checksums()["weights"])
    return sums


def write_adapter(settings: PolicySettings, folder: Path) -> None:
    """A peft folder of an adapter whose second matrices are not zero, as `Policy` writes one."""
    adapter = Adapter(load_lm(settings), LORA, seed=1)
    folder.mkdir()
    generator = torch.Generator().manual_seed(1)
    weights = {
        name: weight.data + 0.02 * torch.randn(weight.shape, generator=generator, dtype=torch.float32)
        for name, weight in adapter.trained.items()
    }
    adapter.save(folder, weights)


def hash_of_frozen(policy: Policy) -> str:
    """Of every bit of the weights that are not trained, whole. A collective."""
    digest, trained = hashlib.sha256(), {id(weight) for weight in policy.trained.values()}
    for weight in policy.lm.parameters():
        if id(weight) not in trained:
            with deepspeed.zero.GatheredParameters([weight]):
                digest.update(weight.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def rollout_settings(sleep_level: int) -> RolloutSettings:
    return RolloutSettings(
        temperature=TEMPERATURE,
        max_prompt_length=512,
        max_completion_length=16,
        sleep_level=sleep_level,
        kv_cache_gib=1,
        enforce_eager=True,
        gpu_memory_utilization=0.1,  # several tests may share a card
    )


def partial_proof(policy: Policy, sampler: Sampler) -> list[dict]:
    """Of each completion that goes on after a step and its push: how many tokens each of the two weights sampled, the
    largest gap between a token's log-prob and that of the weights that sampled it, and of the first ones to the second.

    One completion has 8 tokens already, so that it is done while the others have as many and the rollout ends.
    """
    row = InstructionRow("Classify the sentiment of the sentence.", "sentiment", information=LONG_INFORMATION)
    (request,) = build_requests([row], sampler.tokenizer, sampler.settings)
    longest = max(sampler.sample([request], [8])[0], key=lambda sample: len(sample.completion_ids))
    head = {"completion_ids": longest.completion_ids[:8], "sampler_logprobs": longest.sampler_logprobs[:8]}
    begun = [Sample(tuple(request), (), (), "", "abort")] * 3
    unfinished = [dataclasses.replace(longest, text="", finish_reason="abort", **head), *begun]
    first = sampler.go_on(unfinished, lambda place, sample: place == 0)
    sampler.sleep()
    of_first = logprobs_of(policy, first)
    update(policy, example_batch(sampler.tokenizer), "1", LEARNING_RATE)
    push(policy, sampler)
    both = sampler.go_on(first, lambda place, sample: False)
    of_both = logprobs_of(policy, both)
    found = []
    for half, whole, before, after in zip(first, both, of_first, of_both, strict=True):
        size = len(half.completion_ids)
        assert whole.completion_ids[:size] == half.completion_ids, "its tokens stay"
        if half.finish_reason == "abort":
            sampled = torch.tensor(whole.sampler_logprobs)
            gaps = (sampled[:size] - before, sampled[size:] - after[size:], sampled[:size] - after[:size])
            to_first, to_second, of_first_to_second = (float(gap.abs().max()) for gap in gaps)
            found.append({
                "tokens": [size, len(whole.completion_ids) - size],
                "gaps": [to_first, to_second],
                "gap_to_the_new_weights": of_first_to_second,
            })  # fmt: skip
    return found


@torch.no_grad()
def logprobs_of(policy: Policy, samples: Sequence[Sample]) -> list[torch.Tensor]:
    """Of each completion's tokens under the policy now. A collective."""
    batch = collate(samples, [0.0] * len(samples), pad_token_id=0).to(policy.world.device)
    chunks = max(distributed.gather(count_chunks(batch.num_tokens, CHUNK_TOKENS)))
    logprob_BT, _ = policy.logprobs(batch, chunks)
    return [row_T[mask_T].cpu() for row_T, mask_T in zip(logprob_BT, batch.mask_BT, strict=True)]


def push_proof(policy: Policy, sampler: Sampler) -> dict:
    """The sampler gap of every step, each rank's; that of the second step without its push; and the ranks' texts.

    Checksums are sums of |w|: of the trainer's weights, of those pushed, and, on a GPU, of the engine's own.
    """
    world, tokenizer, rollout = policy.world, sampler.tokenizer, sampler.settings
    row = InstructionRow("Classify the sentiment of the sentence.", "sentiment", information=LONG_INFORMATION)
    requests = build_requests([row], tokenizer, rollout)

    def read(group: int, sample: Sample) -> Sampled:
        return Sampled(sample, row, group, sample.text)

    def sample_and_gap():
        samples = [one.sample for one in roll_out(sampler, requests, 4 * world.size, world, read)]
        batch = collate(samples, [0.0] * len(samples), pad_token_id=tokenizer.pad_token_id or 0).to(world.device)
        chunks = max(distributed.gather(count_chunks(batch.num_tokens, CHUNK_TOKENS)))
        logprob_BT, _ = policy.logprobs(batch, chunks)
        gap = (logprob_BT.detach() - batch.sampler_logprob_BT)[batch.mask_BT].abs().mean()
        return samples, batch, logprob_BT, float(gap)

    def engine_checksum() -> float:
        return sampler.engine.apply_model(
            lambda model: sum(float(weight.detach().double().abs().sum()) for weight in model.parameters())
        )[0]

    pushed = [push(policy, sampler, checksum=True).checksum]
    trained, in_engine, gaps, texts, gap_without_push = [], [engine_checksum()], [], [], 0.0
    for step in range(STEPS):
        samples, batch, logprob_BT, gap = sample_and_gap()
        gaps.append(gap)
        texts.append([sample.text for sample in samples])
        direction_B = torch.tensor([1.0, -1.0] * (len(samples) // 2), device=world.device)
        policy.backward((logprob_BT.sum(1) * direction_B).sum() / batch.num_tokens, last=True)
        policy.step(LEARNING_RATE)
        if step == 0:
            gap_without_push = sample_and_gap()[3]
        sampler.sleep()
        trained.append(weight_sum(policy))
        pushed.append(push(policy, sampler, checksum=True).checksum)
        in_engine.append(engine_checksum())
    gaps.append(sample_and_gap()[3])
    return {
        "request_tokens": len(requests[0]),
        "block_tokens": sampler.engine.llm_engine.vllm_config.cache_config.block_size,
        "gaps": distributed.gather(gaps),
        "gaps_without_push": distributed.gather(gap_without_push),
        "texts": distributed.gather(texts[0]),
        "pushed_checksums": pushed,
        "trained_checksums": trained,
        "engine_checksums": in_engine,
    }


if __name__ == "__main__":
    main(*(argument for argument in sys.argv[1:] if not argument.startswith("--local_rank")))

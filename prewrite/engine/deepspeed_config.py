"""What DeepSpeed is told."""

import importlib.util
import logging
import math
import os
from collections.abc import Callable, Iterable
from typing import Any

import psutil
from torch import Tensor
from torch.optim import Optimizer

from prewrite.config import PolicySettings, TrainingSettings
from prewrite.engine.distributed import World
from prewrite.errors import UserError

EIGHT_BITS = "adamw_8bit"  # of `training.optim`
GRADIENT_BUCKET_NUMEL = 200_000_000  # gradients reduced at once
GROUP_NUMEL = 10_000_000  # weights after which an optimizer's group ends, where it has several
OFFLOADED_BYTES = 16  # a weight: master, gradient and two moments in float32

log = logging.getLogger(__name__)


def deepspeed_config(settings: PolicySettings, training: TrainingSettings, world: World) -> dict[str, Any]:
    """DeepSpeed's own configuration of a policy."""
    on_gpu = world.device.type == "cuda"
    offload = {"offload_optimizer": {"device": "cpu", "pin_memory": on_gpu}} if settings.offload_optimizer else {}
    # A lone rank has nothing to share out, and ZeRO-3's hooks cost the host as much as the model's own operations.
    is_lone = world.size == 1 and not settings.offload_optimizer
    stage = settings.zero_stage or (1 if is_lone or settings.load_in_4bit else 3)
    betas = [training.adam_beta1, training.adam_beta2]
    adam = {"lr": training.learning_rate, "betas": betas, "weight_decay": training.weight_decay, "fused": True}
    # DeepSpeed's own Adam compiles an extension at the start.
    adamw = {"type": "AdamW", "params": {**adam, "torch_adam": True}}
    return {
        # Micro-batches are counted by us (`Policy.backward`); for DeepSpeed every step is one.
        "train_micro_batch_size_per_gpu": training.per_device_train_batch_size,
        "gradient_accumulation_steps": 1,
        "train_batch_size": training.per_device_train_batch_size * world.size,
        "zero_optimization": {
            "stage": stage,
            "stage3_param_persistence_threshold": 1_000_000,
            "reduce_bucket_size": GRADIENT_BUCKET_NUMEL,
            # ZeRO-1 would copy all of them at once, after the backward pass.
            "contiguous_gradients": stage == 3,
            # Both cost the host a call for each weight, and buy a single rank nothing.
            "overlap_comm": world.size > 1,
            "memory_efficient_linear": world.size > 1 and not settings.gradient_checkpointing,
            **offload,
        },
        "zero_force_ds_cpu_optimizer": False,
        # ZeRO-1 adds each gradient to its float32 sum as it comes, and would keep it in bfloat16 besides.
        "bf16": {"enabled": settings.dtype == "bfloat16", "immediate_grad_update": True},
        "data_types": {"grad_accum_dtype": "bf16" if settings.grad_accum_dtype == "bfloat16" else "fp32"},
        # ZeRO-1 reduces once a step: the float32 sum, which it would otherwise round to bfloat16. Sums in bfloat16 are.
        **({"communication_data_type": "fp32"} if stage == 1 and settings.grad_accum_dtype == "float32" else {}),
        "gradient_clipping": training.max_grad_norm,
        **({"zero_allow_untested_optimizer": True} if training.optim == EIGHT_BITS else {"optimizer": adamw}),
    }


def restore_constants(lm: Any) -> None:
    """Gives a model that was loaded for ZeRO-3 the rotary frequencies that it has without it, in float32.

    DeepSpeed makes every tensor in the weights' dtype while such a model is built. In bfloat16 a frequency is off by up
    to 0.2%, and so the angle at position 1,000 by as much as two radians: not the model that vLLM samples from.
    """
    for module in lm.modules():
        constants = dict(module.named_buffers(recurse=False))
        if any(name.endswith("inv_freq") for name in constants):
            computed = type(module)(module.config)
            for name, constant in constants.items():
                setattr(module, name, getattr(computed, name).to(constant.device))


def optimizer_groups(weights: Iterable[Tensor], settings: PolicySettings) -> list[dict[str, Any]]:
    """The weights, in their order, in the groups that DeepSpeed steps on one after the other.

    Gradients summed up in bfloat16 are in float32 while their group is stepped on: hence more groups than one.
    """
    largest = GROUP_NUMEL if settings.grad_accum_dtype == "bfloat16" else math.inf
    groups: list[list[Tensor]] = [[]]
    for weight in weights:
        if sum(getattr(one, "ds_numel", one.numel()) for one in groups[-1]) > largest:
            groups.append([])
        groups[-1].append(weight)
    return [{"params": group} for group in groups]


def own_optimizer(training: TrainingSettings) -> Callable[[Iterable[Tensor]], Optimizer] | None:
    """What makes the optimizer that DeepSpeed does not have; None = it has the one that `deepspeed_config` names."""
    if training.optim != EIGHT_BITS:
        return None
    from bitsandbytes.optim import AdamW8bit  # pyright: ignore[reportMissingImports]  # optional

    betas = (training.adam_beta1, training.adam_beta2)
    return lambda weights: AdamW8bit(weights, training.learning_rate, betas, weight_decay=training.weight_decay)


def refuse_too_large(training: TrainingSettings, masters: Iterable[Tensor]) -> None:
    """UserError where bitsandbytes would count a rank's weights in 32 bits and come out wrong, without a word."""
    largest = max(master.numel() for master in masters)
    if training.optim == EIGHT_BITS and largest >= 2**31:
        rule = f"{largest:,} weights in one piece are more than bitsandbytes can count"
        way_out = "set policy.zero_stage to 3, whose pieces are smaller, or leave it out"
        raise UserError(f"training.optim=adamw_8bit: {rule}: {way_out}")


def warn_of_full_host(weights: Iterable[Tensor], world: World) -> None:
    """Says so where what `policy.offload_optimizer` moves to this machine's memory is more than is free there.

    No refusal: a virtual machine may be given memory as it asks for it.
    """
    share = int(os.environ.get("LOCAL_WORLD_SIZE", world.size)) / world.size
    wanted = OFFLOADED_BYTES * share * sum(getattr(weight, "ds_numel", weight.numel()) for weight in weights)
    free = psutil.virtual_memory().available
    if world.is_main and wanted > free:
        log.warning(
            "policy.offload_optimizer puts %.1f GiB (%d bytes a weight) into this machine's memory, where %.1f are "
            "free: a run that fills it is killed; policy.lora takes less, and so do more machines",
            *(wanted / 2**30, OFFLOADED_BYTES, free / 2**30),
        )


def refuse_no_bitsandbytes(settings: PolicySettings, training: TrainingSettings) -> None:
    """UserError where a setting needs bitsandbytes and it is not installed."""
    asked = {"policy.load_in_4bit": settings.load_in_4bit, "training.optim=adamw_8bit": training.optim == EIGHT_BITS}
    needs = [name for name, is_asked in asked.items() if is_asked]
    if needs and importlib.util.find_spec("bitsandbytes") is None:
        way_out = "pip install -r requirements-qlora.txt, or leave it out"
        raise UserError(f"{' and '.join(needs)}: the package bitsandbytes is not installed: {way_out}")

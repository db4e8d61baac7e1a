"""What DeepSpeed is told."""

from typing import Any

from prewrite.config import PolicySettings, TrainingSettings
from prewrite.engine.distributed import World

GRADIENT_BUCKET_NUMEL = 200_000_000  # gradients reduced at once


def deepspeed_config(settings: PolicySettings, training: TrainingSettings, world: World) -> dict[str, Any]:
    """DeepSpeed's own configuration of a policy."""
    on_gpu = world.device.type == "cuda"
    offload = {"offload_optimizer": {"device": "cpu", "pin_memory": on_gpu}} if settings.offload_optimizer else {}
    # A lone rank has nothing to share out, and ZeRO-3's hooks cost the host as much as the model's own operations.
    is_lone = world.size == 1 and not settings.offload_optimizer
    stage = settings.zero_stage or (1 if is_lone or settings.load_in_4bit else 3)
    return {
        # Micro-batches are counted by us (`Policy.backward`); for DeepSpeed every step is one.
        "train_micro_batch_size_per_gpu": training.per_device_train_batch_size,
        "gradient_accumulation_steps": 1,
        "train_batch_size": training.per_device_train_batch_size * world.size,
        "zero_optimization": {
            "stage": stage,
            "stage3_param_persistence_threshold": 1_000_000,
            "reduce_bucket_size": GRADIENT_BUCKET_NUMEL,
            # Both cost the host a call for each weight, and buy a single rank nothing.
            "overlap_comm": world.size > 1,
            "memory_efficient_linear": world.size > 1 and not settings.gradient_checkpointing,
            **offload,
        },
        "zero_force_ds_cpu_optimizer": False,
        "bf16": {"enabled": settings.dtype == "bfloat16"},
        "data_types": {"grad_accum_dtype": "fp32"},
        # ZeRO-1 reduces once a step: the float32 sum, which it would otherwise round to bfloat16.
        **({"communication_data_type": "fp32"} if stage == 1 else {}),
        "gradient_clipping": training.max_grad_norm,
        "optimizer": {
            "type": "AdamW",
            "params": {
                "lr": training.learning_rate,
                "betas": [training.adam_beta1, training.adam_beta2],
                "weight_decay": training.weight_decay,
                "torch_adam": True,  # DeepSpeed's own Adam compiles an extension at the start
                "fused": True,
            },
        },
    }

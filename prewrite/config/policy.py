"""The policy: the model that is trained."""

from typing import Literal

from prewrite.config.base import Section


class PolicySettings(Section):
    """The model that is trained."""

    model: str
    """folder or hub name of a chat model in the transformers format"""
    model_revision: str | None = None
    """branch, tag or commit of a model of the hub; null = its main branch"""
    trust_remote_code: bool = False
    """run Python code that comes with the model; it has all your rights"""
    chat_template: str | None = None
    """Jinja text, or a file of it, in place of the tokenizer's own chat template; saved with every checkpoint"""
    dtype: Literal["bfloat16", "float32"] = "bfloat16"
    """type of the weights in forward and backward; the optimizer's master copy is always float32"""
    attn_implementation: Literal["packed", "sdpa", "eager"] = "packed"
    """attention of the training forward; packed computes no padding; the others for architectures that it refuses"""
    gradient_checkpointing: bool = False
    """recompute activations in the backward pass: less memory, about a third more time"""
    torch_compile: bool = False
    """compile the decoder layers: less training time on a GPU; the first step takes 10 s more, on a CPU 30"""
    offload_optimizer: bool = False
    """keep master weights, gradients and optimizer state in CPU memory: 16 bytes a weight less on the GPUs, slower"""
    zero_stage: Literal[1, 3] | None = None
    """what ranks share: 1 optimizer state, 3 weights and gradients too; null = 3, or 1 on a lone rank that keeps all"""

"""The policy: the model that is trained, whole or by an adapter on it."""

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from prewrite.config.base import Positive, Section, Word

ALL_LINEAR = "all-linear"


class LoraSettings(Section):
    """An adapter (LoRA, Hu 2021, arXiv 2106.09685) that is trained in place of all weights (docs/adapters.md)."""

    r: Positive = 16
    """rank of the two matrices that are added to a weight; at most the smaller side of the largest of them"""
    alpha: Positive = 32
    """their product is scaled by alpha / r"""
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """of the adapter's input in training; the sampler has none, so the sampler's gap grows with it"""
    target_modules: Annotated[list[Word], Field(min_length=1)] = [ALL_LINEAR]
    """names of linear modules, or their ends, as ["q_proj", "v_proj"]; all-linear = each but the head"""
    modules_to_save: list[Word] = []
    """modules that are trained whole beside it and saved with it, as ["embed_tokens"] (a tied head goes with it)"""

    @field_validator("target_modules", mode="before")
    @classmethod
    def _one_word(cls, given: Any) -> Any:
        return [given] if given == ALL_LINEAR else given

    def faults(self) -> Iterator[str]:
        if ALL_LINEAR in self.target_modules and len(self.target_modules) > 1:
            yield f"target_modules={self.target_modules}: {ALL_LINEAR} stands for all of them; leave out the others"
        if both := sorted(set(self.target_modules) & set(self.modules_to_save)):
            yield f"{', '.join(both)} stand in target_modules and in modules_to_save: take one of the two"


class PolicySettings(Section):
    """The model that is trained."""

    model: Word
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
    grad_accum_dtype: Literal["float32", "bfloat16"] = "float32"
    """type in which a step's gradients are summed up; bfloat16 holds 2 bytes a weight less, and rounds every sum"""
    offload_optimizer: bool = False
    """keep masters, gradients and optimizer state in CPU memory: 16 bytes a weight less on the GPUs, slower"""
    zero_stage: Literal[1, 3] | None = None
    """what ranks share: 1 optimizer state, 3 weights and gradients too; null = 3, or 1 on a lone rank that keeps all"""
    lora: LoraSettings | None = None
    """train an adapter in place of all weights; `{}` = one with the defaults of policy.lora, null = none"""
    load_in_4bit: bool = False
    """hold the frozen weights under the adapter in 4 bits (QLoRA: nf4, arXiv 2305.14314) while training"""

    def faults(self) -> Iterator[str]:
        if self.grad_accum_dtype == "bfloat16" and self.dtype == "float32":
            yield "grad_accum_dtype=bfloat16 with dtype=float32: such weights have float32 gradients; leave it out"
        if self.grad_accum_dtype == "bfloat16" and self.offload_optimizer:
            yield "grad_accum_dtype=bfloat16 with offload_optimizer: sums would stay on the GPU; leave it out"
        if not self.load_in_4bit:
            return
        if self.lora is None:
            yield "load_in_4bit without lora: weights in 4 bits are not trained; give policy.lora, as {}"
        if self.zero_stage == 3 or self.offload_optimizer:
            given = "zero_stage=3" if self.zero_stage == 3 else "offload_optimizer"
            yield (
                f"load_in_4bit with {given}: ZeRO-3 shares out weights, and of 4-bit ones trains nothing without a "
                "word; leave it out: ZeRO-1, which 4-bit weights take by themselves, shares the adapter's state"
            )

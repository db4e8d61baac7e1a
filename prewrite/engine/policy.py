"""The trained model under DeepSpeed ZeRO: log-probs, backward, step. The home of DeepSpeed.

Legend: B rollouts of a micro-batch, T target positions, H hidden size.

Three hazards of DeepSpeed shape this file:
- Only the engine's own forward prepares a backward. After a call to an inner module each micro-batch would overwrite
  the gradient of the last (ZeRO-3) or count it again (ZeRO-1), without an error; hence `LogprobModel`, whose forward is
  the whole way from token ids to log-probs.
- DeepSpeed averages gradients over ranks. The loss is already divided by the whole step's normaliser, so `backward`
  multiplies by the number of ranks: there and nowhere else.
- Under ZeRO-3 every forward of a module is a collective: each rank must run the same number of forwards, and of head
  calls within them (`num_chunks`).
"""

import contextlib
import copy
import io
import itertools
import logging
import os
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import deepspeed
import torch
import transformers
from safetensors import SafetensorError
from torch import Tensor, nn
from transformers import MODEL_FOR_CAUSAL_LM_MAPPING, AutoConfig, AutoModelForCausalLM, AutoTokenizer
from transformers.integrations import HfDeepSpeedConfig, is_deepspeed_zero3_enabled

from prewrite.algorithm.batching import Batch
from prewrite.algorithm.logprobs import chunked_logprobs
from prewrite.config import PolicySettings, TrainingSettings
from prewrite.engine import distributed
from prewrite.engine.adapter import Adapter, four_bits
from prewrite.engine.chat_template import read_template
from prewrite.engine.compiling import compile_layers, refuse_compiling_without_compiler
from prewrite.engine.deepspeed_config import (
    deepspeed_config,
    optimizer_groups,
    own_optimizer,
    refuse_too_large,
    restore_constants,
    warn_of_full_host,
)
from prewrite.engine.distributed import World
from prewrite.engine.packed_attention import PACKED, Packing, refuse_packing
from prewrite.errors import UserError
from prewrite.model_folder import refuse_no_model


class LogprobModel(nn.Module):
    """A causal language model whose forward gives the chosen tokens' log-probs in place of logits."""

    def __init__(self, lm: Any, temperature: float, chunk_tokens: int):
        super().__init__()
        self.lm = lm
        self.temperature = temperature
        self.chunk_tokens = chunk_tokens

    def forward(self, batch: Batch, num_chunks: int, entropy_grad: bool) -> tuple[Tensor, Tensor]:
        """(logprob_BT, entropy_BT) in float32, 0 where the batch's mask is off.

        Packed, the rows stand in one row without padding, with what they share once. Otherwise they are padded on the
        right, so that causal attention alone keeps padding out.
        """
        packing = Packing.of(batch) if self.lm.config._attn_implementation == PACKED else None
        ids, keywords = (packing.ids_1N, packing.keywords) if packing else (batch.input_ids_BT, {})
        return chunked_logprobs(
            self.lm.get_decoder()(input_ids=ids, use_cache=False, **keywords).last_hidden_state,
            self.lm.get_output_embeddings(),
            batch.target_BT,
            mask_BT=batch.mask_BT,
            slot_BT=packing.slot_BT if packing else None,
            num_tokens=batch.num_tokens,
            temperature=self.temperature,
            chunk_tokens=self.chunk_tokens,
            num_chunks=num_chunks,
            entropy_grad=entropy_grad,
            **_logit_shape(self.lm.config),
        )


def _logit_shape(config: Any) -> dict[str, float]:
    """What the architecture does between head and softmax, where it does anything."""
    names = {"final_logit_softcapping": "softcap", "logit_scale": "scale", "logits_scaling": "divisor"}
    return {ours: float(value) for theirs, ours in names.items() if (value := getattr(config, theirs, None))}


class Policy:
    """The model being trained, whole or by an adapter, or, with trainable=False, the frozen reference of the KL term.
    trained: the weights that training moves, by name."""

    def __init__(
        self,
        settings: PolicySettings,
        training: TrainingSettings,
        world: World,
        *,
        temperature: float,
        trainable: bool = True,
        seed: int = 0,
        weights: Path | None = None,
    ):
        """seed: of a new adapter. weights: folder that `save` wrote, in place of the weights that settings name."""
        self.world = world
        refuse_compiling_without_compiler(settings)
        config = deepspeed_config(settings, training, world)
        # Alive while the model loads: under ZeRO-3 transformers then never loads a whole model a rank.
        keep_alive = HfDeepSpeedConfig(config)
        is_adapted = settings.lora is not None and trainable
        lm = load_lm(settings if is_adapted or weights is None else settings.model_copy(update={"model": str(weights)}))
        del keep_alive
        self.adapter = Adapter(lm, settings.lora, seed=seed, weights=weights) if settings.lora and trainable else None
        self.uses_adapter = True
        if settings.gradient_checkpointing and trainable:
            lm.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        if settings.torch_compile:
            compile_layers(lm)
        # A layer is gathered and released as a whole: ZeRO-3's hooks on each module inside cost more than small layers.
        if config["zero_optimization"]["stage"] == 3 and lm._no_split_modules:
            deepspeed.utils.set_z3_leaf_modules(lm, lm._no_split_modules)
        self.lm: Any = lm
        self.trained = self.adapter.trained if self.adapter else dict(lm.named_parameters())
        if settings.offload_optimizer and trainable:
            warn_of_full_host(self.trained.values(), world)
        self.model = LogprobModel(lm, temperature, training.logprob_chunk_tokens)
        if not trainable:
            config.pop("optimizer", None)
            if config["zero_optimization"]["stage"] == 1:
                config["zero_optimization"]["stage"] = 0  # there is no optimizer's state to share out
            self.model.requires_grad_(False)
        with contextlib.redirect_stdout(io.StringIO()):  # DeepSpeed prints its memory at every step of the way
            learners: Any = optimizer_groups(self.trained.values(), settings) if trainable else None
            optimizer: Any = own_optimizer(training) if trainable else None
            self.engine: Any = deepspeed.initialize(None, self.model, optimizer, learners, config=config)[0]
        if trainable:
            refuse_too_large(training, self._masters())
        self.engine.train(trainable)
        self.is_trainable = trainable

    @property
    def is_partitioned(self) -> bool:
        """Whether each rank holds a part of the weights alone (ZeRO-3)."""
        return self.engine.zero_optimization_partition_weights()

    @property
    def computes_padding(self) -> bool:
        """Whether padding costs a forward as much as tokens do."""
        return self.lm.config._attn_implementation != PACKED

    def logprobs(self, batch: Batch, num_chunks: int, *, entropy_grad: bool = False) -> tuple[Tensor, Tensor]:
        """(logprob_BT, entropy_BT) of the batch under the present weights. A collective.

        num_chunks: head calls, the same on every rank (`prewrite.algorithm.logprobs.count_chunks`).
        """
        if self.adapter is None:
            return self.engine(batch, num_chunks, entropy_grad)
        if self.adapter.has_dropout:
            self.lm.train(torch.is_grad_enabled())
        with contextlib.nullcontext() if self.uses_adapter else self.adapter.off():
            return self.engine(batch, num_chunks, entropy_grad)

    def without_adapter(self) -> "Policy":
        """The same model as it is below its adapter, for log-probs alone: it holds no weights of its own."""
        below = copy.copy(self)
        below.uses_adapter = False
        return below

    def backward(self, loss: Tensor, *, last: bool) -> None:
        """Accumulates the gradient of one micro-batch's share of the step's loss; `last` closes the step."""
        self.engine.set_gradient_accumulation_boundary(last)
        self.engine.backward(loss * self.world.size)

    def step(self, learning_rate: float) -> float:
        """One optimizer step on the accumulated gradient; returns its global norm before clipping."""
        for group in self.engine.optimizer.param_groups:
            group["lr"] = learning_rate
        self.engine.step()
        return float(self.engine.get_global_grad_norm())

    def optimizer_state(self) -> list[dict[str, Any]]:
        """This rank's share of what training adds to the weights: float32 masters, moments and step, by flat group."""
        return [{"master": master.data, **state} for master, state in self._states()]

    def load_optimizer_state(self, saved: Sequence[Mapping[str, Any]]) -> None:
        """Takes `optimizer_state` back; the weights themselves come with the model folder."""
        for (master, state), parts in zip(self._states(), saved, strict=True):
            for name, value in parts.items():
                if isinstance(value, int):  # the step of 8-bit moments
                    state[name] = value
                else:
                    own = master.data if name == "master" else state.setdefault(name, value.to(master.device))
                    own.copy_(value)  # in place: DeepSpeed holds views of them

    def reset(self, settings: PolicySettings) -> float:
        """Takes what is trained, float32 masters, moments and step back to the model that `settings` names, an adapter
        to its first weights. A collective.

        Returns the sum of |w| over those weights, on every rank. UserError where it cannot be loaded.
        """
        writes = self.world.is_main or not self.is_partitioned  # below ZeRO-3 each rank has a copy of its own
        with distributed.together("loading the base model"):
            base = []
            if writes:
                base = self.adapter.initial if self.adapter else [one.data for one in load_lm(settings).parameters()]
        for own, value in itertools.zip_longest(self.trained.values(), base):
            with deepspeed.zero.GatheredParameters([own], modifier_rank=0):
                if writes:
                    own.data.copy_(value)
        if self.is_trainable:
            self._forget_training()
        return distributed.broadcast(_sum_of_sizes(base))

    def _forget_training(self) -> None:
        """Makes the masters of the weights anew, and zeroes moments and step."""
        self.engine.optimizer.refresh_fp32_params()
        for _, state in self._states():
            for name, value in state.items():
                if isinstance(value, int):
                    state[name] = 0
                elif not name.startswith("qmap"):  # what the codes of 8 bits stand for
                    value.zero_()  # in place: after a `state.clear()` ZeRO-1 goes on with the old moments

    def checksums(self) -> dict[str, float]:
        """Sums of |w| in float64: of what is trained, whole, and of this rank's masters. A collective."""
        weights = 0.0
        for weight in self.trained.values():
            with deepspeed.zero.GatheredParameters([weight]):
                weights += _sum_of_sizes([weight])
        return {"weights": weights, "masters": _sum_of_sizes(self._masters())}

    def _states(self) -> list[tuple[Tensor, dict[str, Any]]]:
        return [(master, self.engine.optimizer.optimizer.state[master]) for master in self._masters()]

    def _masters(self) -> list[Tensor]:
        """The flat float32 weights that the inner optimizer steps on."""
        # Of ZeRO-3, of ZeRO-1 with bfloat16 weights, of ZeRO-1 with float32 weights.
        homes = ("fp32_partitioned_groups_flat", "fp32_groups_flat_partition", "single_partition_of_fp32_groups")
        return next(found for home in homes if (found := getattr(self.engine.optimizer, home, None)) is not None)

    def save(self, folder: Path, weights: Mapping[str, Tensor]) -> None:
        """Writes a folder of the model, or a peft one of its adapter. weights: `trained`, whole."""
        if self.adapter is None:
            self.lm.save_pretrained(folder, state_dict=weights)
        else:
            self.adapter.save(folder, weights)

    def mix_in(self, other: "Policy", share: float) -> None:
        """Moves these weights towards the other policy's: (1 - share) x own + share x other. A collective."""
        for own, theirs in zip(self.lm.parameters(), other.lm.parameters(), strict=True):
            with deepspeed.zero.GatheredParameters([theirs]), deepspeed.zero.GatheredParameters([own], modifier_rank=0):
                if self.world.is_main or not self.is_partitioned:
                    own.data.lerp_(theirs.data.to(own.dtype), share)


def _sum_of_sizes(tensors: Sequence[Tensor]) -> float:
    parts = (part for tensor in tensors for part in tensor.detach().flatten().split(1 << 24))  # each is copied
    return sum(float(part.double().abs().sum()) for part in parts)


def load_tokenizer(settings: PolicySettings) -> Any:
    """The policy's tokenizer, and at little cost the proof that there is a model: call it before anything heavy.

    UserError where the folder or name holds no causal language model.
    """
    refuse_no_model("policy.model", settings.model)
    try:
        config = AutoConfig.from_pretrained(settings.model, **_origin(settings))
        if type(config) not in MODEL_FOR_CAUSAL_LM_MAPPING:
            raise ValueError(f"its config is a {type(config).__name__}, which is no causal language model")
        tokenizer = AutoTokenizer.from_pretrained(settings.model, **_origin(settings))
    except Exception as error:  # damaged files end in whatever their words lead transformers to
        raise _no_model(settings, error) from error
    if settings.chat_template is not None:
        tokenizer.chat_template = read_template(settings.chat_template)
    return tokenizer


def _origin(settings: PolicySettings) -> dict[str, Any]:
    return {"revision": settings.model_revision or "main", "trust_remote_code": settings.trust_remote_code}


def load_lm(settings: PolicySettings) -> Any:
    """The causal language model of a folder or hub name, as transformers loads it. Raises UserError."""
    try:
        kind = {"dtype": getattr(torch, settings.dtype), "attn_implementation": settings.attn_implementation}
        lm = AutoModelForCausalLM.from_pretrained(settings.model, **kind, **four_bits(settings), **_origin(settings))
    except (OSError, ValueError, RecursionError, SafetensorError) as error:
        raise _no_model(settings, error) from error
    if is_deepspeed_zero3_enabled():
        restore_constants(lm)
    if settings.attn_implementation == PACKED:
        refuse_packing(lm)
    return lm


def _no_model(settings: PolicySettings, error: Exception) -> UserError:
    kind = "" if isinstance(error, OSError | ValueError) else f"{type(error).__name__}: "
    first, *others = str(error).strip().splitlines() or ["no reason given."]
    whole = " ".join(" ".join([first, *others]).split())[:300]
    reason = kind + (whole if first.rstrip().endswith(":") else first)
    what = "folder" if os.path.exists(settings.model) else "name (there is no such folder)"
    return UserError(
        f"policy.model: the {what} {settings.model!r} holds no causal language model that transformers can load: "
        f"{reason} Give a folder with config.json, tokenizer and safetensors (scripts/fetch_model.py makes the "
        "embedded one), or a name on the hub."
    )


def quiet_libraries() -> None:
    """Libraries speak up only for errors; their progress bars and deprecations are not a run's news."""
    warnings.filterwarnings("ignore", category=FutureWarning)
    transformers.utils.logging.disable_progress_bar()
    names = "DeepSpeed deepspeed vllm huggingface_hub torch._library.triton torch.utils.cpp_extension"
    for name in names.split():
        logging.getLogger(name).setLevel(logging.ERROR)

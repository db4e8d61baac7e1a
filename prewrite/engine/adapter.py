"""LoRA adapters: on the policy in training, merged into whole weights for vLLM, as peft folders. The home of peft.

The frozen weights are never written: what is merged is a new tensor each time, added in float32 and rounded once.
"""

import contextlib
import copy
import difflib
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from prewrite.config import LoraSettings, PolicySettings
from prewrite.config.policy import ALL_LINEAR
from prewrite.errors import UserError
from prewrite.model_folder import adapter_base, refuse_no_model

_NAME = "default"  # peft's name of an adapter that is alone
_SAVED = f".modules_to_save.{_NAME}."


class Adapter:
    """The one adapter of a language model, which it is put into. trained: by peft's own names."""

    def __init__(self, lm: Any, settings: LoraSettings, *, seed: int, weights: Path | None = None):
        """seed: of its first matrices. weights: a peft folder of the same shape, to go on from."""
        import peft

        tied = bool(lm.config.get_text_config().tie_word_embeddings)
        config = peft.LoraConfig(
            task_type="CAUSAL_LM",
            r=settings.r,
            lora_alpha=settings.alpha,
            lora_dropout=settings.dropout,
            target_modules=ALL_LINEAR if settings.target_modules == [ALL_LINEAR] else settings.target_modules,
            modules_to_save=settings.modules_to_save or None,
            ensure_weight_tying=tied and bool(settings.modules_to_save),
        )
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            # In the type of the weights: ZeRO-3 gathers a layer's weights together, and they must be of one type. The
            # masters that the optimizer steps on are float32 all the same.
            self._peft: Any = peft.get_peft_model(lm, config, autocast_adapter_dtype=False)
        # A backward through frozen layers needs something to reach for before the first adapter; ZeRO-3's hooks too.
        lm.enable_input_require_grads()
        self.has_dropout = settings.dropout > 0
        named = self._peft.named_parameters()
        self.trained: dict[str, nn.Parameter] = {name: one for name, one in named if one.requires_grad}
        self.initial: list[Tensor] = [parameter.detach().cpu().clone() for parameter in self.trained.values()]
        if weights is not None:
            peft.set_peft_model_state_dict(self._peft, peft.utils.load_peft_weights(str(weights), device="cpu"))

    @contextlib.contextmanager
    def off(self) -> Iterator[None]:
        """Within the block the model is the one below the adapter. For forwards without gradients."""
        self._peft.base_model.disable_adapter_layers()
        try:
            yield
        finally:
            self._peft.base_model.enable_adapter_layers()

    def save(self, folder: Path, weights: Mapping[str, Tensor]) -> None:
        """Writes a peft folder. weights: `trained`, whole."""
        import peft

        config = copy.copy(self._peft.peft_config[_NAME])
        config.inference_mode = True
        config.save_pretrained(str(folder))
        of_parameter = {id(self.trained[name]): weight for name, weight in weights.items()}
        parameters = self._peft.named_parameters(remove_duplicate=False)  # peft's files have tied ones twice
        every = {name: of_parameter[id(one)] for name, one in parameters if id(one) in of_parameter}
        named = peft.get_peft_model_state_dict(self._peft, every, save_embedding_layers=False)
        save_file({name: weight.clone() for name, weight in named.items()}, folder / "adapter_model.safetensors")


@dataclass(frozen=True)
class Whole:
    """A weight as a checkpoint of the whole model names it. value: to be called while `parts` are gathered."""

    name: str
    parts: list[nn.Parameter]
    value: Callable[[], Tensor]


def whole_weights(lm: nn.Module) -> list[Whole]:
    """Every weight of a model, tied ones once; those that have an adapter with it merged, those in 4 bits unpacked."""
    modules = dict(lm.named_modules())
    found = []
    for name, parameter in lm.named_parameters():
        if ".lora_" in name or ".original_module." in name:
            continue  # a part of another, or replaced by one that is trained whole
        plain = name.replace(".base_layer.", ".").replace(_SAVED, ".")
        layer = modules.get(name.removesuffix(".base_layer.weight"))
        found.append(_merged(plain, layer) if hasattr(layer, "lora_A") else alone(plain, parameter))
    return found


def alone(name: str, parameter: nn.Parameter) -> Whole:
    """A weight that is one parameter."""
    return Whole(name, [parameter], lambda: _unpacked(parameter))


def _merged(name: str, layer: Any) -> Whole:
    """base + alpha / r * B @ A, in float32, then in the type of the adapter, which is the model's."""
    base, a, b = layer.get_base_layer().weight, layer.lora_A[_NAME].weight, layer.lora_B[_NAME].weight

    def value() -> Tensor:
        scale = layer.scaling[_NAME]
        return torch.addmm(_unpacked(base).float(), b.data.float(), a.data.float(), alpha=scale).to(a.dtype)

    return Whole(name, [base, a, b], value)


def _unpacked(weight: Any) -> Tensor:
    if not hasattr(weight, "quant_state"):
        return weight.data
    from bitsandbytes.functional import dequantize_4bit  # pyright: ignore[reportMissingImports]  # optional

    return dequantize_4bit(weight.data, weight.quant_state)


def four_bits(settings: PolicySettings) -> dict[str, Any]:
    """What transformers loads a model with, to hold it in 4 bits; {} where it is not to."""
    if not settings.load_in_4bit:
        return {}
    device = torch.cuda.current_device() if torch.cuda.is_available() else "cpu"
    dtype = getattr(torch, settings.dtype)
    config = transformers.BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=dtype)
    return {"quantization_config": config, "device_map": {"": device}}


def refuse_adapter(settings: PolicySettings) -> None:
    """UserError for an adapter that the model has no place for. Reads the model's config alone, so a run asks early."""
    if settings.lora is None:
        return
    origin = {"revision": settings.model_revision or "main", "trust_remote_code": settings.trust_remote_code}
    config = transformers.AutoConfig.from_pretrained(settings.model, **origin)
    with torch.device("meta"):
        lm = transformers.AutoModelForCausalLM.from_config(config, trust_remote_code=settings.trust_remote_code)
    modules = {name: module for name, module in lm.named_modules() if name}
    head = next((name for name, module in modules.items() if module is lm.get_output_embeddings()), "")
    tied = head if lm.config.get_text_config().tie_word_embeddings else ""
    linear = {name for name, module in modules.items() if isinstance(module, nn.Linear) and name != tied}
    odd = next((name for name, module in modules.items() if isinstance(module, Conv1D)), None)
    if settings.lora.target_modules == [ALL_LINEAR] and odd:  # which peft takes for linear
        raise UserError(f"policy.lora: {odd} is a Conv1D, as GPT-2 has them; adapters go on linear modules alone here")
    targets = linear - {head}
    if settings.lora.target_modules != [ALL_LINEAR]:
        _refuse_unknown("target_modules", settings.lora.target_modules, modules, linear, "linear module", tied)
        targets = {name for name in linear if any(_stands_for(one, name) for one in settings.lora.target_modules)}
    sides = {name: min(modules[name].weight.shape) for name in sorted(targets)}
    if sides and settings.lora.r > (largest := max(sides.values())):
        widest = max(sides, key=sides.__getitem__)
        raise UserError(
            f"policy.lora.r: given {settings.lora.r}; no change of a target module has a rank above {largest}, the "
            f"smaller side of {widest}: lower it (8 to 64 is usual), or leave out policy.lora to train all weights"
        )
    own = {name for name, module in modules.items() if list(module.parameters()) and not list(module.children())}
    own -= {tied} | (linear - {head} if settings.load_in_4bit else set())
    kind = f"module with weights of its own{', not in 4 bits' if settings.load_in_4bit else ''}"
    _refuse_unknown("modules_to_save", settings.lora.modules_to_save, modules, own, kind, tied)
    for given in settings.lora.modules_to_save:  # which peft matches by the end of the text
        if other := next((name for name in modules if name.endswith(given) and not _stands_for(given, name)), None):
            full = next(name for name in own if _stands_for(given, name))
            raise UserError(f"policy.lora.modules_to_save: {given!r} is the end of {other} too: write {full}")


def _stands_for(given: str, name: str) -> bool:
    return name == given or name.endswith(f".{given}")


def _refuse_unknown(
    setting: str, given: Sequence[str], modules: Mapping[str, Any], fit: Set[str], kind: str, tied: str
) -> None:
    ends = sorted({name.rpartition(".")[2] for name in fit})
    for one in given:
        if any(_stands_for(one, name) for name in fit):
            continue
        where = f"policy.lora.{setting}: {one!r}"
        if tied and _stands_for(one, tied):
            way_out = "name the embedding in modules_to_save, and both are trained as one"
            raise UserError(f"{where} is tied to the embedding in this model: {way_out}")
        here = next((type(module).__name__ for name, module in modules.items() if _stands_for(one, name)), None)
        near = difflib.get_close_matches(one.rpartition(".")[2], ends, n=1)
        hint = f"; did you mean {near[0]}?" if near else "."
        said = f"is a {here}, no {kind}" if here else f"is no {kind} of this model"
        raise UserError(f"{where} {said}{hint} Those it has: {', '.join(ends)}")


@contextlib.contextmanager
def whole_model(setting: str, model: str, *, dtype: torch.dtype | None, trust_remote_code: bool) -> Iterator[str]:
    """The model itself, or, for an adapter's folder, one of the merged model that lasts as long as the block.

    setting: that names the model. dtype: of the merged weights; None = the base model's. Raises UserError.
    """
    if adapter_base(model) is None:
        yield model
        return
    with tempfile.TemporaryDirectory(prefix="prewrite-merged-") as folder:
        write_merged(setting, model, Path(folder), dtype=dtype, trust_remote_code=trust_remote_code)
        yield folder


def write_merged(setting: str, model: str, out: Path, *, dtype: torch.dtype | None, trust_remote_code: bool) -> None:
    """Writes the model of a peft folder, of any kind that peft merges, whole into a folder. See `whole_model`."""
    import peft  # some seconds, which only those wait who have an adapter

    base = adapter_base(model)
    assert base is not None
    refuse_no_model(f"{setting} {model!r} is an adapter, and its base model", base)
    try:
        config = peft.PeftConfig.from_pretrained(model)
        origin = {"revision": config.revision or "main", "trust_remote_code": trust_remote_code}
        own = transformers.AutoConfig.from_pretrained(base, **origin).dtype
        lm: Any = transformers.AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32, **origin)
        with warnings.catch_warnings(action="ignore", category=UserWarning):  # of weights that are told below
            lm = peft.PeftModel.from_pretrained(lm, model)
        held = {*peft.utils.load_peft_weights(model, device="cpu")}
        apart = held ^ {*peft.get_peft_model_state_dict(lm, save_embedding_layers=False)}
        # Such ones peft leaves out of the model.
        if homeless := sorted(name for name in apart if ".lora_A." in name or ".lora_B." in name):
            raise ValueError(f"it is of another model: {len(homeless)} weights are in one alone, as {homeless[0]}.")
        lm = lm.merge_and_unload()
        teller = model if Path(model, "tokenizer_config.json").is_file() else base
        tokenizer = transformers.AutoTokenizer.from_pretrained(teller, trust_remote_code=trust_remote_code)
    except (OSError, ValueError, TypeError, KeyError, RuntimeError, SafetensorError) as error:
        reason = " ".join(str(error).split())[:300] or type(error).__name__
        raise UserError(
            f"{setting}: {model!r}, an adapter, cannot be merged into its base model {base!r}: {reason} Its "
            "adapter_config.json names the base model (base_model_name_or_path): a hub name, or a folder as seen from "
            f"{Path.cwd()}"
        ) from error
    lm.to(dtype or own or torch.bfloat16).save_pretrained(out)
    tokenizer.save_pretrained(out)


def copy_adapter(folder: Path, out: Path) -> None:
    """Copies what peft and a tokenizer read, and nothing else that lies beside it."""
    names = ("adapter_*", "tokenizer*", "special_tokens_map.json", "chat_template*", "vocab*", "merges.txt", "*.model")
    for path in sorted({path for name in names for path in folder.glob(name)}):
        shutil.copyfile(path, out / path.name)

"""From a JSON or YAML file and `--set` overrides to a `Config`, or one message with every fault."""

import difflib
import hashlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar, get_args

from pydantic import ValidationError

from prewrite.config.base import Section
from prewrite.config.coming_over import instead_of, moved
from prewrite.config.run import Config, sections
from prewrite.config.stages import StageSettings
from prewrite.config.yaml_file import read_yaml
from prewrite.errors import UserError
from prewrite.secrets import shown
from prewrite.writing import HALVES, has_half_character, kind_of

S = TypeVar("S", bound=Section)


def load_config(path: str | Path, overrides: Sequence[str] = ()) -> Config:
    """Reads a config file (YAML where its name ends so, else JSON; UTF-8) and applies `section.key=value` overrides.

    Raises UserError with every fault in one message: where, what was given, the rule, the nearest known key.
    """
    return make_config(read_settings(path), overrides, f"config {path}")


def make_config(data: dict[str, Any], overrides: Sequence[str], where: str) -> Config:
    """The config of sections as a file holds them, with overrides applied. Raises UserError, as `load_config` does."""
    for override in overrides:
        _apply(data, override)
    if halves := list(_with_half_characters(data)):
        raise UserError(f"{where}: {', '.join(halves)}: half a character (a lone surrogate, or no UTF-8); take it out")
    config = validated(Config, data, where)
    stage_configs(config, where)  # which finds the faults of each
    return config


def read_settings(path: str | Path) -> dict[str, Any]:
    """A config file as it is. UserError where it is no JSON or YAML file of sections."""
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"config {path}: cannot be read ({error}); give a JSON or YAML file, see configs/") from error
    is_yaml = path.suffix.lower() in (".yaml", ".yml")
    try:
        data = read_yaml(text) if is_yaml else json.loads(text, object_pairs_hook=_no_repeats)
    except (ValueError, RecursionError) as error:
        what, fault = ("YAML", "") if is_yaml else ("JSON", _comma_too_many(text, error))
        raise UserError(f"config {path}: not {what} that can be read ({error}){fault}") from error
    if not isinstance(data, dict):
        rule, example = ("mapping", "policy: ...") if is_yaml else ("JSON object", '{"policy": {...}, ...}')
        raise UserError(
            f"config {path}: the file holds {kind_of(data)}; the rule is one {rule} of sections, as {example}: begin "
            "with a copy of a file in configs/"
        )
    return data


def stage_configs(config: Config, where: str = "config") -> list[Config]:
    """The config of each stage, as that of a run of one: with its share of steps and calls. Raises UserError."""
    entries = config.stages or [StageSettings()] * config.num_stages
    whole, budget = config.model_dump(exclude={"stages", "num_stages", "reset_model"}), config.budget
    found = []
    if 0 < (most := config.training.max_steps or 0) < len(entries):
        shared = f"training.max_steps is {most}, shared out among {len(entries)} stages"
        raise UserError(f"{where}: {shared}: give at least a step for each, or training.num_stage_steps")
    for number, entry in enumerate(entries):
        data = entry.over(whole)
        data["budget"] = data["budget"] | budget.shared_by(len(entries))
        training = data["training"]
        steps = training.get("num_stage_steps")
        if (most := training.get("max_steps")) is not None:
            steps = most // len(entries) + (number < most % len(entries))
        place = f"{where}: stages.{number}" if config.stages else where
        validated(Config, data, place)  # so that a fault has the name under which the setting was given
        data["training"] = training | {"max_steps": steps, "num_stage_steps": None}
        found.append(validated(Config, data, place))
    return found


def validated(model: type[S], data: dict[str, Any], where: str) -> S:
    """The settings of one section, or of all. UserError with every fault in one message."""
    try:
        return model.model_validate(data)
    except ValidationError as error:
        faults = "\n".join(f"  - {_describe(fault)}" for fault in error.errors(include_url=False))
        count = error.error_count()
        raise UserError(f"{where}: {count} fault{'s' if count > 1 else ''}\n{faults}") from None


def check_world(config: Config, world_size: int, where: str = "config") -> None:
    """The rules that need more than the file: whole groups in a step and whole engines for this number of ranks, and
    that a loss of the user's own is there. Raises UserError, which begins with `where`."""
    if config.method == "sft":
        return
    config.loss.own_loss()
    rollouts, group = config.rollouts_per_generation(world_size), config.rollout.num_generations
    if rollouts % group:
        raise UserError(
            f"{where}: {rollouts} rollouts a generation (per_device_train_batch_size "
            f"{config.training.per_device_train_batch_size} x steps_per_generation, or gradient_accumulation_steps, "
            f"{rollouts // config.training.per_device_train_batch_size // world_size} x {world_size} ranks) are no "
            f"whole number of groups of num_generations {group}; change one of the three so that {group} divides them"
        )
    if world_size % config.rollout.vllm_tensor_parallel_size:
        given = f"rollout.vllm_tensor_parallel_size {config.rollout.vllm_tensor_parallel_size}"
        raise UserError(f"{where}: {given} does not divide the {world_size} ranks: every engine takes so many of them")
    engines = world_size // config.rollout.vllm_tensor_parallel_size
    if config.rollout.partial_rollouts and rollouts // group < engines:
        raise UserError(
            f"{where}: rollout.partial_rollouts gives every engine whole groups, and a batch has {rollouts // group} "
            f"for {engines} engines; raise gradient_accumulation_steps, lower num_generations, or leave it out"
        )


def config_hash(config: Config) -> str:
    """A short fingerprint of the resolved config, the same for equal settings."""
    return hashlib.sha256(config.model_dump_json().encode()).hexdigest()[:12]


def dump_config(config: Config) -> str:
    """The resolved config as JSON text. It holds no secret: keys are only named by environment variable."""
    return json.dumps(config.model_dump(), indent=2, ensure_ascii=False) + "\n"


def _with_half_characters(value: object, place: str = "") -> Iterator[str]:
    """The places of texts that no file could be written with, nor tokenizer asked."""
    if isinstance(value, str):
        if has_half_character(value):
            yield place
    elif isinstance(value, dict | list):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            shown_key = str(key).encode("utf-8", HALVES).decode()
            if has_half_character(str(key)):
                yield f"the key {shown_key}"
            yield from _with_half_characters(inner, f"{place}.{shown_key}".lstrip("."))


def _comma_too_many(text: str, error: Exception) -> str:
    """The end of a message about a comma before a closing bracket, JSON's commonest fault; "" where there is none."""
    if not isinstance(error, json.JSONDecodeError):
        return ""
    before = text[: error.pos + (text[error.pos : error.pos + 1] == ",")].rstrip()
    closes = text[error.pos :].lstrip(", \t\r\n")[:1] in ("}", "]")
    if not (before.endswith(",") and closes):
        return ""
    line = before.count("\n") + 1
    return f": take out the comma at the end of line {line}, which stands before a closing bracket"


def _no_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    repeated = {key for key, _ in pairs if sum(key == other for other, _ in pairs) > 1}
    if repeated:
        raise ValueError(f"key {sorted(repeated)[0]!r} is given twice")
    return dict(pairs)


def _apply(data: dict[str, Any], override: str) -> None:
    key, equals, raw = override.partition("=")
    key = key.strip()
    if not equals or not key:
        given = f"{key}: it gives no value" if key in _all_keys() else f"was given {shown('key', override)}"
        raise UserError(f"--set {given}; the rule is key=value or section.key=value")
    try:
        value = json.loads(raw)
    except ValueError:
        value = raw  # a bare word is text
    except RecursionError as error:
        raise UserError(f"--set {key}: the value is no JSON that can be read ({error})") from error
    homes = [key] if "." in key else _homes(key)
    if not homes:
        raise UserError(f"--set {key}: unknown key{_place_of(key)}")
    if len(homes) > 1:
        raise UserError(f"--set {key} stands in several sections; say which: {', '.join(homes)}")
    section, _, name = homes[0].rpartition(".")
    target = data
    for part in filter(None, section.split(".")):
        if target.get(part) is None:
            target[part] = {}
        target = target[part]
        if not isinstance(target, dict):
            raise UserError(f"--set {key}: {section} is no section")
    target[name] = value


def _all_keys() -> list[str]:
    return [field for _, model in sections() for field in model.model_fields]


def _homes(key: str) -> list[str]:
    return [f"{where}.{key}" if where else key for where, model in sections() if key in model.model_fields]


def _place_of(key: str, value: object = None) -> str:
    """The end of a message about a key that is not known where it stands: its place, and what its value is there."""
    if row := moved(key):
        place, said = row.new, f"; {row.told()}"
    elif (homes := _homes(key)) == [key]:
        place, said = key, "; it stands at the top of the config, outside the sections and `stages`"
    elif homes:
        place, which = homes[0], "the section" if len(homes) == 1 else "the sections"
        where = ", ".join(home.partition(".")[0] for home in homes)
        said = f"; it stands in {which} {where}: write {' or '.join(homes)}"
    else:
        near = difflib.get_close_matches(key, _all_keys(), n=1)
        return f"; did you mean {_homes(near[0])[0]}?" if near else ""
    instead = instead_of(place, value)
    return f"{said}; in place of {shown(key, value)} take {instead}" if instead else said


def _taken_beside(setting: str, value: object) -> str:
    """A hint at the setting of the same section that takes the value; "" where none does, or several."""
    section, _, key = setting.rpartition(".")
    model = dict(sections()).get(section)
    fields = model.model_fields.items() if model else ()
    takers = [name for name, info in fields if name != key and value in get_args(info.annotation)]
    return f" ({value!r} is a value of {section}{section and '.'}{takers[0]})" if len(takers) == 1 else ""


def _describe(fault: Any) -> str:
    where = ".".join(str(part) for part in fault["loc"]) or "config"
    if fault["type"] == "extra_forbidden":
        return f"{where}: unknown key{_place_of(str(fault['loc'][-1]), fault['input'])}"
    if fault["type"] == "missing":
        without = " (not with objective solve or method sft)" if where == "task_model" else ""
        return f"{where}: missing; the rule: it must be given{without}"
    message = fault["msg"].removeprefix("Value error, ")
    given = fault["input"]
    if instead := instead_of(where, given):
        return f"{where}: {shown(where, given)} is not taken; write {instead}"
    if fault["type"] == "value_error":
        return f"{where}: {message}"
    hint = ""
    if isinstance(given, str) and fault["type"].startswith(("int", "float", "bool")):
        hint = " (write numbers and true/false without quotes)"
    elif isinstance(given, bool | int | float) and fault["type"].startswith("string"):
        hint = " (write it in quotes)"
    elif isinstance(given, str) and fault["type"].startswith("list"):
        hint = """ (a list, as in --set 'data.tasks=["sst2"]')"""
        if given.startswith("[") and '"' not in given:
            hint = " (its quotes were lost on the way: docs/gpus.md says which launchers keep them)"
    elif fault["type"] == "literal_error":
        hint = _taken_beside(where, given)
    return f"{where}: given {shown(where, given)}; the rule: {message}{hint}"

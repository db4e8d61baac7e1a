"""Who answers an evaluation: the task model of the command line, of a config, or of the run that the prompts are of."""

import argparse
import copy
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prewrite.config import Config, TaskModelSettings
from prewrite.config.loading import make_config, read_settings
from prewrite.engine.forced_choice import Dialect
from prewrite.errors import UserError
from prewrite.model_folder import adapter_base
from prewrite.tasks.base import Task
from prewrite.tasks.configured import ConfiguredTasks

# Of a model that is scored by itself: an answer may be as long as the model writes, as thinking ones need it, and a
# server started here has the machine for itself.
_ANSWERS_OF_ANY_LENGTH = {"request_fields": {"max_tokens": None}, "timeout": 3600.0, "gpu_memory_utilization": 0.85}
_LONGEST = 36_864  # of query and answer: 32,768 tokens of thinking is what such models are measured with
# Without a config only the task model, and what --set names, is read; the rest has to be there.
UNREAD = {"policy": {"model": "none"}, "data": {"tasks": ["sentiment"]}, "training": {"max_steps": 1}}
_SAMPLED = {"temperature": 0.6, "top_p": 0.95}  # as the cards of thinking models (DeepSeek-R1, Qwen3) ask for


@dataclass(frozen=True)
class Setup:
    """origin: where the task model's settings are from."""

    tasks: ConfiguredTasks
    config: Config
    origin: str

    @property
    def task_model(self) -> TaskModelSettings:
        return self.config.task_model

    def canonical(self, name: str) -> str:
        """The task's one name; one that is no task here (a run's own, its config is not at hand) stands for itself."""
        try:
            return self.tasks.get(name).name
        except UserError:
            return name

    def is_forced(self, task: Task) -> bool:
        """Whether the task's answers are forced to be labels."""
        return task.kind == "classification" and self.task_model.scoring == "forced_choice"

    def how(self, task: Task, dialect: Dialect | None) -> str:
        """How the task's answers were asked for, in words. dialect: in which a choice was forced."""
        if not self.is_forced(task):
            return "free_text"
        return f"forced_choice ({dialect})" if dialect else "free_text (the endpoint cannot force a choice)"

    def facts(self, task: Task) -> dict[str, str]:
        """What a report says of it, by name."""
        model = self.task_model.for_task(task.name)
        where = ", ".join(model.base_urls) or "a server started here"
        limit = model.max_tokens if model.request_fields.get("max_tokens", "max_tokens") else "no limit of ours"
        how = f"temperature {model.temperature:g}, top_p {model.top_p:g}, max_tokens {limit}"
        template = f", {model.chat_template_kwargs}" if model.chat_template_kwargs else ""
        return {"task model": f"{model.model} ({where}), from {self.origin}", "sampling": f"{how}{template}"}


def set_up(arguments: argparse.Namespace, files: Sequence[Path]) -> Setup:
    """Raises UserError for a model that is not named, and for every fault of its settings. files: of the prompts."""
    places = [*files[:1], *([Path(arguments.rewriter).absolute().parent] if arguments.rewriter else [])]
    beside = next((path for place in places if (path := place.with_name("config.json")).is_file()), None)
    config_path = arguments.config or beside
    near = f"; no config.json that has one lies beside {files[0]} either" if files else ""
    no_model = UserError(f"no task model: give --model (and --base-url where it is served), or --config{near}")
    given = given_settings(arguments, config_path)
    if arguments.model is None and config_path is None:
        raise no_model
    if isinstance(given["task_model"], dict):  # all else is told by made_config
        given["task_model"] |= _of_the_command_line(arguments, is_alone=not files, has_config=config_path is not None)
    config = made_config(given, arguments, config_path)
    if not config.task_model.model:  # that of a run which solves problems itself
        raise no_model
    model = config.task_model.model_copy(update={"label_logprobs": False})  # training's alone
    config = config.model_copy(update={"task_model": model})
    origin = "the command line" if arguments.model is not None else str(config_path)
    return Setup(ConfiguredTasks(config if config_path else None), config, origin)


def given_settings(arguments: argparse.Namespace, path: Path | None) -> dict[str, Any]:
    """The settings of a config file, without one those that have to be there, with the model of the command line."""
    if arguments.model is None and (arguments.base_url or arguments.api_key_env):
        raise UserError("--base-url and --api-key-env say where a model is served; say which one too, with --model")
    given = read_settings(path) if path else copy.deepcopy(UNREAD)
    task_model = given.setdefault("task_model", {})
    if arguments.model is not None and isinstance(task_model, dict):
        task_model |= {name: getattr(arguments, name) for name in ("model", "base_url", "api_key_env")}
    return given


def made_config(given: dict[str, Any], arguments: argparse.Namespace, path: Path | None) -> Config:
    """The config of these settings, with --set. Raises UserError."""
    return make_config(given, arguments.overrides, f"config {path}" if path else "the command line")


def _of_the_command_line(arguments: argparse.Namespace, *, is_alone: bool, has_config: bool) -> dict[str, object]:
    """What the command line says of the task model beside its name. is_alone: it is scored by itself."""
    given: dict[str, object] = {}
    if not has_config and is_alone:
        given |= _ANSWERS_OF_ANY_LENGTH | {"max_model_len": _model_len(arguments)}
        if any(override.partition("=")[0].rpartition(".")[2] == "max_tokens" for override in arguments.overrides):
            del given["request_fields"]
    if not has_config and (arguments.samples or 1) > 1:
        given |= _SAMPLED
    if arguments.samples is not None:
        given["samples_per_query"] = arguments.samples
    if arguments.scoring is not None:
        given["scoring"] = arguments.scoring
    return given


def _model_len(arguments: argparse.Namespace) -> int | None:
    """What the server started here has to hold: not the whole of a very long context, whose cache may not fit."""
    try:
        folder = adapter_base(arguments.model) or arguments.model
        own = json.loads(Path(folder, "config.json").read_text(encoding="utf-8"))["max_position_embeddings"]
    except (OSError, ValueError, RecursionError, LookupError, TypeError):
        return None  # no folder, or one that the server will speak of
    return _LONGEST if isinstance(own, int) and own > _LONGEST else None

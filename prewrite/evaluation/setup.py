"""Who answers an evaluation: the task model of the command line, of a config, or of the run that the prompts are of."""

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from prewrite.asking.questions import Scoring
from prewrite.config import TaskModelSettings
from prewrite.config.loading import load_config, validated
from prewrite.errors import UserError
from prewrite.tasks.base import Task
from prewrite.tasks.own import task_from_settings

# Of a model that is scored by itself: an answer may be as long as the model writes, as thinking ones need it, and a
# server started here has the machine for itself.
_ANSWERS_OF_ANY_LENGTH = {"request_fields": {"max_tokens": None}, "timeout": 3600.0, "gpu_memory_utilization": 0.85}
_LONGEST = 36_864  # of query and answer: 32,768 tokens of thinking is what such models are measured with
_SAMPLED = {"temperature": 0.6, "top_p": 0.95}  # as the cards of thinking models (DeepSeek-R1, Qwen3) ask for


@dataclass(frozen=True)
class Setup:
    """samples: answers to each example. origin: where the task model's settings are from."""

    own_tasks: list[Task]
    task_model: TaskModelSettings
    samples: int
    origin: str
    local_dir: Path | None

    def is_forced(self, task: Task) -> bool:
        """Whether the task's answers are forced to be labels."""
        return self.scoring(task) == "forced_choice"

    def scoring(self, task: Task) -> Scoring:
        """How the task's answers are asked for."""
        return self.task_model.scoring if task.kind == "classification" else "free_text"

    def facts(self) -> dict[str, str]:
        """What a report says of it, by name."""
        model = self.task_model
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
    config = load_config(config_path) if config_path else None
    if arguments.model is None and (arguments.base_url or arguments.api_key_env):
        raise UserError("--base-url and --api-key-env say where a model is served; say which one too, with --model")
    if arguments.model is None and config is None:
        near = f"; no config.json lies beside {files[0]} either" if files else ""
        raise UserError(f"no task model: give --model (and --base-url where it is served), or --config{near}")
    given: dict[str, object] = config.task_model.model_dump() if config else {}
    if arguments.model is not None:
        given |= {"model": arguments.model, "base_url": arguments.base_url, "api_key_env": arguments.api_key_env}
        if config is None and not files:
            given |= _ANSWERS_OF_ANY_LENGTH | {"max_model_len": _model_len(arguments)}
        if config is None and arguments.samples > 1:
            given |= _SAMPLED
    if arguments.scoring is not None:
        given["scoring"] = arguments.scoring
    task_model = validated(TaskModelSettings, given, "the task model of the command line")
    if arguments.samples > 1 and not task_model.temperature:
        raise UserError(
            f"--samples {arguments.samples} at temperature 0 asks for the same answer each time: set "
            "task_model.temperature in the config, as 0.6"
        )
    return Setup(
        own_tasks=[task_from_settings(**task.model_dump()) for task in config.custom_tasks] if config else [],
        task_model=task_model,
        samples=arguments.samples,
        origin="the command line" if arguments.model is not None else str(config_path),
        local_dir=Path(config.data.local_dir) if config and config.data.local_dir else None,
    )


def _model_len(arguments: argparse.Namespace) -> int | None:
    """What the server started here has to hold: not the whole of a very long context, whose cache may not fit."""
    try:
        own = json.loads(Path(arguments.model, "config.json").read_text(encoding="utf-8"))["max_position_embeddings"]
    except (OSError, ValueError, RecursionError, LookupError, TypeError):
        return None  # no folder, or one that the server will speak of
    return _LONGEST if isinstance(own, int) and own > _LONGEST else None

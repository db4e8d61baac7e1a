"""What may change between the starts of one run: all that decides where and how fast it works, and how long."""

from collections.abc import Mapping
from typing import Any

from prewrite.config.run import Config
from prewrite.errors import UserError

# By section, "" the top level. Whatever is not here decides what is sampled, asked, learned, or kept for the test.
MAY_CHANGE: Mapping[str, set[str]] = {
    "": {"run_name", "output_dir"},
    "policy": {"gradient_checkpointing", "torch_compile"},
    "rollout": {"gpu_memory_utilization", "kv_cache_gib", "enforce_eager", "sleep_level"},
    "task_model": {
        *(
            "base_url",
            "api_key_env",
            "vllm_fields",
            "concurrency",
            "timeout",
            "max_retries",
            "max_failure_share",
            "log_answers_mib",
        ),
        *("gpus", "gpu_memory_utilization", "kv_cache_gib", "server_args", "startup_timeout"),
    },
    "training": {
        *("max_steps", "num_stage_steps", "num_train_epochs", "save_steps", "save_total_limit", "logging_steps"),
        *("ddp_timeout", "max_sampler_gap", "logprob_chunk_tokens", "max_tokens_per_micro_batch"),
        *("early_stopping_patience", "early_stopping_threshold", "callbacks", "num_completions_to_print"),
    },
    "selection": {"eval_steps", "num_sampled", "race_share", "metric"},
    "tracking": {"report_to", "project", "group", "rollout_rows"},
    "budget": {
        *("max_task_calls", "max_task_tokens", "max_cost"),
        *("task_input_price", "task_output_price", "policy_input_price", "policy_output_price"),
    },
    "evaluation": {"benchmarks"},
}


def refuse_changes(earlier: Config, config: Config, where: str) -> None:
    """UserError with every setting that differs and is not in MAY_CHANGE."""
    lines = []
    before, now = _flat(earlier.model_dump()), _flat(config.model_dump())
    for (section, key), value in now.items():
        if before[section, key] != value and key not in MAY_CHANGE.get(section, ()):
            lines.append(f"  - {f'{section}.{key}'.lstrip('.')}: {before[section, key]!r} there, {value!r} now")
    if lines:
        raise UserError(
            f"{where}: --resume goes on with the settings of the run; these cannot change in its middle:\n"
            + "\n".join(lines)
            + "\nPut them back, or start another run (--set run_name=...). What may change: docs/resume.md"
        )


def _flat(settings: Mapping[str, Any]) -> dict[tuple[str, str], Any]:
    """By (section, key)."""
    flat = {}
    for name, value in settings.items():
        for key, setting in value.items() if isinstance(value, dict) else [(name, value)]:
            flat[name if isinstance(value, dict) else "", key] = setting
    return flat

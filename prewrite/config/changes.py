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
        "base_url", "api_key_env", "vllm_fields", "concurrency", "timeout", "max_retries", "max_failure_share",
        "log_answers_mib", "gpus", "gpu_memory_utilization", "kv_cache_gib", "server_args", "startup_timeout",
    },
    "training": {
        "max_steps", "num_stage_steps", "num_train_epochs", "save_steps", "save_total_limit", "logging_steps",
        "ddp_timeout", "max_sampler_gap", "logprob_chunk_tokens", "max_tokens_per_micro_batch", "callbacks",
        "early_stopping_patience", "early_stopping_threshold", "num_completions_to_print",
    },
    "selection": {"eval_steps", "num_sampled", "race_share", "metric"},
    "tracking": {"report_to", "project", "group", "rollout_rows"},
    "budget": {
        "max_task_calls", "max_task_tokens", "max_cost", "task_input_price", "task_output_price", "policy_input_price",
        "policy_output_price",
    },
    "evaluation": {"benchmarks"},
}  # fmt: skip


def refuse_changes(earlier: Config, config: Config, where: str) -> None:
    """UserError with every setting that differs and is not in MAY_CHANGE."""
    lines = []
    before, now = flat_settings(earlier.model_dump()), flat_settings(config.model_dump())
    for name, value in now.items():
        section, _, key = name.rpartition(".")
        if before[name] != value and key not in MAY_CHANGE.get(section, ()):
            lines.append(f"  - {name}: {before[name]!r} there, {value!r} now")
    if lines:
        raise UserError(
            f"{where}: --resume goes on with the settings of the run; these cannot change in its middle:\n"
            + "\n".join(lines)
            + "\nPut them back, or start another run (--set run_name=...). What may change: docs/resume.md"
        )


def flat_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """A dumped config as section.key: value; of the top level as key: value."""
    flat: dict[str, Any] = {}
    for section, part in config.items():
        flat |= (
            {f"{section}.{key}": value for key, value in part.items()} if isinstance(part, dict) else {section: part}
        )
    return flat

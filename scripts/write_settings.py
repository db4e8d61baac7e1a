"""Writes the tables of docs/settings.md and docs/coming_over.md, from the code."""

import json
from pathlib import Path

from pydantic import BaseModel

from prewrite.config.coming_over import MOVED, OLD_VALUES
from prewrite.config.run import Config, sections

START, END = "<!-- settings -->\n", "<!-- /settings -->"
ROOT = Path(__file__).parent.parent

SAME = (
    "output_dir", "run_name", "seed", "meta_instruction", "num_generations", "max_prompt_length",
    "max_completion_length", "vllm_tensor_parallel_size", "per_device_train_batch_size",
    "gradient_accumulation_steps", "steps_per_generation", "num_iterations", "learning_rate", "lr_scheduler_type",
    "warmup_steps", "weight_decay", "adam_beta1", "adam_beta2", "max_grad_norm", "max_steps", "num_train_epochs",
    "num_stage_steps", "optim", "save_steps", "save_total_limit", "callbacks",
    "logging_steps", "num_completions_to_print", "ddp_timeout", "eval_steps", "dtype",
    "attn_implementation",
    "gradient_checkpointing", "torch_compile", "loss_type", "scale_rewards", "multi_objective_aggregation", "epsilon",
    "epsilon_high", "delta", "sapo_temperature_pos", "sapo_temperature_neg", "importance_sampling_level", "beta",
    "sync_ref_model", "ref_model_mixup_alpha", "ref_model_sync_steps", "mask_truncated_completions",
    "top_entropy_quantile", "reward_funcs", "reward_weights", "report_to",
    "load_in_4bit", "model_revision", "trust_remote_code", "chat_template", "max_train_rows", "max_length",
)  # fmt: skip
"""Names of theirs that are the same here, each in one section."""

DEFAULTS = (
    ("loss.epsilon_high", "that of `epsilon`, 0.2"),
    ("loss.sampler_correction", "sequence_mask"),
    ("loss.sampler_bounds", "[0, 3.0]"),
    ("training.lr_scheduler_type", "linear"),
    ("training.adam_beta2", "0.999"),
    ("training.logging_steps", "10"),
    ("training.save_steps", "500"),
    ("rollout.max_prompt_length", "512; newer versions have no limit"),
    ("policy.lora.dropout", "0.05; peft's own is 0"),
    ("policy.gradient_checkpointing", "true"),
    ("rollout.gpu_memory_utilization", "0.3"),
    ("seed", "42"),
)
"""Settings whose default is another one in TRL, and TRL's."""


def config_table() -> str:
    """The table of every setting, as Markdown, from the docstrings in `prewrite/config`."""
    lines = ["| key | default | meaning |", "| --- | --- | --- |"]
    models = [*sections(), *((f"{name}[]", _item_model(name)) for name in ("custom_tasks", "stages"))]
    for section, model in models:
        title = " ".join((model.__doc__ or "").split())
        lines.append(f"| **{section or 'top level'}** | | {title} |")
        for name, info in model.model_fields.items():
            if info.description is None:
                continue
            default = "required" if info.is_required() else f"`{json.dumps(info.default, ensure_ascii=False)}`"
            if name == "meta_instruction":
                default = "see `prewrite/config/rollout.py`"
            meaning = " ".join(info.description.split()).replace("|", "\\|")
            lines.append(f"| `{name}` | {default} | {meaning} |")
    return "\n".join(lines) + "\n"


def _item_model(field: str) -> type[BaseModel]:
    return Config.model_fields[field].annotation.__args__[0]  # type: ignore[union-attr]  # list[Model]


def coming_over_tables() -> str:
    """What became of the settings of TRL, open-r1 and the first PRewrite, as Markdown, from the table in the code."""
    fields = {f"{where}.{name}": info for where, model in sections() for name, info in model.model_fields.items()}
    fields |= {name: info for name, info in Config.model_fields.items()}
    lines = ["| their setting | here | |", "| --- | --- | --- |"]
    for row in MOVED:
        lines.append(f"| {_code(*row.old)} | {_code(row.new) if row.new else 'none'} | {row.note} |")
    lines += ["", "Of the same name:", "", "| section | settings |", "| --- | --- |"]
    for section, model in sections():
        if same := [name for name in SAME if name in model.model_fields]:
            lines.append(f"| {_code(section) if section else 'top level'} | {_code(*same)} |")
    lines += ["", "Values:", "", "| setting | their value | here |", "| --- | --- | --- |"]
    lines += [f"| {_code(row.setting)} | {_code(json.dumps(row.value))} | {row.instead} |" for row in OLD_VALUES]
    lines += ["", "Defaults that are others than TRL's:", "", "| setting | here | TRL |", "| --- | --- | --- |"]
    lines += [f"| {_code(key)} | {_code(json.dumps(fields[key].default))} | {theirs} |" for key, theirs in DEFAULTS]
    return "\n".join(lines) + "\n"


def _code(*names: str) -> str:
    return ", ".join(f"`{name}`" for name in names)


def with_table(page: str, table: str) -> str:
    """The page with a fresh table between its two marks."""
    head, rest = page.split(START)
    return head + START + table + END + rest.split(END)[1]


if __name__ == "__main__":
    tables = {"settings": config_table(), "coming_over": coming_over_tables()}
    for name, table in tables.items():
        path = ROOT / "docs" / f"{name}.md"
        path.write_text(with_table(path.read_text(encoding="utf-8"), table), encoding="utf-8")

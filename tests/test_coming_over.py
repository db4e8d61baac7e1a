"""Configs of TRL, open-r1 and the first PRewrite: every key gets its new place, and what the table says is true."""

import re
from pathlib import Path

import pytest

from prewrite.config import Config
from prewrite.config.coming_over import MOVED, OLD_VALUES
from prewrite.config.loading import load_config, validated
from prewrite.config.run import sections
from prewrite.errors import UserError
from scripts.write_settings import DEFAULTS, SAME

# By hand, with the keys that their users have.
FIRST_PREWRITE = """\
model_name_or_path: /models/Qwen3-14B
dataset_name: /data/extended_dataset
dataset_config: default
learning_rate: 1e-6
max_prompt_length: 2048
use_vllm: true
reward_funcs:
  - accuracy_math_reward
generate_model_name_or_path: /models/Qwen3-32B
generate_model_ip: 0.0.0.0
generate_model_port: 33337
test_size: 16
generate_dataset_seed: 42
num_generations: 8
temperature: 1.0
per_device_train_batch_size: 4
eval_strategy: "no"
report_to: [tensorboard]
num_stage_steps: 80
run_name: first
"""
OPEN_R1 = """\
torch_dtype: float16
attn_implementation: flash_attention_2
bf16: true
gradient_checkpointing_kwargs: {use_reentrant: false}
lr_scheduler_type: cosine_with_min_lr
lr_scheduler_kwargs: {min_lr_rate: 0.1}
warmup_ratio: 0.1
max_steps: -1
push_to_hub: true
save_total_limit: 1
vllm_gpu_memory_utilization: 0.7
model: some/model
"""
MINIMAL = {
    "policy": {"model": "m"},
    "data": {"tasks": ["sst2"]},
    "task_model": {"model": "m"},
    "training": {"max_steps": 1},
}


def faults(tmp_path, text: str) -> dict[str, str]:
    """What is said of each key."""
    path = tmp_path / "theirs.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UserError) as caught:
        load_config(path)
    said = re.findall(r"^  - ([\w.]+): (.*)$", str(caught.value), re.MULTILINE)
    assert len(said) == len(str(caught.value).splitlines()) - 1
    return dict(said)


def test_every_key_of_the_first_prewrite_is_told_its_new_place(tmp_path):
    told = faults(tmp_path, FIRST_PREWRITE)
    places = {
        "model_name_or_path": "policy.model",
        "dataset_name": "data.instructions_file",
        "learning_rate": "it stands in the section training: write training.learning_rate",
        "max_prompt_length": "the section rollout: write rollout.max_prompt_length",
        "reward_funcs": "write reward.reward_funcs",
        "generate_model_name_or_path": "task_model.model",
        "generate_model_port": "task_model.base_url: as http://ip:port/v1",
        "test_size": "reward.examples_per_rewrite",
        "generate_dataset_seed": "here it is seed",
        "num_generations": "write rollout.num_generations",
        "temperature": "here it is rollout.temperature",
        "per_device_train_batch_size": "write training.per_device_train_batch_size",
        "eval_strategy": "selection.eval_steps",
        "use_vllm": "leave it out",
        "report_to": "write tracking.report_to",
        "num_stage_steps": "write training.num_stage_steps",
    }
    for key, place in places.items():
        assert place in told[key], key
    assert "run_name" not in told  # theirs is ours


def test_values_are_told_with_what_is_equivalent(tmp_path):
    told = faults(tmp_path, OPEN_R1)
    assert 'policy.dtype; in place of "float16" take bfloat16' in told["torch_dtype"]
    assert 'policy.attn_implementation; in place of "flash_attention_2" take packed' in told["attn_implementation"]
    assert "take cosine, with training.min_lr_rate" in told["lr_scheduler_type"]
    assert "training.min_lr_rate" in told["lr_scheduler_kwargs"]
    assert "training.warmup_steps: the ratio times max_steps" in told["warmup_ratio"]
    assert "num_train_epochs" in told["max_steps"]
    assert "rollout.gpu_memory_utilization" in told["vllm_gpu_memory_utilization"]
    assert "policy.model or task_model.model" in told["model"]


@pytest.mark.parametrize("row", OLD_VALUES, ids=lambda row: f"{row.setting}={row.value}")
def test_a_value_of_theirs_is_refused_in_its_place_with_the_equivalent(row):
    section, _, key = row.setting.partition(".")
    data = {name: dict(value) for name, value in MINIMAL.items()}
    data.setdefault(section, {})[key] = row.value
    with pytest.raises(UserError) as caught:
        validated(Config, data, "theirs")
    assert f"{row.setting}: " in str(caught.value)
    assert row.instead in str(caught.value)


def test_set_names_the_new_place_too(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text("seed: 1\n")
    with pytest.raises(UserError, match=r"--set warmup_ratio: unknown key; here it is training\.warmup_steps"):
        load_config(path, ["warmup_ratio=0.1"])


def test_the_table_names_settings_that_exist_and_no_key_twice():
    settings = {f"{where}.{name}" if where else name for where, model in sections() for name in model.model_fields}
    assert {row.new for row in MOVED if row.new} <= settings
    assert all(row.new or row.note for row in MOVED)
    old = [key for row in MOVED for key in row.old]
    assert len(old) == len(set(old))
    assert not set(old) & set(SAME)
    for name in SAME:
        assert len([name for _, model in sections() if name in model.model_fields]) == 1, name
    assert {key for key, _ in DEFAULTS} <= settings
    named = {
        word
        for row in MOVED
        for word in re.findall(r"\b(?:policy|data|task_model|rollout|reward|loss|training|selection)\.\w+", row.note)
    }
    assert named <= settings


def test_the_config_on_the_page_is_read(tmp_path):
    page = (Path(__file__).parent.parent / "docs" / "coming_over.md").read_text(encoding="utf-8")
    block = re.search(r"^    policy:\n(?:    .*\n)+", page, re.MULTILINE)
    assert block is not None
    path = tmp_path / "page.yaml"
    path.write_text(re.sub("^    ", "", block[0], flags=re.MULTILINE), encoding="utf-8")
    config = load_config(path)
    assert (config.training.learning_rate, config.training.min_lr_rate) == (1e-6, 0.1)
    assert config.rollout.chat_template_kwargs == {"enable_thinking": False}


def test_the_solving_config_on_the_page_is_read(tmp_path):
    page = (Path(__file__).parent.parent / "docs" / "coming_over.md").read_text(encoding="utf-8")
    block = re.search(r"^    objective: solve.*\n(?:    .*\n)+", page, re.MULTILINE)
    assert block is not None
    path = tmp_path / "page.yaml"
    path.write_text(re.sub("^    ", "", block[0], flags=re.MULTILINE), encoding="utf-8")
    config = load_config(path)
    assert config.objective == "solve"
    assert config.policy.lora is not None


def test_keys_whose_nearest_name_would_mislead_are_told_what_they_are(tmp_path):
    keys = ["adam_epsilon", "random_state", "max_lora_rank", "metric_for_best_model", "tools", "eval_dataset", "tags"]
    told = faults(tmp_path, "".join(f"{key}: 1\n" for key in keys))
    assert all("did you mean" not in told[key] for key in keys)
    assert "here it is seed" in told["random_state"]

"""Where the settings of TRL, open-r1 and the first PRewrite are here: for messages, and for docs/coming_over.md."""

import re
from typing import NamedTuple


class Moved(NamedTuple):
    """Settings of theirs, by one place here. old: their names. new: the setting here, "" where there is none."""

    old: tuple[str, ...]
    new: str
    note: str

    def told(self) -> str:
        """As the end of a message."""
        return ": ".join(part for part in (f"here it is {self.new}" if self.new else "", self.note) if part)


class OldValue(NamedTuple):
    """A value of theirs that is refused here, and what is equivalent."""

    setting: str
    value: object
    instead: str


_MOVED = """\
model_name_or_path -> policy.model
torch_dtype model_init_kwargs -> policy.dtype
bf16 fp16 -> policy.dtype: bfloat16 is the default; float16 is not offered
gradient_checkpointing_kwargs use_gradient_checkpointing -> policy.gradient_checkpointing: true or false is all
deepspeed ds3_gather_for_generation fsdp -> policy.zero_stage: the rest of DeepSpeed's file is set here
num_processes device_map -> none: the launcher has it: deepspeed --num_gpus N train.py ...
use_liger_kernel use_liger_loss -> none: log-probs are computed in chunks always: training.logprob_chunk_tokens
use_peft peft_config -> policy.lora: {} = an adapter with the defaults; docs/adapters.md
lora_r max_lora_rank -> policy.lora.r
lora_alpha -> policy.lora.alpha
lora_dropout -> policy.lora.dropout
lora_target_modules -> policy.lora.target_modules: its default is all-linear
lora_modules_to_save -> policy.lora.modules_to_save
load_in_8bit -> policy.load_in_4bit: 4 bits (nf4), or the whole bfloat16, are what there is
quantization_config bnb_4bit_quant_type bnb_4bit_compute_dtype -> policy.load_in_4bit: true = nf4, computed in
    policy.dtype
use_bnb_nested_quant bnb_4bit_quant_storage bnb_4bit_use_double_quant lora_task_type lora_target_parameters use_rslora
    use_dora task_type bias lora_bias fan_in_fan_out init_lora_weights -> none: of adapters there is plain LoRA, of 4
    bits plain nf4; leave it out
dataset_name train_dataset -> data.tasks: names of tasks, or data.instructions_file for rows of your own; a data set of
    your own is an entry of custom_tasks; in SFT data.hub, or data.chats for a file
dataset_config dataset_configs dataset_train_split dataset_test_split -> none: a task has its own splits; of a data set
    of your own: custom_tasks[].hub; files: custom_tasks; in SFT data.hub, whose test_split is held out
dataset_mixture -> data.tasks: with a weight for each in data.task_weights; chats of several sets: one file, data.chats
test_split_size eval_dataset -> data.dev_size: a number of problems, kept from training by seed; in SFT data.eval_chats
    is a file of them
dataset_prompt_column -> data.instructions_file: its column is named instruction; of problems to be solved, the column
    is a key of custom_tasks[].fields
test_size -> reward.examples_per_rewrite: the first PRewrite's; the examples held out are data.dev_size
tags -> data.instructions_file: a column of its rows, with subject and level
generate_dataset_seed data_seed random_state -> seed
generate_model_name_or_path generate_model_offline -> task_model.model: without task_model.base_url a server is started
    for it
generate_model_ip generate_model_port -> task_model.base_url: as http://ip:port/v1
generate_system_prompt -> task_model.system_prompt
generate_model_temperature -> task_model.temperature
generate_model_max_new_tokens -> task_model.max_tokens
temperature -> rollout.temperature: the policy's; the task model's is task_model.temperature
top_p -> rollout.top_p: the policy's; the task model's is task_model.top_p
top_k -> rollout.top_k: the policy's; the task model's is task_model.top_k
min_p -> rollout.min_p: the policy's; the task model's is task_model.min_p
chat_template_kwargs -> rollout.chat_template_kwargs: the policy's; the task model's is task_model.chat_template_kwargs
meta_prompt rewrite_prompt -> rollout.meta_instruction: {instruction} in it marks its place
system_prompt -> rollout.system_prompt: the policy's; the task model's is task_model.system_prompt
vllm_gpu_memory_utilization gpu_memory_utilization -> rollout.gpu_memory_utilization
vllm_enable_sleep_mode -> rollout.sleep_level: 0, 1 or 2
vllm_max_model_length vllm_max_model_len max_seq_length -> rollout.max_prompt_length: with
    rollout.max_completion_length: the engine takes their sum; in SFT sft.max_length
use_vllm vllm_mode vllm_device vllm_dtype vllm_server_host vllm_server_port vllm_server_base_url vllm_server_timeout
    vllm_group_port vllm_model_impl fast_inference use_transformers_paged cache_implementation -> none: rollouts always
    come from a vLLM engine in the training process; leave it out
vllm_importance_sampling_correction vllm_importance_sampling_mode -> loss.sampler_correction: none, or one of TRL's four
    modes
vllm_importance_sampling_cap -> loss.sampler_bounds: as [0, cap]
generation_batch_size -> training.steps_per_generation: in micro-batches of a device: divided by the devices and
    per_device_train_batch_size
generation_kwargs repetition_penalty vllm_guided_decoding_regex vllm_structured_outputs_regex -> none: of sampling the
    policy there are rollout.temperature, top_p, top_k and min_p; the task model's penalties are
    task_model.repetition_penalty and presence_penalty
warmup_ratio -> training.warmup_steps: the ratio times max_steps; of epochs --dry-run tells the steps
lr_scheduler_kwargs min_lr -> training.min_lr_rate: min_lr_rate, or min_lr divided by learning_rate
optim_args adam_epsilon -> none: AdamW it is, with training.adam_beta1, adam_beta2 and weight_decay
num_epochs epochs -> training.num_train_epochs
lr -> training.learning_rate
eval_strategy evaluation_strategy do_eval per_device_eval_batch_size num_generations_eval -> selection.eval_steps: 0 =
    only after the last step
eval_on_start -> none: solving and SFT look before the first step, always; leave it out
metric_for_best_model greater_is_better -> selection.metric: null = the run's own rewards; in SFT dev_loss it is
load_best_model_at_end -> training.save_total_limit: the checkpoint with the best look is kept among them
benchmarks -> evaluation.benchmarks: measured once, at the end, as evaluate.py does
save_strategy -> training.save_steps: a number; 0 = only after the last step
save_only_model -> none: a checkpoint always holds what a resume needs, beside the model
overwrite_output_dir resume_from_checkpoint -> none: train.py --overwrite, train.py --resume
cosine_min_value_wrong cosine_max_value_wrong cosine_min_value_correct cosine_max_value_correct cosine_max_len ->
    reward.reward_kwargs: as {"cosine_scaled_reward": {"max_len": 1000}}, without cosine_
repetition_n_grams repetition_max_penalty -> reward.reward_kwargs: as {"repetition_penalty_reward": {"ngram_size": 3,
    "max_penalty": -1.0}}
max_completion_len soft_punish_cache -> reward.reward_kwargs: as {"soft_overlong_punishment": {"max_completion_len":
    256, "soft_punish_cache": 64}}
code_language code_provider code_eval_test_batch_size code_eval_scoring_mode parallel_code_exec_per_proc ioi_provider
    e2b_router_url morph_router_url -> none: no reward here runs code; a function of your own in reward.reward_funcs may
tools max_tool_calling_iterations rollout_func environment_factory -> none: a rollout is one answer without tools; leave
    it out
off_policy_mask_threshold use_bias_correction_kl -> none: not offered; what is off policy is bounded by
    loss.sampler_correction and loss.delta; leave it out
log_completions wandb_log_unique_prompts log_unique_prompts -> tracking.rollout_rows: rows of a batch that a tracker's
    table shows; log.jsonl in the run folder holds every completion
project_name wandb_project -> tracking.project
wandb_run_group -> tracking.group
wandb_entity -> none: the environment variable WANDB_ENTITY; leave it out
logging_strategy logging_first_step log_level -> training.logging_steps
push_to_hub hub_model_id hub_strategy hub_model_revision push_to_hub_revision -> none: python -m prewrite.export RUN
    --out DIR --push-to-hub REPO --revision R sends a run's model; leave it out
packing eval_packing packing_strategy padding_free -> training.max_tokens_per_micro_batch: rows of so many tokens stand
    in one, each with positions and attention of its own, where policy.attn_implementation is packed, the default
assistant_only_loss completion_only_loss -> none: in SFT what the assistant says is trained, always, and nothing else;
    leave it out
chat_template_path -> policy.chat_template
processing_class tokenizer tokenizer_name_or_path reward_processing_classes -> none: the tokenizer is the one in the
    folder of policy.model; leave it out
reset -> reset_model: of the run: every stage but the first begins with the base model
dataset_text_field -> data.chats: a row has messages, or prompt and completion
dataset_num_proc dataset_kwargs skip_prepare_dataset pad_token eos_token pad_to_multiple_of neftune_noise_alpha
    activation_offloading -> none: nothing here does that; leave it out
shuffle_dataset -> none: rows are shuffled by seed, always; leave it out
remove_unused_columns disable_dropout group_by_length auto_find_batch_size label_smoothing_factor dataloader_num_workers
    dataloader_drop_last dataloader_pin_memory dataloader_prefetch_factor tf32 log_on_each_node disable_tqdm
    save_safetensors ignore_data_skip full_determinism use_cpu include_tokens_per_second include_num_input_tokens_seen
    ddp_find_unused_parameters -> none: nothing here does that; leave it out
"""


def _moved(entry: str) -> Moved:
    old, _, here = " ".join(entry.split()).partition(" -> ")
    new, _, note = here.partition(": ")
    return Moved(tuple(old.split()), "" if new == "none" else new, note)


# An entry's further lines are indented.
MOVED = tuple(_moved(entry) for entry in re.split(r"\n(?! )", _MOVED.rstrip()))

OLD_VALUES = (
    OldValue("policy.attn_implementation", "flash_attention_2", "packed, the default: no padding is computed"),
    OldValue("policy.attn_implementation", "flash_attention_3", "packed, the default: no padding is computed"),
    OldValue("policy.dtype", "float16", "bfloat16: float16 would need loss scaling, which is not here"),
    OldValue("policy.dtype", "auto", "bfloat16, the default, or float32"),
    OldValue("training.optim", "adamw_torch", "adamw_torch_fused, which computes the same"),
    OldValue("training.optim", "adamw_bnb_8bit", "adamw_8bit, which it is"),
    OldValue("policy.zero_stage", 2, "1 (optimizer state), or 3 (weights and gradients too); null chooses"),
    OldValue("policy.zero_stage", 0, "1, which takes less memory and computes the same"),
    OldValue("training.lr_scheduler_type", "cosine_with_min_lr", "cosine, with training.min_lr_rate"),
    OldValue("training.lr_scheduler_type", "constant_with_warmup", "constant, with training.warmup_steps"),
    OldValue("training.max_steps", -1, "training.num_train_epochs alone: leave max_steps out"),
    OldValue("loss.scale_rewards", True, '"group"'),
    OldValue("loss.scale_rewards", False, '"none"'),
    OldValue("loss.loss_type", "luspo", 'grpo with loss.importance_sampling_level "sequence" (GSPO), the nearest'),
    OldValue("loss.epsilon_high", None, "the value of loss.epsilon, which TRL takes"),
    OldValue("rollout.max_prompt_length", None, "a number of tokens; a longer request is refused, a problem left out"),
    OldValue("rollout.min_p", None, "0"),
    OldValue("rollout.top_k", None, "0"),
    OldValue("tracking.report_to", "none", "[], the default"),
    OldValue("tracking.report_to", "wandb", "[wandb]: it is a list"),
    OldValue("tracking.report_to", "tensorboard", "[tensorboard]: it is a list"),
    OldValue("tracking.report_to", "all", "[tensorboard, wandb]: it is a list"),
)


def moved(key: str) -> Moved | None:
    """Where a key of theirs is here."""
    return next((row for row in MOVED if key in row.old), None)


def instead_of(setting: str, value: object) -> str:
    """What to write for a value of theirs; "" where it is none."""
    for row in OLD_VALUES:
        if row.setting == setting and row.value == value and type(row.value) is type(value):
            return row.instead
    return ""

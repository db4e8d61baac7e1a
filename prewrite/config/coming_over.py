"""Where the settings of TRL, open-r1 and the first PRewrite are here: for messages, and for docs/coming_over.md."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Moved:
    """Settings of theirs, by one place here. old: their names. new: the setting here, "" where there is none."""

    old: tuple[str, ...]
    new: str
    note: str = ""

    def told(self) -> str:
        """As the end of a message."""
        return ": ".join(part for part in (f"here it is {self.new}" if self.new else "", self.note) if part)


@dataclass(frozen=True)
class OldValue:
    """A value of theirs that is refused here, and what is equivalent."""

    setting: str
    value: object
    instead: str


def _moved(old: str, new: str, note: str = "") -> Moved:
    return Moved(tuple(old.split()), new, note)


MOVED = (
    _moved("model_name_or_path", "policy.model"),
    _moved("torch_dtype model_init_kwargs", "policy.dtype"),
    _moved("bf16 fp16", "policy.dtype", "bfloat16 is the default; float16 is not offered"),
    _moved(
        "gradient_checkpointing_kwargs use_gradient_checkpointing",
        "policy.gradient_checkpointing",
        "true or false is all",
    ),
    _moved("deepspeed ds3_gather_for_generation fsdp", "policy.zero_stage", "the rest of DeepSpeed's file is set here"),
    _moved("num_processes device_map", "", "the launcher has it: deepspeed --num_gpus N train.py ..."),
    _moved(
        "use_liger_kernel use_liger_loss",
        "",
        "log-probs are computed in chunks always: training.logprob_chunk_tokens",
    ),
    _moved("use_peft peft_config", "policy.lora", "{} = an adapter with the defaults; docs/adapters.md"),
    _moved("lora_r max_lora_rank", "policy.lora.r"),
    _moved("lora_alpha", "policy.lora.alpha"),
    _moved("lora_dropout", "policy.lora.dropout"),
    _moved("lora_target_modules", "policy.lora.target_modules", "its default is all-linear"),
    _moved("lora_modules_to_save", "policy.lora.modules_to_save"),
    _moved("load_in_8bit", "policy.load_in_4bit", "4 bits (nf4), or the whole bfloat16, are what there is"),
    _moved(
        "quantization_config bnb_4bit_quant_type bnb_4bit_compute_dtype",
        "policy.load_in_4bit",
        "true = nf4, computed in policy.dtype",
    ),
    _moved(
        "use_bnb_nested_quant bnb_4bit_quant_storage bnb_4bit_use_double_quant lora_task_type lora_target_parameters "
        "use_rslora use_dora task_type bias lora_bias fan_in_fan_out init_lora_weights",
        "",
        "of adapters there is plain LoRA, of 4 bits plain nf4; leave it out",
    ),
    _moved(
        "dataset_name train_dataset",
        "data.tasks",
        "names of tasks, or data.instructions_file for rows of your own; a data set of your own is an entry of "
        "custom_tasks; in SFT data.hub, or data.chats for a file",
    ),
    _moved(
        "dataset_config dataset_configs dataset_train_split dataset_test_split",
        "",
        "a task has its own splits; of a data set of your own: custom_tasks[].hub; files: custom_tasks; in SFT "
        "data.hub, whose test_split is held out",
    ),
    _moved(
        "dataset_mixture",
        "data.tasks",
        "with a weight for each in data.task_weights; chats of several sets: one file, data.chats",
    ),
    _moved(
        "test_split_size eval_dataset",
        "data.dev_size",
        "a number of problems, kept from training by seed; in SFT data.eval_chats is a file of them",
    ),
    _moved(
        "dataset_prompt_column",
        "data.instructions_file",
        "its column is named instruction; of problems to be solved, the column is a key of custom_tasks[].fields",
    ),
    _moved("test_size", "reward.examples_per_rewrite", "the first PRewrite's; the examples held out are data.dev_size"),
    _moved("tags", "data.instructions_file", "a column of its rows, with subject and level"),
    _moved("generate_dataset_seed data_seed random_state", "seed"),
    _moved(
        "generate_model_name_or_path generate_model_offline",
        "task_model.model",
        "without task_model.base_url a server is started for it",
    ),
    _moved("generate_model_ip generate_model_port", "task_model.base_url", "as http://ip:port/v1"),
    _moved("generate_system_prompt", "task_model.system_prompt"),
    _moved("generate_model_temperature", "task_model.temperature"),
    _moved("generate_model_max_new_tokens", "task_model.max_tokens"),
    _moved("temperature", "rollout.temperature", "the policy's; the task model's is task_model.temperature"),
    _moved("top_p", "rollout.top_p", "the policy's; the task model's is task_model.top_p"),
    _moved("top_k", "rollout.top_k", "the policy's; the task model's is task_model.top_k"),
    _moved("min_p", "rollout.min_p", "the policy's; the task model's is task_model.min_p"),
    _moved(
        "chat_template_kwargs",
        "rollout.chat_template_kwargs",
        "the policy's; the task model's is task_model.chat_template_kwargs",
    ),
    _moved("meta_prompt rewrite_prompt", "rollout.meta_instruction", "{instruction} in it marks its place"),
    _moved("system_prompt", "rollout.system_prompt", "the policy's; the task model's is task_model.system_prompt"),
    _moved("vllm_gpu_memory_utilization gpu_memory_utilization", "rollout.gpu_memory_utilization"),
    _moved("vllm_enable_sleep_mode", "rollout.sleep_level", "0, 1 or 2"),
    _moved(
        "vllm_max_model_length vllm_max_model_len max_seq_length",
        "rollout.max_prompt_length",
        "with rollout.max_completion_length: the engine takes their sum; in SFT sft.max_length",
    ),
    _moved(
        "use_vllm vllm_mode vllm_device vllm_dtype vllm_server_host vllm_server_port vllm_server_base_url "
        "vllm_server_timeout vllm_group_port vllm_model_impl fast_inference use_transformers_paged "
        "cache_implementation",
        "",
        "rollouts always come from a vLLM engine in the training process; leave it out",
    ),
    _moved(
        "vllm_importance_sampling_correction vllm_importance_sampling_mode",
        "loss.sampler_correction",
        "none, or one of TRL's four modes",
    ),
    _moved("vllm_importance_sampling_cap", "loss.sampler_bounds", "as [0, cap]"),
    _moved(
        "generation_batch_size",
        "training.steps_per_generation",
        "in micro-batches of a device: divided by the devices and per_device_train_batch_size",
    ),
    _moved(
        "generation_kwargs repetition_penalty vllm_guided_decoding_regex vllm_structured_outputs_regex",
        "",
        "of sampling the policy there are rollout.temperature, top_p, top_k and min_p; the task model's penalties are "
        "task_model.repetition_penalty and presence_penalty",
    ),
    _moved("warmup_ratio", "training.warmup_steps", "the ratio times max_steps; of epochs --dry-run tells the steps"),
    _moved("lr_scheduler_kwargs min_lr", "training.min_lr_rate", "min_lr_rate, or min_lr divided by learning_rate"),
    _moved("optim_args adam_epsilon", "", "AdamW it is, with training.adam_beta1, adam_beta2 and weight_decay"),
    _moved("num_epochs epochs", "training.num_train_epochs"),
    _moved("lr", "training.learning_rate"),
    _moved(
        "eval_strategy evaluation_strategy do_eval per_device_eval_batch_size num_generations_eval",
        "selection.eval_steps",
        "0 = only after the last step",
    ),
    _moved("eval_on_start", "", "solving and SFT look before the first step, always; leave it out"),
    _moved(
        "metric_for_best_model greater_is_better",
        "selection.metric",
        "null = the run's own rewards; in SFT dev_loss it is",
    ),
    _moved(
        "load_best_model_at_end", "training.save_total_limit", "the checkpoint with the best look is kept among them"
    ),
    _moved("benchmarks", "evaluation.benchmarks", "measured once, at the end, as evaluate.py does"),
    _moved("save_strategy", "training.save_steps", "a number; 0 = only after the last step"),
    _moved("save_only_model", "", "a checkpoint always holds what a resume needs, beside the model"),
    _moved("overwrite_output_dir resume_from_checkpoint", "", "train.py --overwrite, train.py --resume"),
    _moved(
        "cosine_min_value_wrong cosine_max_value_wrong cosine_min_value_correct cosine_max_value_correct "
        "cosine_max_len",
        "reward.reward_kwargs",
        'as {"cosine_scaled_reward": {"max_len": 1000}}, without cosine_',
    ),
    _moved(
        "repetition_n_grams repetition_max_penalty",
        "reward.reward_kwargs",
        'as {"repetition_penalty_reward": {"ngram_size": 3, "max_penalty": -1.0}}',
    ),
    _moved(
        "max_completion_len soft_punish_cache",
        "reward.reward_kwargs",
        'as {"soft_overlong_punishment": {"max_completion_len": 256, "soft_punish_cache": 64}}',
    ),
    _moved(
        "code_language code_provider code_eval_test_batch_size code_eval_scoring_mode parallel_code_exec_per_proc "
        "ioi_provider e2b_router_url morph_router_url",
        "",
        "no reward here runs code; a function of your own in reward.reward_funcs may",
    ),
    _moved(
        "tools max_tool_calling_iterations rollout_func environment_factory",
        "",
        "a rollout is one answer without tools; leave it out",
    ),
    _moved(
        "off_policy_mask_threshold use_bias_correction_kl",
        "",
        "not offered; what is off policy is bounded by loss.sampler_correction and loss.delta; leave it out",
    ),
    _moved(
        "log_completions wandb_log_unique_prompts log_unique_prompts",
        "tracking.rollout_rows",
        "rows of a batch that a tracker's table shows; log.jsonl in the run folder holds every completion",
    ),
    _moved("project_name wandb_project", "tracking.project"),
    _moved("wandb_run_group", "tracking.group"),
    _moved("wandb_entity", "", "the environment variable WANDB_ENTITY; leave it out"),
    _moved("logging_strategy logging_first_step log_level", "training.logging_steps"),
    _moved(
        "push_to_hub hub_model_id hub_strategy hub_model_revision push_to_hub_revision",
        "",
        "python -m prewrite.export RUN --out DIR --push-to-hub REPO --revision R sends a run's model; leave it out",
    ),
    _moved(
        "packing eval_packing packing_strategy padding_free",
        "training.max_tokens_per_micro_batch",
        "rows of so many tokens stand in one, each with positions and attention of its own, where "
        "policy.attn_implementation is packed, the default",
    ),
    _moved(
        "assistant_only_loss completion_only_loss",
        "",
        "in SFT what the assistant says is trained, always, and nothing else; leave it out",
    ),
    _moved("chat_template_path", "policy.chat_template"),
    _moved(
        "processing_class tokenizer tokenizer_name_or_path reward_processing_classes",
        "",
        "the tokenizer is the one in the folder of policy.model; leave it out",
    ),
    _moved("reset", "reset_model", "of the run: every stage but the first begins with the base model"),
    _moved("dataset_text_field", "data.chats", "a row has messages, or prompt and completion"),
    _moved(
        "dataset_num_proc dataset_kwargs skip_prepare_dataset pad_token eos_token pad_to_multiple_of "
        "neftune_noise_alpha activation_offloading",
        "",
        "nothing here does that; leave it out",
    ),
    _moved("shuffle_dataset", "", "rows are shuffled by seed, always; leave it out"),
    _moved(
        "remove_unused_columns disable_dropout group_by_length auto_find_batch_size label_smoothing_factor "
        "dataloader_num_workers dataloader_drop_last dataloader_pin_memory dataloader_prefetch_factor tf32 "
        "log_on_each_node disable_tqdm save_safetensors ignore_data_skip full_determinism use_cpu "
        "include_tokens_per_second include_num_input_tokens_seen ddp_find_unused_parameters",
        "",
        "nothing here does that; leave it out",
    ),
)

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


def moved(key: str) -> Moved | None:
    """Where a key of theirs is here."""
    return next((row for row in MOVED if key in row.old), None)


def instead_of(setting: str, value: object) -> str:
    """What to write for a value of theirs; "" where it is none."""
    for row in OLD_VALUES:
        if row.setting == setting and row.value == value and type(row.value) is type(value):
            return row.instead
    return ""

"""Every setting of PRewrite, once; `prewrite/config_loading.py` reads a file into them and makes the README's table.

Names are those of TRL and transformers wherever a setting exists there. This module imports no torch.
"""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from prewrite import config_rules
from prewrite.config_rules import Count, NonNegative, Positive, RequestField, Section, Share, Word

# Asks for a rewrite of whatever instruction follows; a newcomer's small model has to understand it too.
META_INSTRUCTION = (
    "Rewrite the following instruction so that a language model that follows it gives more correct answers. "
    "Reply with the new instruction only."
)


class PolicySettings(Section):
    """The model that is trained."""

    model: str
    """folder or hub name of a chat model in the transformers format"""
    dtype: Literal["bfloat16", "float32"] = "bfloat16"
    """type of the weights in forward and backward; the optimizer's master copy is always float32"""
    attn_implementation: Literal["packed", "sdpa", "eager"] = "packed"
    """attention of the training forward; packed computes no padding; the others for architectures that it refuses"""
    gradient_checkpointing: bool = False
    """recompute activations in the backward pass: less memory, about a third more time"""
    torch_compile: bool = False
    """compile the decoder layers: less training time on a GPU; the first step takes 10 s more, on a CPU 30"""
    offload_optimizer: bool = False
    """keep master weights, gradients and optimizer state in CPU memory: 16 bytes a weight less on the GPUs, slower"""
    zero_stage: Literal[1, 3] | None = None
    """what ranks share: 1 optimizer state, 3 weights and gradients too; null = 3, or 1 on a lone rank that keeps all"""


class DataSettings(Section):
    """What is rewritten, and on which examples a rewrite is scored."""

    tasks: list[str] = []
    """tasks whose instruction is rewritten; `python -m prewrite.tasks` lists them"""
    instruction: str | None = None
    """the initial instruction, in place of each task's default one"""
    instructions_file: str | None = None
    """JSONL, CSV or parquet with columns `instruction`, `dataset_name`, perhaps `answer`; in place of `tasks`"""
    local_dir: str | None = None
    """folder with the tasks' local files, in place of the hub; else the environment variable PREWRITE_DATA"""
    num_train_examples: Positive | None = None
    """use only the first so many examples of the shuffled train split; null = all"""
    dev_size: Positive = 200
    """examples cut from the train split, by seed, on which rewrites are chosen"""
    min_words: Count = 0
    """leave out shorter train and dev examples: SST-2's train split is half phrases, its test split has sentences"""

    @model_validator(mode="after")
    def _one_source(self) -> "DataSettings":
        return config_rules.check(self, config_rules.data_faults)


class CustomTaskSettings(Section):
    """A task of your own from local files, no code needed; name it in `data.tasks`."""

    name: str
    """how `data.tasks` and `--task` call it"""
    kind: Literal["classification", "math", "open_question"]
    """how an answer is graded: a label is found, a mathematical value is compared, or SQuAD exact match"""
    labels: list[str] = []
    """the fixed label set of a classification task"""
    fields: dict[str, str]
    """columns that the query shows, in order, each with the label printed before it, as {"text": "Sentence"}"""
    target: str
    """column of the gold answer"""
    train_file: str
    """JSONL, CSV or parquet; dev is cut from it"""
    test_file: str
    """looked at by `evaluate.py` alone"""
    default_instruction: str
    """the initial instruction"""


class RolloutSettings(Section):
    """How the policy's rewrites are sampled."""

    meta_instruction: str = META_INSTRUCTION
    """what the policy is told before the instruction; both together are the user turn of the request"""
    chat_template_kwargs: dict[str, bool | int | float | str] = {}
    """passed to the chat template, as {"enable_thinking": false}"""
    num_generations: Annotated[int, Field(ge=2)] = 8
    """G, the rollouts of a group: completions of one request that are compared with one another"""
    temperature: Annotated[float, Field(gt=0)] = 1.0
    """of sampling, and of every log-probability in the loss"""
    top_p: Share = 1.0
    """nucleus sampling; below 1 only without sampler correction"""
    top_k: Annotated[int, Field(ge=-1)] = -1
    """sample from the k likeliest tokens; -1 or 0 = all"""
    min_p: Annotated[float, Field(ge=0, le=1)] = 0.0
    """least share of the likeliest token's probability"""
    max_prompt_length: Positive = 1024
    """tokens of a request; longer ones are refused at the start"""
    max_completion_length: Positive = 256
    """tokens of a completion; longer ones are truncated"""
    gpu_memory_utilization: Share = 0.35
    """share of each GPU for the vLLM engine (weights and KV cache); ignored on the CPU"""
    kv_cache_gib: Annotated[float, Field(gt=0)] | None = None
    """KV cache of the engine in GiB; null = what gpu_memory_utilization leaves on a GPU, 1 on the CPU"""
    enforce_eager: bool = False
    """start without compiling and CUDA graphs: a quick start, slower rollouts; always so on the CPU"""
    sleep_level: Literal[0, 1, 2] = 0
    """GPU memory the engine frees while training: 0 none, 1 the KV cache (weights wait in CPU memory), 2 both"""
    vllm_tensor_parallel_size: Positive = 1
    """ranks that share one vLLM engine, for policies that do not fit one GPU twice"""


class RewardSettings(Section):
    """What a rewrite is worth."""

    reward_funcs: list[str] = ["accuracy_classification_reward"]
    """names from `prewrite/rewards`, or a function of your own as `package.module:function`"""
    reward_weights: list[float] | None = None
    """one weight a function; null = all 1"""
    examples_per_rewrite: Positive = 16
    """train examples that score a rewrite, the same ones for the whole group"""
    reward_kwargs: dict[str, dict[str, bool | int | float | str]] = {}
    """parameters of a reward function by its name"""

    @model_validator(mode="after")
    def _weights_match(self) -> "RewardSettings":
        return config_rules.check(self, config_rules.reward_faults)


class TaskModelSettings(Section):
    """The frozen model whose success is the reward."""

    base_url: str | None = None
    """an OpenAI-compatible endpoint, as http://host:8000/v1; null = start a vLLM server here and end it afterwards"""
    model: str
    """the name that the endpoint serves, or, without `base_url`, a folder or hub name"""
    api_key_env: str | None = None
    """environment variable that holds the key; the key itself never stands in a config"""
    scoring: Literal["forced_choice", "free_text"] = "forced_choice"
    """classification: force the answer to be a label, or find the label in free text; other tasks are free text"""
    system_prompt: str | None = None
    """system turn of every query; null = none"""
    chat_template_kwargs: dict[str, bool | int | float | str] = {}
    """passed to the endpoint's chat template, as {"enable_thinking": false}"""
    temperature: NonNegative = 0.0
    """of the task model's answers"""
    top_p: Share = 1.0
    """of the task model's answers"""
    max_tokens: Positive = 512
    """of one answer, thinking included"""
    request_fields: dict[RequestField, Word | None] = {}
    """fields an endpoint names otherwise, or refuses (null), as {"max_tokens": "max_completion_tokens", "n": null}"""
    vllm_fields: bool = True
    """send the sampling fields only vLLM and SGLang know (top_k, min_p, repetition_penalty); false for hosted models"""
    concurrency: Positive = 64
    """calls under way at once, of each rank"""
    timeout: Annotated[float, Field(gt=0)] = 120.0
    """deadline of one call, in seconds"""
    max_retries: Count = 4
    """tries after the first, for 408/409/429/5xx and broken connections"""
    max_failure_share: Annotated[float, Field(ge=0, le=1)] = 0.2
    """the run stops once more than this share of its calls stayed failed"""
    gpus: Annotated[list[Count], Field(min_length=1)] | None = None
    """GPUs of the server started here, as nvidia-smi numbers them; null = the first; several need `server_args`"""
    gpu_memory_utilization: Share = 0.3
    """share of the GPU for the server started here; ignored on the CPU"""
    kv_cache_gib: Annotated[float, Field(gt=0)] | None = None
    """KV cache of the server started here, in GiB; null = what gpu_memory_utilization leaves on a GPU, 1 on the CPU"""
    max_model_len: Positive | None = None
    """longest query plus answer of the server started here, in tokens; null = the model's own limit"""
    server_args: list[str] = []
    """further arguments of the server started here, as ["--tensor-parallel-size", "2"]"""
    startup_timeout: Annotated[float, Field(gt=0)] = 600.0
    """seconds until the server started here must be healthy"""

    @model_validator(mode="after")
    def _no_secrets(self) -> "TaskModelSettings":
        return config_rules.check(self, config_rules.task_model_faults)


class LossSettings(Section):
    """From rewards to one number; the formulas are in `prewrite/algorithm`."""

    loss_type: Literal["grpo", "dapo", "bnpo", "dr_grpo", "cispo", "sapo"] = "dapo"
    """how token losses become one number"""
    scale_rewards: Literal["group", "batch", "none"] = "group"
    """what an advantage is divided by: the standard deviation of its group, of the batch, or nothing"""
    leave_one_out: bool = False
    """baseline of a rollout: the mean of the others of its group (RLOO), in place of the group's mean"""
    multi_objective_aggregation: Literal["sum_then_normalize", "normalize_then_sum"] = "sum_then_normalize"
    """several reward functions: sum their rewards as they are, or normalise each within its group first (GDPO)"""
    epsilon: Annotated[float, Field(gt=0, lt=1)] = 0.2
    """lower clip: the ratio is clipped to [1 - epsilon, 1 + epsilon_high]"""
    epsilon_high: Annotated[float, Field(gt=0)] = 0.28
    """upper clip; DAPO takes it above epsilon"""
    delta: Annotated[float, Field(gt=1)] | None = None
    """upper bound of the ratio where the advantage is negative (two-sided clipping); null = none"""
    cispo_cap: Annotated[float, Field(ge=1)] = 5.0
    """upper bound of the detached ratio; `cispo` alone reads it"""
    sapo_temperature_pos: Annotated[float, Field(gt=0)] = 1.0
    """sharpness of the soft gate where the advantage is positive; `sapo` alone reads it"""
    sapo_temperature_neg: Annotated[float, Field(gt=0)] = 1.05
    """the same where it is negative"""
    importance_sampling_level: Literal["token", "sequence"] = "token"
    """one ratio a token, or one a sequence (GSPO)"""
    beta: NonNegative = 0.0
    """weight of the KL divergence to the untrained policy; 0 loads no reference model"""
    kl_estimator: Literal["k1", "k2", "k3"] = "k3"
    """estimator of that divergence"""
    sync_ref_model: bool = False
    """move the reference towards the policy as training goes on (an exponential moving average)"""
    ref_model_mixup_alpha: Share = 0.6
    """share of the policy in the reference at each of those moves"""
    ref_model_sync_steps: Positive = 512
    """optimizer steps between two moves"""
    sampler_correction: Literal["none", "token_truncate", "token_mask", "sequence_truncate", "sequence_mask"] = (
        "token_truncate"
    )
    """importance weight for the difference between vLLM's and the trainer's log-probs"""
    sampler_bounds: Annotated[tuple[float, float], Field(strict=False)] = (0.0, 2.0)
    """bounds of that weight"""
    mask_truncated_completions: bool = False
    """leave truncated completions out of the loss and of its normaliser"""
    entropy_coef: NonNegative = 0.0
    """weight of the entropy bonus"""
    top_entropy_quantile: Share = 1.0
    """only this share of a step's tokens, those with the highest entropy, carry the surrogate"""
    dynamic_sampling_refills: Count = 0
    """times that groups without spread are replaced by fresh ones (DAPO); 0 = they stay and teach nothing"""

    @model_validator(mode="after")
    def _sound_loss(self) -> "LossSettings":
        return config_rules.check(self, config_rules.loss_faults)


class TrainingSettings(Section):
    """The optimizer and the size of a step."""

    max_steps: Positive | None = None
    """optimizer steps; or give num_train_epochs"""
    num_train_epochs: Annotated[float, Field(gt=0)] | None = None
    """passes over the instruction rows; or give max_steps"""
    per_device_train_batch_size: Positive = 8
    """rollouts of one forward and backward (micro-batch) on one device"""
    gradient_accumulation_steps: Positive = 1
    """micro-batches of an optimizer step on each device"""
    steps_per_generation: Positive | None = None
    """micro-batches of one rollout batch on each device, a multiple of gradient_accumulation_steps; null = the same"""
    num_iterations: Positive = 1
    """mu, passes over one rollout batch"""
    max_tokens_per_micro_batch: Positive | None = None
    """cut micro-batches by tokens (and padding, where attention computes it) and not by rollouts; null = by rollouts"""
    learning_rate: Annotated[float, Field(gt=0)] = 1e-6
    """peak learning rate of AdamW"""
    lr_scheduler_type: Literal["constant", "linear", "cosine"] = "constant"
    """after the warm-up: constant, or down to 0 at the last step"""
    warmup_steps: Count = 0
    """steps of linear warm-up from 0"""
    weight_decay: NonNegative = 0.0
    """of AdamW"""
    adam_beta1: Annotated[float, Field(ge=0, lt=1)] = 0.9
    """of AdamW"""
    adam_beta2: Annotated[float, Field(ge=0, lt=1)] = 0.99
    """of AdamW"""
    max_grad_norm: Annotated[float, Field(gt=0)] = 1.0
    """gradients are scaled down to this global norm"""
    logprob_chunk_tokens: Positive = 2048
    """tokens whose logits are held at once"""
    max_sampler_gap: Annotated[float, Field(gt=0)] = 0.5
    """the run stops where mean |l_old - l_sampler| passes this and 5 times its running median: weights went stale"""
    ddp_timeout: Positive = 1800
    """seconds that a rank waits for the others before the run ends, where no launcher sees that one is gone"""
    save_steps: Count = 0
    """a checkpoint every so many steps; 0 = only the last"""
    logging_steps: Positive = 1
    """a console line every so many steps; the journal has every step"""

    @model_validator(mode="after")
    def _whole_steps(self) -> "TrainingSettings":
        return config_rules.check(self, config_rules.training_faults)


class SelectionSettings(Section):
    """Choosing the best rewrite on held-out (dev) examples."""

    eval_steps: Count = 10
    """look at the dev examples every so many steps and after the last; 0 = only after the last"""
    num_candidates: Positive = 4
    """rewrites judged at a look, beside the greedy one: those with the best mean reward not looked at before"""
    num_sampled: Count = 0
    """rewrites sampled anew and judged at a look; their mean is the policy's own score, without choosing"""


class Config(Section):
    """A run: where it is written, and the sections."""

    run_name: str = "run"
    """folder of the run inside output_dir"""
    output_dir: str = "runs"
    """folder of all runs"""
    seed: Count = 1
    """of data order, examples, dev split and sampling"""
    policy: PolicySettings
    data: DataSettings
    custom_tasks: list[CustomTaskSettings] = []
    """tasks of your own"""
    rollout: RolloutSettings = RolloutSettings()
    reward: RewardSettings = RewardSettings()
    task_model: TaskModelSettings
    loss: LossSettings = LossSettings()
    training: TrainingSettings
    selection: SelectionSettings = SelectionSettings()

    @model_validator(mode="after")
    def _sound_algorithm(self) -> "Config":
        return config_rules.check(self, config_rules.run_faults)

    def updates_per_generation(self) -> int:
        """Optimizer steps that share one rollout batch, each on its own part of it."""
        accumulation = self.training.gradient_accumulation_steps
        return (self.training.steps_per_generation or accumulation) // accumulation

    def rollouts_per_step(self, world_size: int) -> int:
        """Rollouts of one optimizer step over all ranks."""
        return self.training.per_device_train_batch_size * self.training.gradient_accumulation_steps * world_size

    def rollouts_per_generation(self, world_size: int) -> int:
        """Rollouts of one rollout batch over all ranks."""
        return self.rollouts_per_step(world_size) * self.updates_per_generation()

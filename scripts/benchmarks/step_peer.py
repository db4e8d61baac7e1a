"""The peer of step.py: the same workload on TRL's GRPOTrainer with a vLLM engine in its process.

step.py starts it:  python -m scripts.benchmarks.step_peer WORKLOAD.json RESULT.json
"""

import functools
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from peft import LoraConfig
from transformers import TrainerCallback
from trl import GRPOConfig, GRPOTrainer
from trl.generation import vllm_generation

from scripts.benchmarks.common import Length, PhaseMeter, chat_request, parity


class MeasuredGRPOTrainer(GRPOTrainer):
    """TRL's trainer; what it does between rollout, push and training (rewards, old log-probs, texts) is "rest"."""

    def _prepare_inputs(self, generation_batch: Any) -> Any:
        with self.meter.phase("rest"):
            return super()._prepare_inputs(generation_batch)


class StepEnds(TrainerCallback):
    def __init__(self, meter: PhaseMeter):
        self.meter = meter
        self.seconds: list[dict[str, float]] = []

    def on_step_end(self, *_: Any, **__: Any) -> None:
        self.seconds.append(self.meter.take())


def in_phase(meter: PhaseMeter, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def measured(*args: Any, **kwargs: Any) -> Any:
        with meter.phase(name):
            return function(*args, **kwargs)

    return measured


def main() -> None:
    workload = json.loads(Path(sys.argv[1]).read_text("utf-8"))
    rollouts = workload["prompts"] * workload["generations"]
    lengths: list[list[Length]] = []

    def parity_reward(prompts: list, completion_ids: list[list[int]], **_: Any) -> list[float]:
        requests = [chat_request(prompt[0]["content"], trainer.processing_class) for prompt in prompts]
        lengths.append([(len(request), len(ids)) for request, ids in zip(requests, completion_ids, strict=True)])
        return [parity(ids) for ids in completion_ids]

    adapter = None
    if lora := workload["lora"]:
        targets = lora["target_modules"]
        adapter = LoraConfig(
            task_type="CAUSAL_LM",
            r=lora["r"],
            lora_alpha=lora["alpha"],
            lora_dropout=lora["dropout"],
            target_modules=targets[0] if targets == ["all-linear"] else targets,
            modules_to_save=lora["modules_to_save"] or None,
        )
    # GRPOConfig has no setting for the bytes of the KV cache, which must be the same on both sides.
    vllm_generation.LLM = functools.partial(vllm_generation.LLM, kv_cache_memory_bytes=workload["kv_cache_bytes"])
    with PhaseMeter() as meter:
        ends = StepEnds(meter)
        trainer = MeasuredGRPOTrainer(
            model=workload["model"],
            reward_funcs=parity_reward,
            train_dataset=Dataset.from_list(
                [{"prompt": [{"role": "user", "content": problem}]} for problem in workload["problems"]]
            ),
            callbacks=[ends],
            peft_config=adapter,
            args=GRPOConfig(
                output_dir=workload["output_dir"],
                max_steps=workload["warmup"] + workload["steps"],
                per_device_train_batch_size=workload["peer_micro_batch"],
                gradient_accumulation_steps=rollouts // workload["peer_micro_batch"],
                num_generations=workload["generations"],
                max_completion_length=workload["completion"],
                temperature=1.0,
                loss_type="dapo",
                beta=0.0,
                learning_rate=1e-6,
                bf16=True,
                model_init_kwargs={"dtype": workload["weights"]},
                gradient_checkpointing=workload["gradient_checkpointing"],
                use_vllm=True,
                vllm_mode="colocate",
                vllm_max_model_length=workload["max_model_len"],
                logging_steps=1,
                save_strategy="no",
                report_to="none",
                use_cpu=not torch.cuda.is_available(),
            ),
        )
        trainer.meter = meter
        engine = trainer.vllm_generation
        engine.generate = in_phase(meter, "rollout", engine.generate)
        engine.sync_weights = in_phase(meter, "push", engine.sync_weights)
        with meter.phase("training"):
            trainer.train()
    counted = slice(workload["warmup"], None)
    result = {"seconds": ends.seconds[counted], "lengths": lengths[counted], "peaks": meter.peaks}
    Path(sys.argv[2]).write_text(json.dumps(result | {"kv_cache_is_resident": True}), encoding="utf-8")


if __name__ == "__main__":
    main()

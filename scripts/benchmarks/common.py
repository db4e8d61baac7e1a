"""What the benchmarks share: the model, the workload, the device's own limits, seconds and memory by phase, the table.

Legend: a length is (prompt tokens, completion tokens) of one sequence.
"""

import argparse
import contextlib
import json
import os
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers

from prewrite.config import Config, PolicySettings
from prewrite.config.loading import load_config
from prewrite.engine.policy import load_tokenizer
from prewrite.errors import UserError
from prewrite.tasks import get_task
from prewrite.tasks.loading import load_examples

MAX_PROMPT_LENGTH = 512
NOWHERE = "http://127.0.0.1:9/v1"  # a task model that is never asked
MEMORY_LOOK_SECONDS = 0.05
NOISE_NUMEL = 16_777_213  # a prime, so that no two rows of a weight are alike
DUMMY_SHAPES: dict[str, dict[str, Any]] = {
    "tiny": dict(hidden_size=128, intermediate_size=256, num_hidden_layers=2, num_attention_heads=4,
                 num_key_value_heads=2, tie_word_embeddings=True),
    "1.5b": dict(hidden_size=1536, intermediate_size=8960, num_hidden_layers=28, num_attention_heads=12,
                 num_key_value_heads=2, tie_word_embeddings=True, vocab_size=151_936),
    "7b": dict(hidden_size=3584, intermediate_size=18_944, num_hidden_layers=28, num_attention_heads=28,
               num_key_value_heads=4, tie_word_embeddings=False, vocab_size=152_064),
}  # fmt: skip
"""Qwen2.5's 1.5B and 7B; tiny, with the tokenizer's own vocabulary, is for a machine without a GPU."""
Length = tuple[int, int]
Columns = Mapping[str, Mapping[str, float | None]]  # by heading, then by measure


def add_model_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags that choose the model, its workload and its engine, the same for every benchmark."""
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--model", help="folder of a chat model")
    which.add_argument("--dummy", choices=DUMMY_SHAPES, help="a model of that size with random weights, made here")
    parser.add_argument("--tokenizer", help="with --dummy: the folder that gives tokenizer and chat template")
    parser.add_argument(
        "--prompts", type=int, default=32, help="GSM8K prompts of a step and rank (default %(default)s)"
    )
    parser.add_argument("--generations", type=int, default=8, help="completions of a prompt (default %(default)s)")
    parser.add_argument(
        "--completion", type=int, default=512, help="tokens of a completion at most (default %(default)s)"
    )
    parser.add_argument("--kv-cache-gib", type=float, default=8.0, help="KV cache of an engine (default 8)")
    parser.add_argument("--set", action="append", default=[], metavar="key=value", help="any other setting")
    parser.add_argument("--out", type=Path, help="also write the result there, as JSON")
    parser.add_argument("--local_rank", type=int, help=argparse.SUPPRESS)  # given by the launcher, read from its env


def parse(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """The arguments; a dummy model without a tokenizer is refused."""
    arguments = parser.parse_args()
    if arguments.dummy and not arguments.tokenizer:
        parser.error("--dummy makes weights alone: give --tokenizer FOLDER as well")
    for name in ("prompts", "generations", "completion", "request", "steps", "repeats"):
        if getattr(arguments, name, 1) < 1:
            parser.error(f"--{name} {getattr(arguments, name)}: at least 1")
    if arguments.out and not arguments.out.absolute().parent.is_dir():
        parser.error(f"--out {arguments.out}: there is no folder {arguments.out.parent}")
    return arguments


def model_folder(arguments: argparse.Namespace, folder: Path) -> str:
    """The model that the flags name; a dummy is written into `folder` first."""
    if arguments.dummy is None:
        return arguments.model
    target = folder / f"dummy-{arguments.dummy}"
    tokenizer = load_tokenizer(PolicySettings(model=arguments.tokenizer))
    shape = {"vocab_size": len(tokenizer)} | DUMMY_SHAPES[arguments.dummy]
    config = transformers.Qwen2Config(
        **shape,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    with torch.device("meta"):
        lm = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    lm.to_empty(device="cpu").tie_weights()
    # One draw for all, shifted from weight to weight: a draw for each of a 7B's takes minutes.
    noise = torch.randn(NOISE_NUMEL, generator=torch.Generator().manual_seed(0)).mul(0.02).bfloat16()
    for name, weight in lm.named_parameters():
        if weight.dim() == 1:
            weight.data.fill_(1.0 if "norm" in name else 0.0)
            continue
        noise = noise.roll(NOISE_NUMEL // 7)
        for part in weight.data.view(-1).split(NOISE_NUMEL):
            part.copy_(noise[: len(part)])
    lm.save_pretrained(target)
    tokenizer.save_pretrained(target)
    return str(target)


def bench_config(
    arguments: argparse.Namespace, model: str, folder: Path, *, gradient_checkpointing: bool = False, **training: Any
) -> Config:
    """The run that the flags describe, without a task model. Raises UserError for a setting that is none."""
    settings = {
        "output_dir": str(folder),
        "objective": "solve",
        "policy": {"model": model, "gradient_checkpointing": gradient_checkpointing},
        "data": {"tasks": ["gsm8k"]},
        "rollout": {
            "num_generations": arguments.generations,
            "max_prompt_length": MAX_PROMPT_LENGTH,
            "max_completion_length": arguments.completion,
            "kv_cache_gib": arguments.kv_cache_gib,
        },
        "selection": {"eval_steps": 0},  # a look at dev is no part of a step
        "training": {"max_steps": 1, "per_device_train_batch_size": arguments.generations,
                     "gradient_accumulation_steps": arguments.prompts, **training},
    }  # fmt: skip
    path = folder / f"bench-{os.getpid()}.json"
    path.write_text(json.dumps(settings), encoding="utf-8")
    return load_config(path, arguments.set)


def gsm8k_problems(count: int) -> list[str]:
    """The first problems of the shuffled train split, from PREWRITE_DATA or the hub. UserError for too many."""
    examples = load_examples(get_task("gsm8k"), "train")
    if count > len(examples):
        raise UserError(
            f"all steps together take {count} GSM8K problems, and there are {len(examples)}: lower --prompts or --steps"
        )
    return [example.fields["problem"] for example in examples[:count]]


def chat_request(problem: str, tokenizer: Any) -> list[int]:
    """Token ids of the problem as one user turn."""
    turn = [{"role": "user", "content": problem}]
    text = tokenizer.apply_chat_template(turn, add_generation_prompt=True, tokenize=False)
    return tokenizer(text, add_special_tokens=False)["input_ids"]


def parity(completion_ids: Sequence[int]) -> float:
    """A reward that costs nothing: 0 or 1 by the completion's length and last token.

    Truncated completions are equally long, and a group of equal rewards is not trained on: hence the last token.
    """
    return float((len(completion_ids) + sum(completion_ids[-1:])) % 2)


class PhaseMeter:
    """Seconds and peak memory in use of the device by phase; "rest" outside every `phase`.

    An inner phase's seconds do not count for the outer one. Memory is the device's own (`torch.cuda.mem_get_info`, all
    that is not free, whoever holds it), looked at every 50 ms by a thread; there is none on the CPU.
    """

    def __init__(self) -> None:
        self.peaks: dict[str, int] = defaultdict(int)
        self._on_gpu = torch.cuda.is_available()
        self._device = torch.cuda.current_device() if self._on_gpu else None  # a new thread would look at the first
        self._seconds: dict[str, float] = defaultdict(float)
        self._phases = ["rest"]
        self._since = time.perf_counter()
        self._over = threading.Event()
        self._watcher = threading.Thread(target=self._watch_memory, daemon=True)

    def __enter__(self) -> "PhaseMeter":
        if self._on_gpu:
            self._watcher.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._over.set()
        if self._watcher.is_alive():
            self._watcher.join()

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Time and memory within the block belong to the phase."""
        self._book()
        self._phases.append(name)
        try:
            yield
        finally:
            self._book()
            self._phases.pop()

    def take(self) -> dict[str, float]:
        """Seconds of each phase since the last `take`."""
        self._book()
        seconds, self._seconds = dict(self._seconds), defaultdict(float)
        return seconds

    def _book(self) -> None:
        if self._on_gpu:
            torch.cuda.synchronize()
        now = time.perf_counter()
        self._seconds[self._phases[-1]] += now - self._since
        self._since = now

    def _watch_memory(self) -> None:
        while not self._over.wait(MEMORY_LOOK_SECONDS):
            phase = self._phases[-1]
            free, total = torch.cuda.mem_get_info(self._device)
            self.peaks[phase] = max(self.peaks[phase], total - free)


@dataclass(frozen=True)
class TrainingFlops:
    """Floating-point operations of a forward and backward pass that the algorithm needs.

    Recomputed activations and padding are no part of it; a request counts for each of its completions. The backward
    pass counts twice the forward, but once for a weight that is frozen. The output head runs on completion tokens
    alone. Attention is causal: half of the length's square. An adapter's own operations are left out: some percent of
    its layers'.
    """

    per_position: int
    per_completion_token: int
    per_squared_position: int

    @classmethod
    def of(cls, model: str, *, is_frozen: bool = False) -> "TrainingFlops":
        """For a model folder; no weights are loaded. is_frozen: an adapter is trained in place of the weights."""
        of_weight = 4 if is_frozen else 6
        config = transformers.AutoConfig.from_pretrained(model)
        with torch.device("meta"):
            lm = transformers.AutoModelForCausalLM.from_config(config)
        head = lm.get_output_embeddings()
        linears = [module for module in lm.modules() if isinstance(module, torch.nn.Linear) and module is not head]
        head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        return cls(
            of_weight * sum(linear.weight.numel() for linear in linears),
            of_weight * head.weight.numel(),
            6 * config.num_hidden_layers * config.num_attention_heads * head_dim,
        )

    def total(self, lengths: Sequence[Length]) -> int:
        """Of sequences, each without its last token, whose prediction nobody asks for."""
        return sum(
            self.per_position * (prompt + completion - 1)
            + self.per_completion_token * completion
            + self.per_squared_position * (prompt + completion - 1) ** 2
            for prompt, completion in lengths
        )


def matmul_flops_per_second(repeats: int = 50) -> float:
    """What the device reaches on a large bf16 matrix product: the ceiling that utilisation is held against."""
    on_gpu = torch.cuda.is_available()
    size = 8192 if on_gpu else 512
    left, right = (torch.randn(size, size, device="cuda" if on_gpu else "cpu", dtype=torch.bfloat16) for _ in range(2))
    seconds = time_call(lambda: [left @ right for _ in range(repeats)], repeats=3)
    return 2 * size**3 * repeats / seconds


def time_call(call: Callable[[], Any], *, repeats: int) -> float:
    """Median seconds of `call()`, the device's work included, after one call to warm up."""
    seconds = []
    for _ in range(repeats + 1):
        start = time.perf_counter()
        call()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - start)
    return sorted(seconds[1:])[repeats // 2]


def device_name() -> str:
    return torch.cuda.get_device_name() if torch.cuda.is_available() else f"CPU, {os.cpu_count()} cores"


def show_heading(arguments: argparse.Namespace, ranks: int) -> None:
    """What a table of results must not be without: device, software, model and flags."""
    model = arguments.model or f"dummy {arguments.dummy}"
    print(f"\n{device_name()} x {ranks}, torch {torch.__version__}, {model}; {' '.join(sys.argv[1:])}", flush=True)


def show_table(title: str, columns: Columns) -> None:
    """A Markdown table on stdout: a row a measure; None and missing ones are blank."""
    lines = [f"\n{title}\n", f"| | {' | '.join(columns)} |", f"|{' --- |' * (len(columns) + 1)}"]
    for name in dict.fromkeys(name for column in columns.values() for name in column):
        lines.append(f"| {name} | {' | '.join(_cell(column.get(name)) for column in columns.values())} |")
    print("\n".join(lines), flush=True)


def _cell(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.4g}" if abs(value) < 1000 else f"{value:,.0f}"


def write_result(arguments: argparse.Namespace, ranks: int, **result: Any) -> None:
    """The result as JSON where --out says, with device and flags."""
    if arguments.out is not None:
        about = {"device": device_name(), "ranks": ranks, "arguments": sys.argv[1:]}
        arguments.out.write_text(json.dumps(about | result, indent=2) + "\n", encoding="utf-8")

"""The work of `python -m prewrite.rewrite`: instructions in, rewrites out, read and cleaned as in training."""

import argparse
import contextlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from prewrite.asking import MINI_BATCH
from prewrite.asking.cleaning import clean_rewrite
from prewrite.asking.guards import wording_fault
from prewrite.config import PolicySettings, RolloutSettings
from prewrite.config.loading import load_config
from prewrite.engine import distributed
from prewrite.engine.adapter import whole_model
from prewrite.engine.policy import load_tokenizer, quiet_libraries
from prewrite.engine.sampler import Sampler
from prewrite.errors import UserError
from prewrite.model_folder import refuse_no_model
from prewrite.tasks.files import instruction_row, read_instruction_rows
from prewrite.training.rollout import build_requests
from prewrite.types import InstructionRow, Sample
from prewrite.writing import has_half_character, write_whole

NO_TASK = "none"
_LISTS = (".jsonl", ".csv", ".parquet")
_WEIGHTS = ("*.safetensors", "*.bin", "*.pt")


@dataclass(frozen=True)
class Written:
    """What became of one instruction. rewrites: different ones, in order; num_faulty: empty, truncated, or unusable."""

    row: InstructionRow
    rewrites: tuple[str, ...]
    num_faulty: int


def rewrite(arguments: argparse.Namespace) -> list[Written]:
    """The rewrites of every instruction. Raises UserError, before a model loads where it can be known by then."""
    if not arguments.rewriter.strip() or has_half_character(arguments.rewriter):
        raise UserError(f"--rewriter {arguments.rewriter!a}: give a model's folder or its name on the hub")
    rows = _rows(arguments.instructions)
    policy, rollout, seed = _settings(arguments)
    out: Path = arguments.out
    if out.is_dir() or not os.access(out.parent, os.W_OK):
        raise UserError(f"{out}: cannot be written; give a file in a folder that exists and is writable, with --out")
    quiet_libraries()
    counts = [arguments.samples or 1] * len(rows)
    dtype, runs_its_code = getattr(torch, policy.dtype), policy.trust_remote_code
    with contextlib.ExitStack() as stack:
        whole = whole_model("--rewriter", policy.model, dtype=dtype, trust_remote_code=runs_its_code)
        folder = stack.enter_context(whole)
        refuse_no_model("--rewriter", folder)
        if os.path.isdir(folder) and not any(any(Path(folder).glob(weights)) for weights in _WEIGHTS):
            raise UserError(f"--rewriter {folder!r} holds no weights; the rule: a folder with one of {_WEIGHTS}")
        policy = policy.model_copy(update={"model": folder})
        requests = build_requests(rows, tokenizer := load_tokenizer(policy), rollout)
        world = distributed.start()
        stack.callback(distributed.stop)
        print(f"loading the rewriter, {arguments.rewriter}, into a vLLM engine, about a minute", flush=True)
        sampler = Sampler(policy, rollout, tokenizer, world, seed=seed)
        stack.callback(sampler.close)
        samples = sampler.sample(requests, counts, greedy=arguments.samples is None)
    return [_written(row, own, rollout.meta_instruction) for row, own in zip(rows, samples, strict=True)]


def rewrite_prompts(rewriter: str, prompts: Path) -> Path:
    """The greedy rewrites of a list, in a file beside it that `evaluate.py --prompts` reads. Raises UserError."""
    if prompts.suffix.lower() not in _LISTS:
        endings = ", ".join(_LISTS)
        raise UserError(f"{prompts}: --rewriter rewrites a list: a {endings} file with the column `instruction`")
    out = prompts.with_name(f"{prompts.stem}.rewrites.jsonl")
    given = {"rewriter": rewriter, "instructions": str(prompts), "samples": None, "config": None, "overrides": []}
    written = rewrite(argparse.Namespace(**given, out=out))
    write_whole(out, as_jsonl(written))
    print(f"{told(written)}\n\nwritten: {out}\n", flush=True)
    return out


def as_jsonl(written: Sequence[Written]) -> str:
    """A line a rewrite, under the key that `evaluate.py --prompts` reads in a list. UserError where there is none."""
    lines = []
    for one in written:
        known = {key: getattr(one.row, key) for key in ("dataset_name", "subject", "level", "tags")}
        known = {key: value for key, value in known.items() if value and value != NO_TASK}
        lines += [{"instruction": text, "rewrite_of": one.row.instruction} | known for text in one.rewrites]
    if not lines:
        way_out = "raise that (--set), or look whether the model thinks first (rollout.chat_template_kwargs)"
        raise UserError(f"none of the completions holds a rewrite: empty, or cut at max_completion_length; {way_out}")
    return "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)


def told(written: Sequence[Written]) -> str:
    """Each instruction with its rewrites, for the console."""
    lines: list[str] = []
    for one in written:
        lines.append(one.row.instruction)
        lines += [f"  -> {' '.join(text.split())}" for text in one.rewrites]
        lines += [f"  ({one.num_faulty} without a usable rewrite)"] if one.num_faulty else []
    return "\n".join(lines)


def _rows(given: str) -> list[InstructionRow]:
    path = Path(given)
    if path.suffix.lower() not in _LISTS:
        if not given.strip():
            raise UserError("--instructions: the text is empty; give an instruction, or a file of them")
        if os.path.exists(path):
            raise UserError(f"--instructions {given!r} is there, and no {', '.join(_LISTS)} file: is it a text?")
        return [instruction_row({"instruction": given.strip(), "dataset_name": NO_TASK}, "--instructions")]
    return read_instruction_rows(path, default_task=NO_TASK)


def _settings(arguments: argparse.Namespace) -> tuple[PolicySettings, RolloutSettings, int]:
    of_run = Path(arguments.rewriter).absolute().parent.parent / "config.json"
    path = arguments.config or (of_run if of_run.is_file() else None)
    if path is None and arguments.overrides:
        raise UserError(f"--set: there is no config to set it in: none at {of_run}; give one with --config")
    policy, rollout, seed = PolicySettings(model=arguments.rewriter), RolloutSettings(), 1
    if path is not None:
        config = load_config(path, arguments.overrides)
        policy, rollout, seed = config.policy, config.rollout, config.seed
    # One process and a few texts: no other rank to share an engine with, nothing to make room for, no time to compile.
    alone = {"vllm_tensor_parallel_size": 1, "sleep_level": 0, "enforce_eager": True}
    return policy.model_copy(update={"model": arguments.rewriter}), rollout.model_copy(update=alone), seed


def _written(row: InstructionRow, samples: Sequence[Sample], meta_instruction: str) -> Written:
    usable: list[str] = []
    for sample in samples:
        text = clean_rewrite(sample.text)
        has_fault = MINI_BATCH.fault(sample, text, row, ()) or wording_fault(text, row.instruction, meta_instruction)
        usable += [] if has_fault else [text]
    return Written(row, tuple(dict.fromkeys(usable)), len(samples) - len(usable))

"""What a label bias alone is worth: the initial instruction, each label's score shifted by a constant fitted on train.

A label's score is the log-probability that a forced choice begins with a piece of text that begins this label only:
from there on the label is decided, so this is the forced choice's own distribution, at one call a row. The endpoint has
to give log-probabilities (`logprobs`, `top_logprobs`). The constants, and one scale, are those of the greatest
likelihood of the train rows' golds; the scale is divided out again. Batch calibration (arXiv 2309.17249) shifts the
scores in the same way, without golds.
Legend: N rows, L labels.
"""

import argparse
import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any

import aiohttp
import numpy as np
from scipy.optimize import minimize

from prewrite.config import TaskModelSettings
from prewrite.engine.forced_choice import ForcedChoice
from prewrite.engine.task_wire import request_body
from prewrite.errors import UserError
from prewrite.tasks.base import Task
from prewrite.types import Example
from scripts.benchmarks.asking import Bench, instruction_questions

TOP_PIECES = 20  # as many as vLLM gives; prefixes of a task's labels that are pieces are fewer
MOST_SHARED = 0.05
LEAST_PROBABILITY = 1e-9
RIDGE = 1e-3  # a label that no row has would go to minus infinity


def label_bias(bench: Bench, budget: int) -> dict[str, Any]:
    """Fits the constants on as many train rows as calls are paid. Raises UserError where pieces do not tell labels."""
    task, rows = bench.task, bench.train[:budget]
    score_NL = label_scores(task, bench.arguments, rows)
    target_N = np.array([task.labels.index(str(example.target)) for example in rows])
    bias_L = fit_bias(score_NL, target_N)
    bias = dict(zip(task.labels, (round(float(bias), 4) for bias in bias_L), strict=True))
    told = {"instruction": task.default_instruction, "paid": len(rows), "wire_calls": len(rows), "bias": bias}
    return told | {"train": [round(float(mean), 4) for mean in _accuracies(score_NL, target_N, bias_L)]}


def biased_marks(task: Task, score_NL: np.ndarray, examples: Sequence[Example], bias: Mapping[str, float]) -> str:
    """One character an example: 1 right, 0 wrong."""
    chosen_N = (score_NL + np.array([bias[label] for label in task.labels])).argmax(axis=1)
    return "".join(str(int(task.labels[i] == ex.target)) for i, ex in zip(chosen_N, examples, strict=True))


def fit_bias(score_NL: np.ndarray, target_N: np.ndarray) -> np.ndarray:
    """The constants b of softmax(scale * score + scale * b) with the greatest likelihood, their mean 0."""
    rows = np.arange(len(target_N))

    def loss(at: np.ndarray) -> float:
        logit_NL = np.exp(at[0]) * score_NL + at[1:]
        logit_NL -= logit_NL.max(axis=1, keepdims=True)
        logprob_N = logit_NL[rows, target_N] - np.log(np.exp(logit_NL).sum(axis=1))
        return float(-logprob_N.mean() + RIDGE * (at**2).sum())

    at = minimize(loss, np.zeros(1 + score_NL.shape[1]), method="BFGS").x
    bias_L = at[1:] / np.exp(at[0])
    return bias_L - bias_L.mean()


def label_scores(task: Task, arguments: argparse.Namespace, examples: Sequence[Example]) -> np.ndarray:
    """Log-probability of each label as the forced choice of the initial instruction, [N, L]; one call a row."""
    settings = TaskModelSettings(model=arguments.model, max_tokens=1)
    (question,) = instruction_questions(task, [task.default_instruction], examples)
    asked = {"logprobs": True, "top_logprobs": TOP_PIECES}
    forced = ForcedChoice("structured_outputs", task.labels)
    bodies = [request_body(call, settings, None, forced) | asked for call in question.calls("forced_choice")]
    pieces = asyncio.run(_first_pieces(bodies, arguments.base_urls, arguments.concurrency))
    probability_NL = np.array([[_probability(each, label, task.labels) for label in task.labels] for each in pieces])
    shared = 1 - probability_NL.sum(axis=1).mean()
    if shared > MOST_SHARED:
        raise UserError(
            f"label_bias: {shared:.0%} of the forced choices of {task.name} begin with a piece that begins several "
            "labels: such labels cannot be told apart by it"
        )
    return np.log(np.maximum(probability_NL, LEAST_PROBABILITY))


def _probability(pieces: Mapping[str, float], label: str, labels: Sequence[str]) -> float:
    """Of the pieces that begin this label and no other."""
    begun = {piece: [other for other in labels if other.startswith(piece)] for piece in pieces}
    return float(sum(np.exp(logprob) for piece, logprob in pieces.items() if begun[piece] == [label]))


async def _first_pieces(bodies: Sequence[Any], urls: Sequence[str], concurrency: int) -> list[dict[str, float]]:
    """Of each body the first pieces of its answer that were possible, with their log-probabilities."""
    slots = asyncio.Semaphore(concurrency * len(urls))
    limits = {"connector": aiohttp.TCPConnector(limit=0), "timeout": aiohttp.ClientTimeout(total=300)}

    async def one(number: int, body: Any) -> dict[str, float]:
        url = f"{urls[number % len(urls)].rstrip('/')}/chat/completions"
        async with slots, session.post(url, json=body) as reply:
            text = await reply.text()
        try:
            first = json.loads(text)["choices"][0]["logprobs"]["content"][0]
            return {piece["token"]: piece["logprob"] for piece in first["top_logprobs"]}
        except (ValueError, LookupError, TypeError) as error:
            rule = f"{url} gives no log-probabilities (logprobs, top_logprobs), which it needs, as vLLM's server does"
            raise UserError(f"label_bias: {rule}; it said {' '.join(text[:300].split())}") from error

    async with aiohttp.ClientSession(**limits) as session:
        return await asyncio.gather(*(one(number, body) for number, body in enumerate(bodies)))


def _accuracies(score_NL: np.ndarray, target_N: np.ndarray, bias_L: np.ndarray) -> tuple[float, float]:
    plain, shifted = ((s.argmax(axis=1) == target_N).mean() for s in (score_NL, score_NL + bias_L))
    return float(plain), float(shifted)

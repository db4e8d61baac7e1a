"""Our rollout against vLLM's own `LLM.generate`, and our scoring client against the clients that vLLM's server allows.

    python -m scripts.benchmarks.rollout --model FOLDER
    python -m scripts.benchmarks.rollout --model FOLDER --parts scoring --concurrency 64 256

rollout: the same prompts on the same engine; ours also gives texts and log-probs as records.
scoring: SST-2 queries, forced choice, on one server whose prefix cache has seen them all before. `vllm bench serve`
sends the same requests, but can only stream the answers; an aiohttp loop sends the very same bodies, unstreamed.
"""

import argparse
import asyncio
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import aiohttp

from prewrite.config import TaskModelSettings
from prewrite.engine import distributed
from prewrite.engine.policy import load_tokenizer, quiet_libraries
from prewrite.engine.sampler import Sampler
from prewrite.engine.task_model import TaskModel
from prewrite.engine.task_server import TaskServer
from prewrite.engine.task_wire import request_body
from prewrite.tasks import get_task
from prewrite.tasks.base import query
from prewrite.tasks.loading import load_examples
from prewrite.types import Call
from scripts.benchmarks.asking import exit_code
from scripts.benchmarks.common import (
    Columns,
    add_model_arguments,
    bench_config,
    chat_request,
    gsm8k_problems,
    model_folder,
    parse,
    show_heading,
    show_table,
    write_result,
)

# The command `vllm bench serve`, which the CPU package's own entry point does not start.
BENCH_SERVE = (
    "from vllm.benchmarks.serve import add_cli_args, main; "
    "from vllm.utils.argparse_utils import FlexibleArgumentParser; "
    "parser = FlexibleArgumentParser(); add_cli_args(parser); main(parser.parse_args())"
)


def measure_rollout(arguments: argparse.Namespace, model: str, folder: Path) -> Columns:
    """Tokens a second of each way to sample, the ways taken in turn so that none has the warmer card."""
    from vllm import SamplingParams

    config = bench_config(arguments, model, folder)
    tokenizer = load_tokenizer(config.policy)
    requests = [chat_request(problem, tokenizer) for problem in gsm8k_problems(arguments.prompts)]
    with contextlib.ExitStack() as stack:
        world = distributed.start()
        stack.callback(distributed.stop)
        sampler = Sampler(config.policy, config.rollout, tokenizer, world, seed=config.seed)
        stack.callback(sampler.close)

        def ours() -> int:
            samples = sampler.sample(requests, [arguments.generations] * len(requests))
            return sum(len(sample.completion_ids) for group in samples for sample in group)

        def raw(copies: int, **fields: Any) -> int:
            sampling = SamplingParams(n=arguments.generations // copies, max_tokens=arguments.completion,
                                      temperature=1.0, detokenize=False, **fields)  # fmt: skip
            prompts = [{"prompt_token_ids": request} for request in requests for _ in range(copies)]
            outputs = sampler.engine.generate(prompts, sampling, use_tqdm=False)
            return sum(len(completion.token_ids) for output in outputs for completion in output.outputs)

        logprobs = {"logprobs": 0, "flat_logprobs": True}
        ways: dict[str, Callable[[], int]] = {
            "Sampler.sample": ours,
            "LLM.generate, log-probs": lambda: raw(1, **logprobs),
            "LLM.generate, log-probs, a request a completion": lambda: raw(arguments.generations, **logprobs),
            "LLM.generate, no log-probs": lambda: raw(1),
        }
        rates: dict[str, list[float]] = {name: [] for name in ways}
        for repeat in range(arguments.repeats + 1):
            for name, way in ways.items():
                sampler.engine.reset_prefix_cache()
                start = time.perf_counter()
                rate = way() / (time.perf_counter() - start)
                print(f"{name}: {rate:,.0f} tokens/s", file=sys.stderr, flush=True)
                if repeat:  # the first warms up
                    rates[name].append(rate)
    return with_ratios({name: statistics.median(own) for name, own in rates.items()}, "tokens/s")


def measure_scoring(arguments: argparse.Namespace, model: str, folder: Path) -> dict[str, Columns]:
    """Calls a second of each client, by concurrency; a table as soon as it is known."""
    task = get_task("sst2")
    examples = load_examples(task, "train")[: arguments.calls]
    calls = [Call(query(task, task.default_instruction, example), task.labels) for example in examples]
    tables = {}
    settings = TaskModelSettings(model=model, max_tokens=8, kv_cache_gib=arguments.kv_cache_gib, max_retries=0)
    with TaskServer(settings, log_path=folder / "server.log") as server:
        ours(settings, server.base_url, calls)  # fills the server's prefix cache
        for concurrency in arguments.concurrency:
            own = settings.model_copy(update={"concurrency": concurrency})
            bodies = request_bodies(own, server.base_url, calls)
            pairs = [
                (ours(own, server.base_url, calls), asyncio.run(aiohttp_loop(server.base_url, bodies, concurrency)))
                for _ in range(arguments.repeats)
            ]
            rates = {
                "TaskModel.ask": statistics.median(mine for mine, _ in pairs),
                "aiohttp loop": statistics.median(bare for _, bare in pairs),
                "vllm bench serve (streams)": vllm_bench_serve(server.base_url, bodies, concurrency, folder),
            }
            tables[str(concurrency)] = with_ratios(rates, "calls/s")
            show_table(f"Scoring, {arguments.calls} calls, {concurrency} at once", tables[str(concurrency)])
    return tables


def ours(settings: TaskModelSettings, base_url: str, calls: Sequence[Call]) -> float:
    """Calls a second of a fresh client, whose own cache is empty."""
    with TaskModel(settings, base_url=base_url) as task_model:
        start = time.perf_counter()
        answers = task_model.ask(calls)
        seconds = time.perf_counter() - start
    assert all(answer.error is None for answer in answers), next(answer for answer in answers if answer.error)
    return len(calls) / seconds


def request_bodies(settings: TaskModelSettings, base_url: str, calls: Sequence[Call]) -> list[dict[str, Any]]:
    with TaskModel(settings, base_url=base_url) as task_model:
        return [request_body(call, task_model.settings, task_model.seed) for call in calls]


async def aiohttp_loop(base_url: str, bodies: Sequence[dict[str, Any]], concurrency: int) -> float:
    """Calls a second of the least client: a connection pool, and the answer's text read from the JSON."""
    connections = aiohttp.TCPConnector(limit=concurrency)
    async with aiohttp.ClientSession(connector=connections, timeout=aiohttp.ClientTimeout(total=None)) as session:

        async def ask(body: dict[str, Any]) -> str:
            async with session.post(f"{base_url}/chat/completions", json=body) as reply:
                reply.raise_for_status()
                return (await reply.json())["choices"][0]["message"]["content"]

        start = time.perf_counter()
        await asyncio.gather(*(ask(body) for body in bodies))
        return len(bodies) / (time.perf_counter() - start)


def vllm_bench_serve(base_url: str, bodies: Sequence[dict[str, Any]], concurrency: int, folder: Path) -> float:
    """Calls a second as vLLM's own benchmark reports them, for the same queries and fields, in the same order."""
    prompts, result = folder / "queries.jsonl", folder / "bench_serve.json"
    prompts.write_text("".join(json.dumps({"prompt": body["messages"][-1]["content"]}) + "\n" for body in bodies))
    model, max_tokens = bodies[0]["model"], bodies[0]["max_tokens"]
    fields = {name: value for name, value in bodies[0].items() if name not in ("model", "messages", "max_tokens")}
    command = [
        *(sys.executable, "-c", BENCH_SERVE, "--backend", "openai-chat", "--model", model),
        *("--base-url", base_url.removesuffix("/v1"), "--endpoint", "/v1/chat/completions"),
        *("--dataset-name", "custom", "--dataset-path", str(prompts), "--num-prompts", str(len(bodies))),
        *("--skip-chat-template", "--disable-shuffle", "--custom-output-len", str(max_tokens)),
        *("--max-concurrency", str(concurrency), "--extra-body", json.dumps(fields), "--disable-tqdm"),
        *("--save-result", "--result-dir", str(folder), "--result-filename", result.name),
    ]
    env = os.environ | {"no_proxy": "127.0.0.1"}  # it would go through a proxy of the environment
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=env)
    told = json.loads(result.read_text("utf-8"))
    assert told["completed"] == len(bodies), f"vllm bench serve: {told['completed']} of {len(bodies)} calls succeeded"
    return told["request_throughput"]


def with_ratios(rates: dict[str, float], unit: str) -> Columns:
    """The rates, and the first one, which is ours, over each."""
    mine = next(iter(rates.values()))
    return {unit: rates, "ours / this": {name: mine / rate for name, rate in rates.items()}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_model_arguments(parser)
    parser.add_argument("--parts", nargs="+", choices=["rollout", "scoring"], default=["rollout", "scoring"])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--calls", type=int, default=4096, help="scoring: requests (default 4096)")
    parser.add_argument("--concurrency", type=int, nargs="+", default=[64, 256])
    arguments = parse(parser)
    quiet_libraries()
    show_heading(arguments, 1)
    result: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as name:
        model = model_folder(arguments, Path(name))
        if "scoring" in arguments.parts:  # first: the engine of the other part stays on the device until the end
            result["scoring"] = measure_scoring(arguments, model, Path(name))
            write_result(arguments, 1, **result)
        if "rollout" in arguments.parts:
            result["rollout"] = measure_rollout(arguments, model, Path(name))
            show_table(f"Rollout, median of {arguments.repeats}", result["rollout"])
            write_result(arguments, 1, **result)


if __name__ == "__main__":
    sys.exit(exit_code(main))

"""Verdict tables for a replay: many untrained rewrites of a task's instruction, each on the same train examples.

    PYTHONPATH=. python scripts/benchmarks/verdicts.py --task gsm8k --base-urls http://127.0.0.1:8000/v1 --model NAME \
        --out docs/runs

One file a task, `verdicts-<task>.jsonl`: first the run (with the ids of the examples and all rewrites), then a line a
rewrite with one mark an example (1 right, 0 wrong, - no verdict) and the index of the label given. A run that was ended
goes on where it stopped. With --label-logprobs a forced choice's line also says how likely each gold was (hundredths of
a nat). With --meta-instructions, a JSON list, each of them asks for its part of the rewrites, named "m/n".
"""

import argparse
import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from prewrite.config.rollout import META_INSTRUCTION
from prewrite.tasks import get_task
from prewrite.tasks.loading import load_examples
from scripts.benchmarks.asking import (
    BY_HAND,
    REWRITE_TOKENS,
    Lines,
    Servers,
    add_arguments,
    as_marks,
    ask_and_grade,
    commit,
    draw_rewrites,
    exit_code,
    mean_of_marks,
)

AT_ONCE = 6


def main() -> None:
    """Reads the flags, asks, writes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser)
    parser.add_argument("--task", required=True)
    parser.add_argument("--rewrites", type=int, default=150, help="beside the initial and the hand's (default 150)")
    parser.add_argument("--examples", type=int, default=200, help="train rows, the same for all (default 200)")
    parser.add_argument("--meta-instructions", type=Path, help="JSON list of texts that ask for a rewrite")
    parser.add_argument("--label-logprobs", action="store_true", help="also keep how likely each gold was")
    arguments = parser.parse_args()
    task = get_task(arguments.task)
    examples = load_examples(task, "train", seed=arguments.seed)[: arguments.examples]
    lines = Lines(arguments.out / f"verdicts-{task.name}.jsonl")
    metas = json.loads(arguments.meta_instructions.read_text()) if arguments.meta_instructions else [META_INSTRUCTION]
    servers = Servers(
        arguments, temperature=0.0, max_tokens=arguments.max_tokens, label_logprobs=arguments.label_logprobs
    )
    started = time.monotonic()
    if not lines.records:
        proposer = Servers(arguments, temperature=1.0, max_tokens=REWRITE_TOKENS)
        drawn: dict[str, str] = {}
        for number, meta in enumerate(metas):
            texts, _ = draw_rewrites(
                proposer,
                task.default_instruction,
                arguments.rewrites // len(metas),
                seed=arguments.seed,
                meta_instruction=meta,
            )
            drawn |= {f"{number}/{n}" if len(metas) > 1 else str(n): text for n, text in enumerate(texts)}
        asked = proposer.calls
        proposer.close()
        fixed = {"initial": task.default_instruction, "by_hand": BY_HAND[task.name]}
        lines.append(
            {
                "task": task.name,
                "model": arguments.model,
                "seed": arguments.seed,
                "max_tokens": arguments.max_tokens,
                "commit": commit(),
                "examples": [example.id for example in examples],
                "targets": [example.target for example in examples] if task.labels else None,
                "rewriter_calls": asked,
                "rewriter_seconds": round(time.monotonic() - started, 1),
                "meta_instructions": metas,
                "rewrites": fixed | drawn,
            }
        )
    assert lines.records[0]["examples"] == [example.id for example in examples], "another run's table"
    done = {record["rewrite"] for record in lines.records[1:]}
    todo = {name: text for name, text in lines.records[0]["rewrites"].items() if name not in done}

    def one(name: str) -> None:
        answers, verdicts = ask_and_grade(servers, task, [todo[name]], examples)[0]
        marks = as_marks(verdicts)
        given = [str(task.labels.index(v.prediction)) if v.prediction in task.labels else "-" for v in verdicts]
        lines.append(
            {
                "rewrite": name,
                "marks": marks,
                "cut": sum(answer.finish_reason == "length" for answer in answers),
                "labels": "".join(given) if task.labels else None,
                "target_logprobs": [v.target_logprob and round(100 * v.target_logprob) for v in verdicts]
                if arguments.label_logprobs
                else None,
                "calls": servers.calls,
                "seconds": round(time.monotonic() - started, 1),
            }
        )
        told = f"{len(lines.records) - 1}/{len(lines.records[0]['rewrites'])}"
        print(f"{task.name} {told}: rewrite {name} {mean_of_marks(marks):.3f}", flush=True)

    with ThreadPoolExecutor(AT_ONCE) as threads:
        list(threads.map(one, todo))
    servers.close()
    print(f"{task.name}: {servers.calls} calls, {time.monotonic() - started:.0f} s", flush=True)


if __name__ == "__main__":
    sys.exit(exit_code(main))

"""What the measurements without a trainer share: the servers, the untrained rewriter, one graded pass, JSON lines."""

import argparse
import contextlib
import json
import os
import shutil
import subprocess
import sys
import threading
import zlib
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from prewrite.asking import MINI_BATCH
from prewrite.asking.cleaning import clean_rewrite
from prewrite.asking.questions import Question, Scoring
from prewrite.config import TaskModelSettings
from prewrite.config.loading import validated
from prewrite.config.rollout import META_INSTRUCTION
from prewrite.engine.task_model import TaskModel
from prewrite.errors import UserError
from prewrite.tasks.base import Task
from prewrite.terminal import exit_code as code_of
from prewrite.types import Answer, Call, Example, InstructionRow, Verdict

REWRITE_TOKENS = 256
ROUNDS_OF_DRAWS = 6
BY_HAND = {
    "gsm8k": "Solve this problem. Think step by step, write down every calculation, check the result, and end with the "
    "final number in \\boxed{}.",
    "math-500": "Solve this problem. Think step by step, check the result, and end with the final answer in \\boxed{}.",
    "ag_news": "Which section of a newspaper does this text belong to? World: politics, wars and foreign affairs. "
    "Sports: games, teams and athletes. Business: companies, markets and the economy. Sci/Tech: science, computers and "
    "the internet. Answer with one of World, Sports, Business, Sci/Tech.",
    "boolq": "Read the passage, then answer the question. Answer yes if the passage says that it is so, otherwise no.",
    "sst2": "Is the following sentence positive or negative? Answer with one word: positive or negative.",
    "sentiment": "Is the following sentence positive or negative? Answer with one word: positive or negative.",
    "cb": "Read the premise and the hypothesis. Answer entailment if the premise means that the hypothesis is true, "
    "contradiction if it means that it is false, and neutral if it leaves that open.",
}


def add_arguments(parser: argparse.ArgumentParser, *, asks: bool = True) -> None:
    """The flags of every measurement that asks servers. asks: whether this one does so every time."""
    parser.add_argument(
        "--base-urls", nargs="+", required=asks, help="OpenAI-compatible endpoints that share the calls"
    )
    parser.add_argument("--model", required=asks, help="the name that they serve: task model and rewriter")
    parser.add_argument("--concurrency", type=int, default=128, help="calls under way at each endpoint (default 128)")
    parser.add_argument("--max-tokens", type=int, default=512, help="of an answer (default 512)")
    parser.add_argument(
        "--scoring",
        choices=get_args(Scoring),
        default="forced_choice",
        help="how a classification's answer is asked for, for all (default forced_choice)",
    )
    parser.add_argument("--seed", type=int, default=1, help="of the rows (default 1)")
    parser.add_argument("--out", type=Path, required=True, help="folder of the JSON lines; a run there is gone on with")


class Servers:
    """Endpoints that serve one model and share its calls, each call always at the same one. Safe from any thread.

    UserError for an address that is none, and where more of an endpoint's calls stay failed than a run would bear.
    """

    def __init__(
        self,
        arguments: argparse.Namespace,
        *,
        temperature: float,
        max_tokens: int,
        system_prompt: str | None = None,
        label_logprobs: bool = False,
    ):
        given = {
            "base_url": arguments.base_urls,
            "model": arguments.model,
            "system_prompt": system_prompt,
            "temperature": temperature,
            "max_tokens": max_tokens,
            "label_logprobs": label_logprobs,
            "concurrency": arguments.concurrency,
            "timeout": 300.0,
        }
        settings = validated(TaskModelSettings, given, "--base-urls, --model, --concurrency, --max-tokens")
        self.scoring: Scoring = arguments.scoring
        self.models = [TaskModel(settings, base_url=url) for url in arguments.base_urls]
        self._threads = ThreadPoolExecutor(8 * len(self.models))

    def probe(self) -> None:
        """A first question to each endpoint. UserError where one does not answer it."""
        for model in self.models:
            model.probe()

    def ask(self, calls: Sequence[Call]) -> list[Answer]:
        """The answers, in the order of the calls."""
        shares: list[list[int]] = [[] for _ in self.models]
        for index, call in enumerate(calls):
            shares[zlib.crc32(f"{call.sample_index} {call.query}".encode()) % len(shares)].append(index)
        answers: dict[int, Answer] = {}
        pairs = zip(self.models, shares, strict=True)
        asked = self._threads.map(lambda pair: pair[0].ask([calls[i] for i in pair[1]]), pairs)
        for share, replies in zip(shares, asked, strict=True):
            answers |= dict(zip(share, replies, strict=True))
        for model in self.models:
            model.check_failure_share()
        return [answers[index] for index in range(len(calls))]

    @property
    def calls(self) -> int:
        """Calls over the wire since the start."""
        return sum(model.stats.calls for model in self.models)

    def close(self) -> None:
        """Gives up what is under way."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        for model in self.models:
            model.close()


@dataclass(frozen=True)
class Bench:
    """One task's rows and servers. seed: of this run; train and dev are cut by it as a run of ours cuts them."""

    task: Task
    train: Sequence[Example]
    dev: Sequence[Example]
    servers: Servers
    arguments: argparse.Namespace
    seed: int


def instruction_questions(task: Task, instructions: Sequence[str], examples: Sequence[Example]) -> list[Question]:
    """Each instruction on the same examples, as it is: the question of a row that nobody rewrote."""
    return [Question(MINI_BATCH, task, InstructionRow(text, task.name), text, examples) for text in instructions]


def ask_and_grade(
    servers: Servers, task: Task, instructions: Sequence[str], examples: Sequence[Example]
) -> list[tuple[list[Answer], tuple[Verdict, ...]]]:
    """Answers and verdicts of each instruction, asked as a run asks: query, scoring, the package's grading.

    All calls are under way together: many instructions on few examples fill the servers too.
    """
    questions = instruction_questions(task, instructions, examples)
    calls = [question.calls(servers.scoring) for question in questions]
    answers = servers.ask([call for own in calls for call in own])
    n = len(examples)
    own_answers = [answers[i * n : (i + 1) * n] for i in range(len(instructions))]
    return [
        (own, question.asking.grade(task, question.row, examples, own))
        for question, own in zip(questions, own_answers, strict=True)
    ]


def draw_rewrites(
    proposer: Servers, instruction: str, count: int, *, seed: int, meta_instruction: str = META_INSTRUCTION
) -> tuple[list[str], int]:
    """(up to `count` different rewrites of the untrained rewriter, calls), asked for and cleaned as in a run."""
    request = f"{meta_instruction}\n\n{instruction}"
    found: dict[str, None] = {}
    asked = 0
    for _ in range(ROUNDS_OF_DRAWS):
        wanted = max(8, int(1.2 * (count - len(found))))
        calls = [Call(request, sample_index=seed * 1_000_000 + asked + i) for i in range(wanted)]
        asked += wanted
        for answer in proposer.ask(calls):
            rewrite = clean_rewrite(answer.text or "")
            if rewrite and rewrite != instruction:
                found.setdefault(rewrite)
        if len(found) >= count:
            break
    return list(found)[:count], asked


def as_marks(verdicts: Iterable[Verdict]) -> str:
    """One character an example: 1 right, 0 wrong, - no verdict."""
    return "".join("-" if verdict.correct is None else str(int(verdict.correct)) for verdict in verdicts)


def mean_of_marks(marks: str) -> float:
    """The share of right ones among those with a verdict."""
    return marks.count("1") / max(1, len(marks) - marks.count("-"))


class Lines:
    """A file of JSON lines that is read at the start, appended to and flushed line by line. Safe from any thread."""

    def __init__(self, path: Path):
        """UserError where the folder is none, or a line is no record."""
        if in_the_way := [folder for folder in path.parents if folder.exists() and not folder.is_dir()]:
            raise UserError(
                f"--out {path.parent}: {in_the_way[0]} is a file; give a folder, which is made where needed"
            )
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        whole, _, torn = text.rpartition("\n")
        if torn:  # a kill in the middle of a line
            path.write_text(whole + "\n" if whole else "", encoding="utf-8")
        self.path = path
        # Not `splitlines`: an instruction may hold one of the other characters that it breaks at.
        self.records = [self._record(number, line) for number, line in enumerate(whole.split("\n"), 1) if line]
        self._lock = threading.Lock()

    def _record(self, number: int, line: str) -> dict[str, Any]:
        with contextlib.suppress(json.JSONDecodeError):
            record = json.loads(line)
            if isinstance(record, dict):
                return record
        way_out = "take the line out: what it told is measured again"
        raise UserError(
            f"{self.path}, line {number}: no record ({line[:40]!r}), where each line is a JSON object; {way_out}"
        )

    def append(self, record: dict[str, Any]) -> None:
        """Writes one record, whole, to the disk."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self._lock, self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record, ensure_ascii=False) + "\n")
            self.records.append(record)


def commit() -> str:
    """The commit measured: of this checkout, or, on a machine without git, what the variable COMMIT says."""
    if "COMMIT" in os.environ or shutil.which("git") is None:
        return os.environ.get("COMMIT", "unknown")
    told = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return told.stdout.strip() or "unknown"


def exit_code(main: Callable[[], None]) -> int:
    """Runs a script: 0, 2 after a fault of the user's (one message), 130 after Ctrl-C: the process ends at once."""
    told = "interrupted; what is written stays, and where lines are kept the same command goes on with them"
    code = code_of(Path(sys.argv[0]).name, main, interrupted=told)
    if code == 130:
        sys.stdout.flush()
        os._exit(code)  # threads that wait for answers which nobody wants any more would hold it up
    return code

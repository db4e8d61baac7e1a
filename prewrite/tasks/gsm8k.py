"""GSM8K: grade-school word problems (Cobbe et al. 2021)."""

import re

from prewrite.tasks.base import HubSplit, RawRow, Source, Task

_TRAIN, _TEST = ((HubSplit("openai/gsm8k", split, "main"),) for split in ("train", "test"))
_NOTE = re.compile(r"<<[^<>]*>>")


def _read_hub(row: RawRow) -> RawRow:
    solution, _, gold = row["answer"].rpartition("####")
    answer = gold.strip().replace(",", "")
    return _read_file({"problem": row["question"], "answer": answer, "solution": solution.strip()})


def _read_file(row: RawRow) -> RawRow:
    """Without the calculator's notes in a solution, as <<48/2=24>>."""
    solution = row.get("solution")
    return {**row, "solution": _NOTE.sub("", solution)} if isinstance(solution, str) else row


GSM8K = Task(
    name="gsm8k",
    kind="math",
    fields={"problem": "Question"},
    target="answer",
    default_instruction="Solve the math problem step by step. Put the final answer in \\boxed{}.",
    train=Source("gsm8k_train", _TRAIN, ("gsm8k_train.jsonl",), _read_hub, _read_file),
    test=Source("gsm8k_test (official test split)", _TEST, ("gsm8k_test.jsonl",), _read_hub, _read_file),
    licence="MIT",
)

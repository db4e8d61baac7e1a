"""GSM8K: grade-school word problems (Cobbe et al. 2021)."""

from prewrite.tasks.base import HubSplit, RawRow, Source, Task


def _read_hub(row: RawRow) -> RawRow:
    solution, _, gold = row["answer"].rpartition("####")
    return {"problem": row["question"], "answer": gold.strip().replace(",", ""), "solution": solution.strip()}


GSM8K = Task(
    name="gsm8k",
    kind="math",
    fields={"problem": "Question"},
    target="answer",
    default_instruction="Solve the math problem step by step. Put the final answer in \\boxed{}.",
    train=Source("gsm8k_train", (HubSplit("openai/gsm8k", "train", "main"),), ("gsm8k_train.jsonl",), _read_hub),
    test=Source(
        "gsm8k_test (official test split)",
        (HubSplit("openai/gsm8k", "test", "main"),),
        ("gsm8k_test.jsonl",),
        _read_hub,
    ),
    licence="MIT",
)

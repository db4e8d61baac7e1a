"""GSM8K: grade-school word problems (Cobbe et al. 2021)."""

from prewrite.tasks.base import HubSplit, Row, Source, Task


def _read_hub(row: Row) -> Row:
    solution, _, gold = row["answer"].rpartition("####")
    return {"problem": row["question"], "answer": gold.strip().replace(",", ""), "solution": solution.strip()}


GSM8K = Task(
    name="gsm8k",
    kind="math",
    fields={"problem": "Question"},
    target="answer",
    default_instruction="Solve the math problem step by step. Put the final answer in \\boxed{}.",
    train=Source(
        label="gsm8k_train",
        hub=(HubSplit("openai/gsm8k", "train", config="main"),),
        files=("gsm8k_train.jsonl",),
        read_hub=_read_hub,
    ),
    test=Source(
        label="gsm8k_test (official test split)",
        hub=(HubSplit("openai/gsm8k", "test", config="main"),),
        files=("gsm8k_test.jsonl",),
        read_hub=_read_hub,
    ),
    licence="MIT",
)

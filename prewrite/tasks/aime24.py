"""AIME 2024, both parts; train and dev are the problems of earlier years."""

from prewrite.tasks.base import HubSplit, Row, Source, Task


def _read_earlier_years(row: Row) -> Row | None:
    if int(row["Year"]) >= 2024:
        return None
    return {"problem": row["Question"], "answer": str(row["Answer"]), "id": row["ID"]}


def _read_test_hub(row: Row) -> Row:
    return {**row, "id": f"2024-{row['id']}"}


EARLIER_YEARS = Source(
    label="aime_1983_2023",
    hub=(HubSplit("di-zhang-fdu/AIME_1983_2024", "train"),),
    files=("aime_1983_2023_train.jsonl",),
    read_hub=_read_earlier_years,
)

AIME24 = Task(
    name="aime24",
    aliases=("aime2024",),
    kind="math",
    fields={"problem": "Problem"},
    target="answer",
    default_instruction="Solve the math problem step by step. The answer is an integer from 0 to 999. "
    "Put it in \\boxed{}.",
    train=EARLIER_YEARS,
    test=Source(
        label="aime2024_test (I and II, 30 problems)",
        hub=(HubSplit("HuggingFaceH4/aime_2024", "train"),),
        files=("aime2024_test.jsonl",),
        read_hub=_read_test_hub,
    ),
    licence="problems (c) MAA",
)

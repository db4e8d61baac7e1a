"""AIME 2025, parts I and II; train and dev are the problems of the years up to 2023."""

from prewrite.tasks.aime24 import AIME24, EARLIER_YEARS
from prewrite.tasks.base import HubSplit, Row, Source, Task


def _read_test_hub(row: Row) -> Row:
    return {"problem": row["question"], "answer": str(row["answer"])}


AIME25 = Task(
    name="aime25",
    aliases=("aime2025",),
    kind="math",
    fields={"problem": "Problem"},
    target="answer",
    default_instruction=AIME24.default_instruction,
    train=EARLIER_YEARS,
    test=Source(
        label="aime2025_test (I and II, 30 problems)",
        hub=tuple(HubSplit("opencompass/AIME2025", "test", config=f"AIME2025-{part}") for part in ("I", "II")),
        files=("aime2025_I_test.jsonl", "aime2025_II_test.jsonl"),
        read_hub=_read_test_hub,
    ),
    licence="problems (c) MAA",
)

"""AIME 2024 and 2025, both parts of each; train and dev are the problems of the years up to 2023."""

from prewrite.tasks.base import HubSplit, RawRow, Source, Task

_INSTRUCTION = "Solve the math problem step by step. The answer is an integer from 0 to 999. Put it in \\boxed{}."


def _read_earlier_years(row: RawRow) -> RawRow | None:
    if int(row["Year"]) >= 2024:
        return None
    return {"problem": row["Question"], "answer": str(row["Answer"]), "id": row["ID"]}


def _read_2024(row: RawRow) -> RawRow:
    return {**row, "id": f"2024-{row['id']}"}


def _read_2025(row: RawRow) -> RawRow:
    return {"problem": row["question"], "answer": str(row["answer"])}


_EARLIER_YEARS = Source(
    "aime_1983_2023",
    (HubSplit("di-zhang-fdu/AIME_1983_2024", "train"),),
    ("aime_1983_2023_train.jsonl",),
    _read_earlier_years,
)

AIME24 = Task(
    name="aime24",
    aliases=("aime2024",),
    kind="math",
    fields={"problem": "Problem"},
    target="answer",
    default_instruction=_INSTRUCTION,
    train=_EARLIER_YEARS,
    test=Source(
        "aime2024_test (I and II, 30 problems)",
        (HubSplit("HuggingFaceH4/aime_2024", "train"),),
        ("aime2024_test.jsonl",),
        _read_2024,
    ),
    licence="problems (c) MAA",
)

AIME25 = Task(
    name="aime25",
    aliases=("aime2025",),
    kind="math",
    fields={"problem": "Problem"},
    target="answer",
    default_instruction=_INSTRUCTION,
    train=_EARLIER_YEARS,
    test=Source(
        "aime2025_test (I and II, 30 problems)",
        tuple(HubSplit("opencompass/AIME2025", "test", config=f"AIME2025-{part}") for part in ("I", "II")),
        ("aime2025_I_test.jsonl", "aime2025_II_test.jsonl"),
        _read_2025,
    ),
    licence="problems (c) MAA",
)

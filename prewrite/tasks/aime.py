"""AIME 2024 and 2025, both parts of each; train and dev are the problems of the years up to 2023."""

from prewrite.tasks.base import HubSplit, RawRow, RowReader, Source, Task


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


def _aime(year: int, hub: tuple[HubSplit, ...], files: tuple[str, ...], read_hub: RowReader) -> Task:
    return Task(
        name=f"aime{year % 100}",
        aliases=(f"aime{year}",),
        kind="math",
        fields={"problem": "Problem"},
        target="answer",
        default_instruction="Solve the math problem step by step. The answer is an integer from 0 to 999. "
        "Put it in \\boxed{}.",
        train=_EARLIER_YEARS,
        test=Source(f"aime{year}_test (I and II, 30 problems)", hub, files, read_hub),
        licence="problems (c) MAA",
    )


_HUB_2025 = tuple(HubSplit("opencompass/AIME2025", "test", config=f"AIME2025-{part}") for part in ("I", "II"))
AIME24 = _aime(2024, (HubSplit("HuggingFaceH4/aime_2024", "train"),), ("aime2024_test.jsonl",), _read_2024)
AIME25 = _aime(2025, _HUB_2025, ("aime2025_I_test.jsonl", "aime2025_II_test.jsonl"), _read_2025)

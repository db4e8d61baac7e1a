"""Data as users of other systems have it, by hand: their columns and spellings, a task of one's own for each."""

import csv
import json
from pathlib import Path
from typing import Any

ROWS = 24


def trl_math(folder: Path) -> dict[str, Any]:
    """A TRL trainer's: problem and worked solution, whose last box is the gold; one has none."""
    rows = [
        {
            "problem": f"Ann has {n} pens and buys {n + 1}. How many has she?",
            "solution": f"She has {n} + {n + 1} = \\boxed{{{2 * n + 1}}} pens." if n else "I do not know.",
            "level": f"Level {1 + n % 5}",
            "type": "Algebra",
        }
        for n in range(ROWS)
    ]
    file = _write_lines(folder / "trl.jsonl", rows)
    return _task("trl_math", {"problem": "Problem"}, "solution", train_file=file, test_size=4, target_from="last_box")


def notebook(folder: Path) -> dict[str, Any]:
    """A notebook's: question and answer as GSM8K has them, a file for each split."""
    files = {}
    for split, first in (("train", 0), ("test", ROWS)):
        rows = [
            (f"A box holds {n} nuts. How many are in {1000 + n} boxes?", f"That is {n} x {1000 + n}.\n#### {n:,}")
            for n in range(first + 900, first + 900 + (ROWS if split == "train" else 4))
        ]
        with (folder / f"notebook_{split}.csv").open("w", newline="") as file:
            csv.writer(file).writerows([("question", "answer"), *rows])
        files[f"{split}_file"] = str(folder / f"notebook_{split}.csv")
    return _task("notebook", {"question": "Question"}, "answer", **files, target_from="after_hashes")


def open_r1(folder: Path, count: int = ROWS) -> dict[str, Any]:
    """open-r1's: problem, a solution that is the gold, and the chat that SFT imitates, all in one row."""
    rows = [
        {
            "problem": f"Find $x$ where $x - {n} = {n * n}$.",
            "solution": f"$\\boxed{{{n * n + n}}}$",
            "messages": [
                {"role": "user", "content": f"Find $x$ where $x - {n} = {n * n}$."},
                {"role": "assistant", "content": f"<think>\nI add {n}.\n</think>\n\n$\\boxed{{{n * n + n}}}$"},
            ],
            "source": "by_hand",
            "num_tokens": 40,
        }
        for n in range(2, 2 + count)
    ]
    file = _write_lines(folder / "open_r1.jsonl", rows)
    return _task("open_r1", {"problem": "Problem"}, "solution", train_file=file, test_size=4)


def _task(name: str, fields: dict[str, str], target: str, **sources: Any) -> dict[str, Any]:
    named = {"name": name, "kind": "math", "fields": fields, "target": target}
    return {**named, **sources, "default_instruction": "Solve the problem."}


def _write_lines(path: Path, rows: list[dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)

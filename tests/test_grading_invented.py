"""Inputs with the answer decided beforehand: 201 invented without a look at reported cases or the rules of the graders,
then 209 invented after a first mending, of which it had 31 wrong, then rounds of 180 (again without a look), 116, 99,
40, and 212, 100 and 100 (all three without a look), of which 24, 12, 11, 3, 30, 12 and 5 were wrong before the mending
that followed each. Of a later round of 1,290 what the graders had wrong is here,
about 50, and its neighbours.

`label`: what is to be found (null: none); `one_of`: several that will do; `never`: the label that must not be;
`expected`: whether the answer is right.
"""

import json
import time
from pathlib import Path

import pytest

import prewrite.grading
from prewrite.grading import extract_math_answer, find_label, is_correct_math

FILE = Path(__file__).with_suffix(".jsonl")
ROWS = [json.loads(line) for line in FILE.read_text(encoding="utf-8").splitlines()]


def rows(kind):
    return [pytest.param(row, id=f"{index}: {row['note']}") for index, row in enumerate(ROWS) if row["kind"] == kind]


@pytest.mark.parametrize("row", rows("cls"))
def test_labels(row):
    label = find_label(row["prediction"], row["labels"])
    assert label != row["never"] if "never" in row else label in row.get("one_of", [row.get("label")])


@pytest.mark.parametrize("row", rows("math"))
def test_mathematics(row):
    assert (is_correct_math(row["completion"], row["gold"]) is True) is row["expected"]


@pytest.mark.parametrize("row", rows("api"))
def test_values_that_are_no_text(row):
    value = getattr(prewrite.grading, row["function"])(*row["arguments"])
    assert value is not row["not_value"] if "not_value" in row else value == row["value"]


HOSTILE_UNITS = [
    "A ", "not A, ", "1 or ", "5/", "正面", "<|im_end|>", "[THINK]", "answer is ", "$1 ", "positive ",
    "\n", " \r\n", "_", "A\n\n ", "\nI hope ", "wait ", "7", "\\boxed",
]  # fmt: skip


@pytest.mark.parametrize("unit", HOSTILE_UNITS)
def test_a_long_hostile_reply_takes_no_time(unit):
    text = unit * (40_000 // len(unit))
    started = time.process_time()
    extract_math_answer(text)
    for labels in (["A", "B", "C"], ["1", "2", "5"], ["正面", "负面"], ["positive", "negative"]):
        find_label(text, labels)
    assert time.process_time() - started < 10

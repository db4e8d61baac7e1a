"""MATH-500 (Lightman et al. 2023), trained on MATH's own train split (Hendrycks et al. 2021)."""

from prewrite.grading import boxed_answers
from prewrite.tasks.base import HubSplit, RawRow, Source, Task

_SUBJECTS = (
    "algebra", "counting_and_probability", "geometry", "intermediate_algebra", "number_theory", "prealgebra",
    "precalculus",
)  # fmt: skip
_TRAIN = tuple(HubSplit("EleutherAI/hendrycks_math", "train", config=subject) for subject in _SUBJECTS)
_TEST = (HubSplit("HuggingFaceH4/MATH-500", "test"),)


def _read_train_hub(row: RawRow) -> RawRow | None:
    boxes = boxed_answers(row["solution"])
    if not boxes:  # two rows of the official split have an empty box
        return None
    level = row["level"].removeprefix("Level ")
    return {**row, "answer": boxes[-1], "subject": row["type"], "level": None if level == "?" else level}


def _read_test(row: RawRow) -> RawRow:
    return {**row, "id": row["unique_id"]}


MATH_500 = Task(
    name="math-500",
    kind="math",
    fields={"problem": "Problem"},
    target="answer",
    default_instruction="Solve the math problem step by step. Put the final answer in \\boxed{}.",
    train=Source("math_train", _TRAIN, ("math_train.jsonl",), _read_train_hub),
    test=Source(
        "math500_test (the 500 of the official test split)", _TEST, ("math500_test.jsonl",), _read_test, _read_test
    ),
    licence="MIT",
)

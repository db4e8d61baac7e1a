"""NuminaMath-TIR: competition problems with worked solutions; the gold is the last box of the solution."""

from prewrite.grading import boxed_answers
from prewrite.tasks.base import HubSplit, RawRow, Source, Task

_TRAIN, _TEST = ((HubSplit("AI-MO/NuminaMath-TIR", split),) for split in ("train", "test"))
_OVERLAP = "the problems were collected from sources that repeat one another"


def _read(row: RawRow) -> RawRow | None:
    boxes = boxed_answers(row["solution"])
    return {"problem": row["problem"], "solution": row["solution"], "answer": boxes[-1]} if boxes else None


NUMINA_MATH_TIR = Task(
    name="numina-math-tir",
    aliases=("numinamath", "numinatir"),
    kind="math",
    fields={"problem": "Problem"},
    target="answer",
    default_instruction="Solve the math problem step by step. Put the final answer in \\boxed{}.",
    train=Source("numina_math_tir_train", _TRAIN, ("numina_math_tir_train.jsonl",), _read, _read, hub_overlap=_OVERLAP),
    test=Source("numina_math_tir_test (official test split)", _TEST, ("numina_math_tir_test.jsonl",), _read, _read),
    licence="Apache-2.0",
)

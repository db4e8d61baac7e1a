"""NuminaMath-TIR: competition problems with worked solutions; the gold is the last box of the solution."""

from prewrite.tasks.base import HubSplit, Row, Source, Task
from prewrite.tasks.boxed import last_boxed


def _read(row: Row) -> Row | None:
    answer = last_boxed(row["solution"])
    return {"problem": row["problem"], "solution": row["solution"], "answer": answer} if answer else None


NUMINA_MATH_TIR = Task(
    name="numina-math-tir",
    aliases=("numinamath", "numinatir"),
    kind="math",
    fields={"problem": "Problem"},
    target="answer",
    default_instruction="Solve the math problem step by step. Put the final answer in \\boxed{}.",
    train=Source(
        label="numina_math_tir_train",
        hub=(HubSplit("AI-MO/NuminaMath-TIR", "train"),),
        files=("numina_math_tir_train.jsonl",),
        read_hub=_read,
        read_file=_read,
        hub_overlap="the problems were collected from sources that repeat one another",
    ),
    test=Source(
        label="numina_math_tir_test (official test split)",
        hub=(HubSplit("AI-MO/NuminaMath-TIR", "test"),),
        files=("numina_math_tir_test.jsonl",),
        read_hub=_read,
        read_file=_read,
    ),
    licence="Apache-2.0",
)

"""The embedded problems: sums in a sentence, for trying the objective `solve`. Shipped in `data/`, under Apache-2.0."""

from pathlib import Path

from prewrite.tasks.base import Source, Task

_DATA = Path(__file__).parent / "data"

ARITHMETIC = Task(
    name="arithmetic",
    kind="math",
    fields={"problem": "Question"},
    target="answer",
    default_instruction="Solve the problem. Put the final answer in \\boxed{}.",
    train=Source(label="arithmetic_train", files=("arithmetic_train.jsonl",), folder=_DATA),
    test=Source(label="arithmetic_test (embedded)", files=("arithmetic_test.jsonl",), folder=_DATA),
    licence="Apache-2.0",
)

"""The tasks that ship in `data/`, under Apache-2.0, for a very small model: plain review sentences, sums in words."""

from pathlib import Path

from prewrite.tasks.base import Source, Task

_DATA = Path(__file__).parent / "data"

SENTIMENT = Task(
    name="sentiment",
    kind="classification",
    labels=("negative", "positive"),
    fields={"text": "Sentence"},
    target="label",
    default_instruction="Classify the sentiment of the sentence as positive or negative.",
    train=Source(label="sentiment_train", files=("sentiment_train.jsonl",), folder=_DATA),
    test=Source(label="sentiment_test (embedded)", files=("sentiment_test.jsonl",), folder=_DATA),
    licence="Apache-2.0",
)

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

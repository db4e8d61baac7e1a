"""The embedded task: plain review sentences that a very small model can judge. Shipped in `data/`, under Apache-2.0."""

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

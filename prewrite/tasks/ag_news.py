"""AG News: the topic of a news text (Zhang et al. 2015)."""

from prewrite.tasks.base import HubSplit, Row, Source, Task

_LABELS = ("World", "Sports", "Business", "Sci/Tech")


def _read_hub(row: Row) -> Row:
    return {"text": row["text"], "label": _LABELS[row["label"]]}


AG_NEWS = Task(
    name="ag_news",
    kind="classification",
    labels=_LABELS,
    fields={"text": "Text"},
    target="label",
    default_instruction="Classify the topic of the news text as World, Sports, Business or Sci/Tech.",
    train=Source(
        label="agnews_train",
        hub=(HubSplit("fancyzhx/ag_news", "train"),),
        files=("agnews_train.jsonl",),
        read_hub=_read_hub,
        hub_overlap="agencies repeat a report, and the corpus was split at random",
    ),
    test=Source(
        label="agnews_test (official test split)",
        hub=(HubSplit("fancyzhx/ag_news", "test"),),
        files=("agnews_test.jsonl",),
        read_hub=_read_hub,
    ),
    licence="non-commercial research use",
)

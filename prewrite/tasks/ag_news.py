"""AG News: the topic of a news text (Zhang et al. 2015)."""

from prewrite.tasks.base import HubSplit, Source, Task, labelled

_LABELS = ("World", "Sports", "Business", "Sci/Tech")
_read_hub = labelled(_LABELS, text="text")

AG_NEWS = Task(
    name="ag_news",
    kind="classification",
    labels=_LABELS,
    fields={"text": "Text"},
    target="label",
    default_instruction="Classify the topic of the news text as World, Sports, Business or Sci/Tech.",
    train=Source(
        "agnews_train",
        (HubSplit("fancyzhx/ag_news", "train"),),
        ("agnews_train.jsonl",),
        _read_hub,
        hub_overlap="agencies repeat a report, and the corpus was split at random",
    ),
    test=Source(
        "agnews_test (official test split)", (HubSplit("fancyzhx/ag_news", "test"),), ("agnews_test.jsonl",), _read_hub
    ),
    licence="non-commercial research use",
)

"""AG News: the topic of a news text (Zhang et al. 2015)."""

from prewrite.tasks.base import HubSplit, Source, Task, labelled

_LABELS = ("World", "Sports", "Business", "Sci/Tech")
_TRAIN, _TEST = ((HubSplit("fancyzhx/ag_news", split),) for split in ("train", "test"))
_OVERLAP = "agencies repeat a report, and the corpus was split at random"
_read_hub = labelled(_LABELS, text="text")

AG_NEWS = Task(
    name="ag_news",
    kind="classification",
    labels=_LABELS,
    fields={"text": "Text"},
    target="label",
    default_instruction="Classify the topic of the news text as World, Sports, Business or Sci/Tech.",
    train=Source("agnews_train", _TRAIN, ("agnews_train.jsonl",), _read_hub, hub_overlap=_OVERLAP),
    test=Source("agnews_test (official test split)", _TEST, ("agnews_test.jsonl",), _read_hub),
    licence="non-commercial research use",
)

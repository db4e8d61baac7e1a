"""SST-2: the sentiment of phrases and sentences of film reviews (Socher et al. 2013, as in GLUE)."""

from prewrite.tasks.base import HubSplit, RawRow, Source, Task

_LABELS = ("negative", "positive")
_TRAIN, _DEV = ((HubSplit("stanfordnlp/sst2", split),) for split in ("train", "validation"))
_OVERLAP = "train holds phrases as well, and a short phrase can be a whole sentence of the validation split"


def _read_hub(row: RawRow) -> RawRow:
    return {"text": row["sentence"].strip(), "label": _LABELS[row["label"]]}


SST2 = Task(
    name="sst2",
    kind="classification",
    labels=_LABELS,
    fields={"text": "Sentence"},
    target="label",
    default_instruction="Classify the sentiment of the sentence as positive or negative.",
    train=Source("sst2_train", _TRAIN, ("sst2_train.jsonl",), _read_hub, hub_overlap=_OVERLAP),
    test=Source("sst2_dev (official validation split)", _DEV, ("sst2_dev.jsonl",), _read_hub),
    licence="research use, none stated",
)

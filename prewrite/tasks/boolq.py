"""BoolQ: yes/no questions about a passage (Clark et al. 2019).

The local train file lacks the passages. So with local files train and dev come from 1,000 rows of the validation file,
and the test is its other rows, which is not the official split; the label says so.
"""

from prewrite.tasks.base import HubSplit, RawRow, Source, Task

_LABELS = ("no", "yes")
_FILES_FOR_TRAIN = 1000


def _read_hub(row: RawRow) -> RawRow:
    return {"passage": row["passage"], "question": row["question"], "label": _LABELS[int(row["answer"])]}


BOOLQ = Task(
    name="boolq",
    kind="classification",
    labels=_LABELS,
    fields={"passage": "Passage", "question": "Question"},
    target="label",
    default_instruction="Answer the question about the passage with yes or no.",
    train=Source(
        "boolq_train",
        (HubSplit("google/boolq", "train"),),
        ("boolq_val.jsonl",),
        read_hub=_read_hub,
        file_rows=slice(None, _FILES_FOR_TRAIN),
        file_label="boolq_val_1000 (rows of the validation split)",
        hub_overlap="a few questions were asked twice about one passage",
    ),
    test=Source(
        "boolq_val (official validation split)",
        (HubSplit("google/boolq", "validation"),),
        ("boolq_val.jsonl",),
        read_hub=_read_hub,
        file_rows=slice(_FILES_FOR_TRAIN, None),
        file_label="boolq_val_2270 (not the official split: 2,270 rows of the validation split)",
    ),
    licence="CC BY-SA 3.0",
)

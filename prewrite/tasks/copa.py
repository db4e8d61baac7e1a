"""COPA: which of two sentences is the cause or the effect of a third (Roemmele et al. 2011, as in SuperGLUE)."""

from prewrite.tasks.base import Row, Source, Task
from prewrite.tasks.super_glue import super_glue

_LABELS = ("choice1", "choice2")


def _read_hub(row: Row) -> Row:
    return {**{column: row[column] for column in COPA.fields}, "label": _LABELS[row["label"]]}


COPA = Task(
    name="copa",
    kind="classification",
    labels=_LABELS,
    fields={"premise": "Premise", "question": "Question", "choice1": "choice1", "choice2": "choice2"},
    target="label",
    default_instruction="Which choice is the more plausible cause or effect, as the question asks, of the premise? "
    "Answer choice1 or choice2.",
    train=Source(
        label="copa_train", hub=(super_glue("copa", "train"),), files=("copa_train.jsonl",), read_hub=_read_hub
    ),
    test=Source(
        label="copa_val (official validation split)",
        hub=(super_glue("copa", "validation"),),
        files=("copa_val.jsonl",),
        read_hub=_read_hub,
    ),
    licence="BSD-2-Clause",
)

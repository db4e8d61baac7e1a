"""CommitmentBank: does the premise entail the hypothesis? (de Marneffe et al. 2019, as in SuperGLUE.)"""

from prewrite.tasks.base import Row, Source, Task
from prewrite.tasks.super_glue import super_glue

_LABELS = ("entailment", "contradiction", "neutral")


def _read_hub(row: Row) -> Row:
    return {"premise": row["premise"], "hypothesis": row["hypothesis"], "label": _LABELS[row["label"]]}


CB = Task(
    name="cb",
    aliases=("commitmentbank",),
    kind="classification",
    labels=_LABELS,
    fields={"premise": "Premise", "hypothesis": "Hypothesis"},
    target="label",
    default_instruction="Does the premise entail the hypothesis? Answer entailment, contradiction or neutral.",
    train=Source(label="cb_train", hub=(super_glue("cb", "train"),), files=("cb_train.jsonl",), read_hub=_read_hub),
    test=Source(
        label="cb_val (official validation split)",
        hub=(super_glue("cb", "validation"),),
        files=("cb_val.jsonl",),
        read_hub=_read_hub,
    ),
    licence="research use, none stated",
)

"""NQ-open: short answers to real search questions, without a passage (Lee et al. 2019)."""

from prewrite.tasks.base import HubSplit, Source, Task

_TRAIN, _DEV = ((HubSplit("google-research-datasets/nq_open", split),) for split in ("train", "validation"))

NQ_OPEN = Task(
    name="nq_open",
    aliases=("nq",),
    kind="open_question",
    fields={"question": "Question"},
    target="answer",
    default_instruction="Answer the question with a short phrase, without any explanation.",
    train=Source("nq_open_train", _TRAIN, ("nq_open_train.jsonl",), hub_overlap="people ask the same question twice"),
    test=Source("nq_open_dev (official validation split)", _DEV, ("nq_open_dev.jsonl",)),
    licence="CC BY-SA 3.0",
)

"""GPQA diamond (Rein et al. 2023): hard science questions with four choices. The authors ask not to post it in plain
text, so it comes from the hub, where it is gated, and is never stored here."""

import random

from prewrite.tasks.base import HubSplit, RawRow, Source, Task

_ACCESS = (
    "The data set is gated: accept its terms at https://huggingface.co/datasets/Idavidrein/gpqa, then log in with "
    "`hf auth login` or set HF_TOKEN."
)
_MAIN, _DIAMOND = ((HubSplit("Idavidrein/gpqa", "train", config),) for config in ("gpqa_main", "gpqa_diamond"))
_OVERLAP = "diamond is a part of main, by construction"


def _read(row: RawRow) -> RawRow:
    """The four choices in an order of the row's own, so that no letter is right more often than chance."""
    choices = [row["Correct Answer"], *(row[f"Incorrect Answer {number}"] for number in (1, 2, 3))]
    order = [0, 1, 2, 3]
    random.Random(f"gpqa {row['Question']}").shuffle(order)
    columns = {f"choice_{letter}": choices[index].strip() for letter, index in zip("abcd", order, strict=True)}
    return {"question": row["Question"].strip(), **columns, "answer": "ABCD"[order.index(0)]}


GPQA_DIAMOND = Task(
    name="gpqa-diamond",
    aliases=("gpqa",),
    kind="classification",
    labels=("A", "B", "C", "D"),
    fields={"question": "Question", "choice_a": "A", "choice_b": "B", "choice_c": "C", "choice_d": "D"},
    target="answer",
    default_instruction="Answer the multiple-choice question. Reply with the letter of the right choice: A, B, C or D.",
    train=Source(
        "gpqa_main (without diamond)", _MAIN, ("gpqa_train.jsonl",), _read, _read, hub_overlap=_OVERLAP, access=_ACCESS
    ),
    test=Source("gpqa_diamond (official)", _DIAMOND, ("gpqa_diamond.jsonl",), _read, _read, access=_ACCESS),
    licence="CC BY 4.0",
)

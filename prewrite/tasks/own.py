"""A user's own task: two files and the `task` section of the config, no code."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from prewrite.errors import UserError
from prewrite.tasks.base import KINDS, Kind, Source, Task


def task_from_settings(
    *,
    name: str,
    kind: str,
    fields: Mapping[str, str],
    target: str,
    train_file: str,
    test_file: str,
    default_instruction: str,
    labels: Sequence[str | int] = (),
) -> Task:
    """The task that the settings describe; the files are .jsonl, .csv or .parquet and need the named columns alone.

    fields: column -> the label in the query. target: the gold's column; for a classification it holds a label's name.
    Raises UserError with every fault at once.
    """
    labels = [str(label) for label in labels]  # of 0 and 1, say, when called from Python
    kinds: dict[str, Kind] = {known: known for known in KINDS}
    faults = []
    if not name.strip():
        faults.append("name is empty")
    if kind not in kinds:
        faults.append(f"kind is {kind!r}; it must be one of {', '.join(KINDS)}")
    if not fields:
        faults.append('fields is empty; name the columns that the query shows, as in {"text": "Sentence"}')
    if target in fields:
        faults.append(f"target {target!r} is one of the fields, so every query would show the gold")
    if not default_instruction.strip():
        faults.append("default_instruction is empty")
    distinct = {label.strip().casefold() for label in labels} - {""}
    if kind == "classification" and (len(labels) < 2 or len(distinct) < len(labels)):
        faults.append(
            f"labels is {list(labels)}; a classification needs at least two, none empty, that differ by more than case"
        )
    if kind != "classification" and labels:
        faults.append(f"labels is {list(labels)}; only a classification has labels")
    if faults:
        raise UserError(f"the task section of {name!r}: " + "; ".join(faults) + ".")
    return Task(
        name=name,
        kind=kinds[kind],
        labels=tuple(labels),
        fields=dict(fields),
        target=target,
        default_instruction=default_instruction,
        train=_file_source(f"{name}_train", train_file),
        test=_file_source(f"{name}_test", test_file),
        licence="the user's own",
    )


def _file_source(label: str, file: str) -> Source:
    path = Path(file)
    return Source(label=label, files=(path.name,), folder=path.parent)

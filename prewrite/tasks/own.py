"""A user's own task: files or a data set of the hub, and an entry of `custom_tasks` in the config, no code."""

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

from prewrite.config import CustomTaskSettings
from prewrite.errors import UserError
from prewrite.grading import boxed_answers
from prewrite.tasks.base import HubSplit, RawRow, Source, Task

_MARKS = {"last_box": "box", "after_hashes": "####"}  # by `target_from`: what stands at the gold in a worked solution


def task_from_settings(given: CustomTaskSettings) -> Task:
    """The task that an entry of `custom_tasks` describes. Raises UserError with every fault at once."""
    if faults := list(_faults(given)):
        raise UserError(f"the task section of {given.name!r}: " + "; ".join(faults) + ".")
    train, test = _sources(given)
    if given.target_from:
        read = partial(_gold_of_solution, given.target, given.target_from)
        left_out = f"no {_MARKS[given.target_from]} in the column {given.target!r}"
        train, test = (replace(one, read_hub=read, read_file=read, left_out=left_out) for one in (train, test))
    return Task(
        name=given.name,
        kind=given.kind,
        labels=tuple(given.labels),
        fields=dict(given.fields),
        target=given.target_from or given.target,
        default_instruction=given.default_instruction,
        train=train,
        test=test,
        licence="the user's own",
    )


def _faults(given: CustomTaskSettings) -> Iterator[str]:
    if not given.name.strip():
        yield "name is empty"
    if not given.fields:
        yield 'fields is empty; name the columns that the query shows, as in {"text": "Sentence"}'
    if given.target in given.fields:
        yield f"target {given.target!r} is one of the fields, so every query would show the gold"
    if not given.default_instruction.strip():
        yield "default_instruction is empty"
    labels, hub = given.labels, given.hub
    distinct = {label.strip().casefold() for label in labels} - {""}
    if given.kind == "classification" and (len(labels) < 2 or len(distinct) < len(labels)):
        yield f"labels is {labels}; a classification needs at least two, none empty, that differ by more than case"
    if given.kind != "classification" and labels:
        yield f"labels is {labels}; only a classification has labels"
    if bool(given.train_file) == bool(hub):
        yield "give train_file, or hub: one of the two"
    elif hub and given.test_file:
        yield "test_file with hub: the test comes from the hub too; give hub.test_split or test_size"
    elif bool(given.test_size) == bool(given.test_file or (hub and hub.test_split)):
        own = "hub.test_split" if hub else "test_file"
        yield f"give {own}, or test_size (the rows to cut off for the test): one of the two"
    if given.target_from and given.kind != "math":
        yield f"target_from {given.target_from!r} is for kind math"


def _sources(given: CustomTaskSettings) -> tuple[Source, Source]:
    """Where train and test come from; from a hub, the names of the local files that may stand in its place."""
    name, hub, size = given.name, given.hub, given.test_size
    if hub is None:
        paths = {"train": Path(given.train_file or ""), "test": Path(given.test_file or "")}
        train, test = (
            Source(label=f"{name}_{part}", files=(path.name,), folder=path.parent) for part, path in paths.items()
        )
    else:
        file = re.sub(r"[^\w.-]+", "_", name)
        train, test = (
            Source(
                label=f"{name}_{part}",
                hub=(HubSplit(hub.dataset, split, hub.config, hub.revision),),
                files=(f"{file}.jsonl" if size else f"{file}_{part}.jsonl",),
                class_names=True,
            )
            for part, split in (("train", hub.split), ("test", hub.test_split or hub.split))
        )
    if size is None:
        return train, test
    label = f"{name}_test ({size} rows cut off by seed, no official split)"
    return replace(train, part=slice(size, None)), replace(train, label=label, part=slice(None, size))


def _gold_of_solution(target: str, target_from: str, row: RawRow) -> RawRow | None:
    """The row with its gold in a column that is named as the setting's value is, and the solution in `solution` alone,
    so that no template shows it; None where there is no gold."""
    solution = str(row[target])
    if target_from == "last_box":
        gold = (boxed_answers(solution) or [""])[-1]
    else:
        gold = solution.rpartition("####")[2].replace(",", "") if "####" in solution else ""  # 1,000, as GSM8K has it
    others = {column: cell for column, cell in row.items() if column != target}
    return {**others, "solution": row[target], target_from: gold.strip()} if gold.strip() else None

"""A user's own task: files or a data set of the hub, and an entry of `custom_tasks` in the config, no code."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from prewrite.errors import UserError
from prewrite.grading import boxed_answers
from prewrite.tasks.base import KINDS, HubSplit, Kind, RawRow, Source, Task, as_is

_MARKS = {"last_box": "box", "after_hashes": "####"}  # by `target_from`: what stands at the gold in a worked solution


def task_from_settings(
    *,
    name: str,
    kind: str,
    fields: Mapping[str, str],
    target: str,
    default_instruction: str,
    train_file: str | None = None,
    test_file: str | None = None,
    hub: Mapping[str, str | None] | None = None,
    test_size: int | None = None,
    target_from: str | None = None,
    labels: Sequence[str | int] = (),
) -> Task:
    """The task that the settings describe; the files are .jsonl, .csv or .parquet and need the named columns alone.

    fields: column -> the label in the query. target: the gold's column; for a classification it holds a label's name;
    with target_from a solution, whose gold is what its last box holds (last_box) or what follows its last ####
    (after_hashes). hub: dataset, config, split, test_split and revision. test_size: rows of the one file or split that
    are the test.
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
    faults += _source_faults(kind, train_file, test_file, hub, test_size, target_from)
    if faults:
        raise UserError(f"the task section of {name!r}: " + "; ".join(faults) + ".")
    train, test = _sources(name, train_file, test_file, hub, test_size)
    if target_from:
        read = partial(_gold_of_solution, target, target_from)
        left_out = f"no {_MARKS[target_from]} in the column {target!r}"
        change: dict[str, Any] = {"read_hub": read, "read_file": read, "left_out": left_out}
        train, test = replace(train, **change), replace(test, **change)
    return Task(
        name=name,
        kind=kinds[kind],
        labels=tuple(labels),
        fields=dict(fields),
        target=target_from or target,
        default_instruction=default_instruction,
        train=train,
        test=test,
        licence="the user's own",
    )


def _source_faults(
    kind: str,
    train_file: str | None,
    test_file: str | None,
    hub: Mapping[str, str | None] | None,
    test_size: int | None,
    target_from: str | None,
) -> Iterator[str]:
    if bool(train_file) == bool(hub):
        yield "give train_file, or hub: one of the two"
    elif hub and test_file:
        yield "test_file with hub: the test comes from the hub too; give hub.test_split or test_size"
    elif bool(test_size) == bool(test_file or (hub or {}).get("test_split")):
        own = "hub.test_split" if hub else "test_file"
        yield f"give {own}, or test_size (the rows to cut off for the test): one of the two"
    if target_from and kind != "math":
        yield f"target_from {target_from!r} is for kind math"


def _sources(
    name: str,
    train_file: str | None,
    test_file: str | None,
    hub: Mapping[str, str | None] | None,
    test_size: int | None,
) -> tuple[Source, Source]:
    """Where train and test come from; from a hub, the names of the local files that may stand in its place."""
    if hub is None:
        train = _file_source(f"{name}_train", str(train_file))
        test = _file_source(f"{name}_test", str(test_file))
    else:
        file, two = re.sub(r"[^\w.-]+", "_", name), test_size is None
        train, test = (
            Source(
                label=f"{name}_{part}",
                hub=(
                    HubSplit(str(hub["dataset"]), str(hub.get(key) or "train"), hub.get("config"), hub.get("revision")),
                ),
                files=(f"{file}_{part}.jsonl" if two else f"{file}.jsonl",),
                class_names=True,
                read_file=as_is,
            )
            for part, key in (("train", "split"), ("test", "test_split" if two else "split"))
        )
    if test_size is None:
        return train, test
    label = f"{name}_test ({test_size} rows cut off by seed, no official split)"
    return replace(train, part=slice(test_size, None)), replace(train, label=label, part=slice(None, test_size))


def _file_source(label: str, file: str) -> Source:
    path = Path(file)
    return Source(label=label, files=(path.name,), folder=path.parent)


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

"""The examples of a task: train, dev and test, disjoint, the same ones for the same seed."""

import logging
import os
import random
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from prewrite.errors import UserError
from prewrite.tasks.base import HubSplit, RawRow, RowReader, Source, Task
from prewrite.tasks.files import golds_of, read_rows, require_columns, require_rows, shown_text, text_or_none
from prewrite.tasks.near_copies import near_copies
from prewrite.types import Example

log = logging.getLogger(__name__)

Split = Literal["train", "dev", "test"]
FILE_ROWS_SEED = 0  # of the one shuffle before Source.file_rows: a test set must not move with a run's seed


@dataclass(frozen=True)
class _Loaded:
    where: str
    from_hub: bool
    examples: list[Example]


def load_examples(
    task: Task, split: Split, *, local_dir: Path | None = None, dev_size: int = 0, min_words: int = 0, seed: int = 0
) -> list[Example]:
    """The examples of one split.

    train and dev are drawn by `seed` from the train source, whose repeated rows are dropped first: the first `dev_size`
    of the shuffled rows are dev, the others train. test is the whole test source, in its own order. A train row that
    repeats a test row is refused, or left out where the task says why the hub's copy has such rows.

    min_words: train and dev rows with fewer words in their fields are left out; the test keeps all its rows.
    local_dir: the data folder; None = the folder that PREWRITE_DATA names, or, where it is not set, the hub.
    Raises UserError for every fault of the data: missing, empty, overlapping, a row without a column, an unknown label.
    """
    folder = data_folder(local_dir)
    test = _load(task, task.test, folder)
    if split == "test":
        return test.examples
    whole_pool = _train_pool(task, _load(task, task.train, folder), test)
    pool = [e for e in whole_pool if sum(len(text.split()) for text in e.fields.values()) >= min_words]
    if whole_pool and not pool:
        raise UserError(
            f"{task.name}: none of the {len(whole_pool)} train rows has data.min_words={min_words} words; lower it."
        )
    random.Random(seed).shuffle(pool)
    if split == "train" and (near := near_copies(pool, test.examples)):
        first, second = (next(iter(example.fields.values()))[:80] for example in near[0])
        log.warning(
            "%s: %d of %d train and dev rows are nearly test rows (a third or more of their runs of 8 words are the "
            "same), the first %s and %s: %r, %r. Scores on the test may be flattered.",
            *(task.name, len(near), len(pool), near[0][0].id, near[0][1].id, first, second),
        )
    if split == "train":
        return require_rows(pool[dev_size:], f"{task.name} train", f"dev_size={dev_size} (of {len(pool)} rows)")
    if not 0 < dev_size < len(pool):
        raise UserError(
            f"{task.name} dev: dev_size is {dev_size}, and the train source has {len(pool)} different rows. "
            f"Give a dev_size from 1 to {len(pool) - 1}; the other rows are for training."
        )
    return pool[:dev_size]


def test_label(task: Task, local_dir: Path | None) -> str:
    """What a report calls the test rows, e.g. "sst2_dev (official validation split)"."""
    return _label(task.test, from_file=(task.test.folder or data_folder(local_dir)) is not None)


def data_folder(local_dir: Path | None) -> Path | None:
    """local_dir, else the folder that PREWRITE_DATA names, else None (the hub)."""
    folder = local_dir or (Path(os.environ["PREWRITE_DATA"]) if os.environ.get("PREWRITE_DATA") else None)
    if folder is not None and not folder.is_dir():
        named_by = "data.local_dir" if local_dir else "the environment variable PREWRITE_DATA"
        raise UserError(f"{named_by} is {str(folder)!r}, which is no folder. Give the folder of the data files.")
    return folder


def normalised_text(example: Example) -> str:
    """The text by which two examples count as the same row: all fields, without case, white space and width forms."""
    return "|".join("".join(unicodedata.normalize("NFKC", text).casefold().split()) for text in example.fields.values())


def overlapping(examples: Sequence[Example], others: Sequence[Example]) -> list[Example]:
    """Those of `examples` that repeat one of `others` by `normalised_text`."""
    known = {normalised_text(other) for other in others}
    return [example for example in examples if normalised_text(example) in known]


def _different(examples: Sequence[Example]) -> list[Example]:
    """The first example of each text, in order."""
    first_of_its_text: dict[str, Example] = {}
    for example in examples:
        first_of_its_text.setdefault(normalised_text(example), example)
    return list(first_of_its_text.values())


def _train_pool(task: Task, train: _Loaded, test: _Loaded) -> list[Example]:
    pool = _different(train.examples)
    repeats = overlapping(pool, test.examples)
    if not repeats:
        return pool
    first = repeats[0]
    if not (train.from_hub and task.train.hub_overlap):
        raise UserError(
            f"{task.name}: {len(repeats)} rows of {train.where} are also in the test rows ({test.where}); the first is "
            f"{first.id}: {next(iter(first.fields.values()))[:80]!r}. The two must be disjoint: take them out."
        )
    log.warning(
        "%s: %d train rows are also test rows and are left out: %s", task.name, len(repeats), task.train.hub_overlap
    )
    dropped = {example.id for example in repeats}
    return [example for example in pool if example.id not in dropped]


def _label(source: Source, from_file: bool) -> str:
    return source.file_label if from_file and source.file_label else source.label


def _load(task: Task, source: Source, folder: Path | None) -> _Loaded:
    place = source.folder or folder
    from_hub = place is None
    where, rows = _read_hub(task, source) if place is None else _read_files(task, source, place)
    require_rows(rows, f"{task.name}: {where}")
    require_columns(rows, (*task.fields, task.target), f"{task.name}: {where}")
    label = _label(source, not from_hub)
    examples = [
        _example(task, row, f"{task.name}: {where}: row {number}", f"{label.split()[0]}-{number}")
        for number, row in enumerate(rows, start=1)
    ]
    if empty := [example.id for example in examples if not all(text.strip() for text in example.fields.values())]:
        log.warning(
            "%s: %s: %d of %d rows have an empty text (the first: %s)",
            *(task.name, where, len(empty), len(examples), empty[0]),
        )
    if source.part is not None:
        different = _different(examples)
        random.Random(FILE_ROWS_SEED).shuffle(different)
        cut = f"test_size, with {len(different)} different rows in all"
        examples = require_rows(different[source.part], f"{task.name}: {where}", cut)
    if source.file_rows is not None and not from_hub:
        random.Random(FILE_ROWS_SEED).shuffle(examples)
        examples = require_rows(examples[source.file_rows], f"{task.name}: {where}", f"file rows {source.file_rows}")
    if len({example.id for example in examples}) < len(examples):
        raise UserError(
            f"{task.name}: {where}: two rows have the same id. Make the ids unique, or leave the column out."
        )
    return _Loaded(where, from_hub, examples)


def _read_files(task: Task, source: Source, folder: Path) -> tuple[str, list[dict[str, Any]]]:
    missing = [name for name in source.files if not (folder / name).is_file()]
    if missing and source.folder is None:
        raise UserError(
            f"{task.name}: the data folder {folder} has no {', '.join(missing)}. Put the file there (docs/tasks.md "
            f"names its columns), or unset data.local_dir and PREWRITE_DATA to load {_hub_names(source)} from the hub. "
            f"{source.access}".rstrip()
        )
    rows = [row for name in source.files for row in read_rows(folder / name)]
    return ", ".join(source.files), _converted(
        rows, source, source.read_file, f"{task.name}: {', '.join(source.files)}"
    )


def _read_hub(task: Task, source: Source) -> tuple[str, list[dict[str, Any]]]:
    rows = [row for split in source.hub for row in hub_rows(task, source, split)]
    where = _hub_names(source)
    return where, _converted(rows, source, source.read_hub, f"{task.name}: {where}")


def _converted(rows: Sequence[RawRow], source: Source, reader: RowReader, where: str) -> list[dict[str, Any]]:
    converted = []
    for number, row in enumerate(rows, start=1):
        try:
            columns = reader(row)
        except KeyError as error:
            raise UserError(
                f"{where}: row {number}: the column {error} is missing; the row has {', '.join(map(str, row))}."
            ) from error
        if columns is not None:
            converted.append(dict(columns))
    if source.left_out and len(converted) < len(rows):
        left_out = len(rows) - len(converted)
        log.warning("%s: %d of %d rows are left out: %s", where, left_out, len(rows), source.left_out)
    return converted


def _hub_names(source: Source) -> str:
    return ", ".join(f"{part.dataset}{f'/{part.config}' if part.config else ''}:{part.split}" for part in source.hub)


def hub_rows(task: Task, source: Source, split: HubSplit) -> Sequence[RawRow]:
    """The rows of a split on the hub, as they are there. Raises UserError where it cannot be loaded."""
    import datasets
    import httpx
    from datasets.exceptions import DatasetsError

    try:
        loaded = datasets.load_dataset(split.dataset, split.config, split=split.split, revision=split.revision)
    except (DatasetsError, httpx.HTTPError, OSError, ValueError) as error:
        access = f"{source.access} " if source.access else ""
        reason = f"{type(error).__name__}: {str(error).rstrip('.')}"
        raise UserError(
            f"{task.name}: the hub data set {split.dataset} (config {split.config}, split {split.split}) could not be "
            f"loaded: {reason}. {access}Without the hub, set data.local_dir or PREWRITE_DATA to a folder with "
            f"{', '.join(source.files)}; scripts/fetch_data.py writes it on a machine that has the hub."
        ) from error
    if source.class_names and isinstance(label := loaded.features.get(task.target), datasets.ClassLabel):
        return [{**row, task.target: label.names[row[task.target]]} for row in loaded]  # type: ignore[misc]
    return loaded  # type: ignore[return-value]  # a Dataset: its rows are dicts


def _example(task: Task, row: RawRow, where: str, generated_id: str) -> Example:
    return Example(
        id=text_or_none(row.get("id")) or generated_id,
        fields={column: shown_text(row[column]) for column in task.fields},
        target=_target(task, row[task.target], f"{where}: the column {task.target!r}"),
        subject=text_or_none(row.get("subject")),
        level=text_or_none(row.get("level")),
        solution=text_or_none(row.get("solution")),
    )


def _target(task: Task, value: Any, where: str) -> str | tuple[str, ...]:
    golds = golds_of(value, where)
    if task.kind == "open_question":
        return tuple(golds)
    if len(golds) > 1:
        raise UserError(f"{where} holds {len(golds)} golds; {task.kind} has exactly one.")
    if task.kind == "classification" and golds[0] not in task.labels:
        raise UserError(f"{where} is {value!r}; the labels are {', '.join(task.labels)}.")
    return golds[0]

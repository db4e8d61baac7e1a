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
from prewrite.tasks.base import HubSplit, RawRow, Source, Task
from prewrite.tasks.examples import Empty, PlacedRow, make_examples
from prewrite.tasks.files import read_placed_rows, require_rows
from prewrite.tasks.near_copies import near_copies
from prewrite.types import Example

log = logging.getLogger(__name__)

Split = Literal["train", "dev", "test"]
Words = tuple[int, int | None]  # least and most of a row; None = no bound
FILE_ROWS_SEED = 0  # of the one shuffle before Source.file_rows: a test set must not move with a run's seed


@dataclass(frozen=True)
class _Loaded:
    where: str
    from_hub: bool
    examples: list[Example]


def load_examples(
    task: Task,
    split: Split,
    *,
    local_dir: str | Path | None = None,
    dev_size: int = 0,
    words: Words = (0, None),
    seed: int = 0,
    empty: Empty = "refuse",
) -> list[Example]:
    """The examples of one split.

    train and dev are the parts of `load_pool`: the first `dev_size` are dev, the others train. test is the whole test
    source, in its own order. Raises UserError as `load_pool` does.
    """
    if split == "test":
        return _load(task, task.test, data_folder(local_dir), empty).examples
    pool = load_pool(task, local_dir=local_dir, words=words, seed=seed, empty=empty)
    if split == "train":
        return require_rows(pool[dev_size:], f"{task.name} train", f"dev_size={dev_size} (of {len(pool)} rows)")
    if not 0 < dev_size < len(pool):
        way_out = f"Give a dev_size from 1 to {len(pool) - 1}; the other rows are for training."
        raise UserError(f"{task.name} dev: dev_size is {dev_size} of {len(pool)} different train rows. {way_out}")
    return pool[:dev_size]


def spread(examples: Sequence[Example], rng: random.Random) -> list[Example]:
    """An order in which every run of examples has nearly the same share of each target.

    The examples of a target keep their order, at even distances from a random start (systematic sampling, Madow 1944):
    what is measured on a run of them, a mini-batch, dev, a round of a race, does not depend on the luck of labels.
    """
    by_target: dict[str, list[Example]] = {}
    for example in examples:
        by_target.setdefault(str(example.target), []).append(example)
    starts = {target: rng.random() for target in by_target}
    placed = [
        ((number + starts[target]) / len(own), example)
        for target, own in by_target.items()
        for number, example in enumerate(own)
    ]
    return [example for _, example in sorted(placed, key=lambda pair: pair[0])]


def load_pool(
    task: Task, *, local_dir: str | Path | None, words: Words = (0, None), seed: int = 0, empty: Empty = "refuse"
) -> list[Example]:
    """The rows that train and dev are cut from, shuffled by `seed`; those of a task with labels `spread` by label.

    Repeated rows are dropped first. A row that repeats a test row is refused, or left out where the task says why the
    hub's copy has such rows.
    words: rows with fewer words in their fields than the first, or more than the second, are left out.
    local_dir: the data folder; None = the folder that PREWRITE_DATA names, or, where it is not set, the hub.
    empty: what becomes of rows of local files with an empty text or gold.
    Raises UserError with the faults of train and test together.
    """
    folder = data_folder(local_dir)
    loaded, faults = [], []
    for source in (task.train, task.test):
        try:
            loaded.append(_load(task, source, folder, empty))
        except UserError as error:
            faults.append(str(error))
            if (source.folder or folder) is None:
                break  # of a hub that cannot be reached half a minute is enough
    if faults:
        raise UserError("\n".join(dict.fromkeys(faults)))
    whole_pool = _train_pool(task, *loaded)
    least, most = words
    lengths = [sum(len(text.split()) for text in example.fields.values()) for example in whole_pool]
    pool = [e for e, n in zip(whole_pool, lengths, strict=True) if least <= n and (most is None or n <= most)]
    if whole_pool and not pool:
        longest = "" if most is None else f" and at most data.max_words={most}"
        theirs = f"none of the {len(whole_pool)} train rows has data.min_words={least}{longest} words"
        raise UserError(f"{task.name}: {theirs}; they have {min(lengths)} to {max(lengths)}.")
    if most is not None and (longer := sum(n > most for n in lengths)):
        told = (task.name, longer, len(lengths), most)
        log.warning("%s: %d of %d rows are longer than data.max_words=%d: left out", *told)
    rng = random.Random(seed)
    rng.shuffle(pool)
    if task.labels:
        pool = spread(pool, rng)
    if near := near_copies(pool, loaded[1].examples):
        first, second = (next(iter(example.fields.values()))[:80] for example in near[0])
        log.warning(
            "%s: %d of %d train and dev rows are nearly test rows (a third or more of their runs of 8 words are the "
            "same), the first %s and %s: %r, %r. Scores on the test may be flattered.",
            *(task.name, len(near), len(pool), near[0][0].id, near[0][1].id, first, second),
        )
    return require_rows(pool, f"{task.name} train")


def test_label(task: Task, local_dir: str | Path | None) -> str:
    """What a report calls the test rows, e.g. "sst2_dev (official validation split)"."""
    return _label(task.test, from_file=(task.test.folder or data_folder(local_dir)) is not None)


def data_folder(local_dir: str | Path | None) -> Path | None:
    """local_dir, else the folder that PREWRITE_DATA names, else None (the hub)."""
    folder = local_dir or os.environ.get("PREWRITE_DATA")
    if folder and not Path(folder).is_dir():
        named_by = "data.local_dir" if local_dir else "the environment variable PREWRITE_DATA"
        raise UserError(f"{named_by} is {str(folder)!r}, which is no folder. Give the folder of the data files.")
    return Path(folder) if folder else None


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
    told = (task.name, len(repeats), task.train.hub_overlap)
    log.warning("%s: %d train rows are also test rows and are left out: %s", *told)
    dropped = {example.id for example in repeats}
    return [example for example in pool if example.id not in dropped]


def _label(source: Source, from_file: bool) -> str:
    return source.file_label if from_file and source.file_label else source.label


def _load(task: Task, source: Source, folder: Path | None, empty: Empty) -> _Loaded:
    place = source.folder or folder
    from_hub = place is None
    unread: list[str] = []
    where, rows = _read_hub(task, source) if place is None else _read_files(task, source, place, unread)
    require_rows(rows, f"{task.name}: {where}")
    label = _label(source, not from_hub).split()[0]
    if source.class_names and not from_hub:  # the user's own config names a hub data set
        told = "%s: %s is read from %s in the folder of data.local_dir or PREWRITE_DATA, not from the hub's %s"
        log.warning(told, task.name, label, where, _hub_names(source))
    read = source.read_hub if from_hub else source.read_file
    empty = "keep" if from_hub else empty
    how = {"label": label, "empty": empty, "left_out": source.left_out, "unread": unread}
    examples = make_examples(task, rows, read, **how)
    if blank := [example.id for example in examples if not all(text.strip() for text in example.fields.values())]:
        told = (task.name, where, len(blank), len(examples), blank[0])
        log.warning("%s: %s: %d of %d rows have an empty text (the first: %s)", *told)
    if source.part is not None:
        different = _different(examples)
        random.Random(FILE_ROWS_SEED).shuffle(different)
        if not (examples := different[source.part]):
            cut = f"test_size cuts off all of its {len(different)} different rows"
            raise UserError(f"{task.name}: {where}: {cut}; set it to less: train and dev are cut from the others.")
    if source.file_rows is not None and not from_hub:
        random.Random(FILE_ROWS_SEED).shuffle(examples)
        examples = examples[source.file_rows]
    return _Loaded(where, from_hub, require_rows(examples, f"{task.name}: {where}"))


def _read_files(task: Task, source: Source, folder: Path, unread: list[str]) -> tuple[str, list[PlacedRow]]:
    """unread: gets what is wrong with rows that cannot be read."""
    missing = [name for name in source.files if not (folder / name).is_file()]
    if missing and source.folder is None:
        raise UserError(
            f"{task.name}: the data folder {folder} has no {', '.join(missing)}. Put the file there (docs/tasks.md "
            f"names its columns), or unset data.local_dir and PREWRITE_DATA to load {_hub_names(source)} from the hub. "
            f"{source.access}".rstrip()
        )
    placed = ((name, *one) for name in source.files for one in read_placed_rows(folder / name, unread))
    return ", ".join(source.files), [(f"{name}: {place}", row) for name, place, row in placed]


def _read_hub(task: Task, source: Source) -> tuple[str, list[PlacedRow]]:
    where = _hub_names(source)
    rows = (row for split in source.hub for row in hub_rows(task, source, split))
    return where, [(f"{where}: row {number}", row) for number, row in enumerate(rows, start=1)]


def _hub_names(source: Source) -> str:
    return ", ".join(f"{part.dataset}{f'/{part.config}' if part.config else ''}:{part.split}" for part in source.hub)


def hub_rows(task: Task, source: Source, split: HubSplit) -> Sequence[RawRow]:
    """The rows of a split on the hub, as they are there. Raises UserError where it cannot be loaded."""
    import datasets

    access = f"{source.access} " if source.access else ""
    files = ", ".join(dict.fromkeys((*task.train.files, *task.test.files)))
    way_out = f"Without the hub, set data.local_dir or PREWRITE_DATA to a folder with {files}; "
    way_out += "scripts/fetch_data.py writes it on a machine that has the hub."
    try:
        loaded = load_hub_split(split, access + way_out)
    except UserError as error:
        raise UserError(f"{task.name}: {error}") from error
    if source.class_names and isinstance(label := loaded.features.get(task.target), datasets.ClassLabel):
        return [{**row, task.target: label.names[row[task.target]]} for row in loaded]
    return loaded


def load_hub_split(split: HubSplit, way_out: str) -> Any:
    """A split as `datasets` has it. UserError, which ends in the way out, where it cannot be loaded."""
    import datasets
    import httpx
    from datasets.exceptions import DatasetsError

    try:
        return datasets.load_dataset(split.dataset, split.config, split=split.split, revision=split.revision)
    except (DatasetsError, httpx.HTTPError, OSError, ValueError) as error:
        what, reason = f"(config {split.config}, split {split.split})", f"{type(error).__name__}: {error}".rstrip(".")
        raise UserError(f"the hub data set {split.dataset} {what} could not be loaded: {reason}. {way_out}") from error

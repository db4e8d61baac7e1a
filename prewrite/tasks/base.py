"""What a task is: where its examples come from, what the task model reads, and what counts as an answer."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from prewrite.types import Example

Kind = Literal["classification", "math", "open_question"]
KINDS: tuple[Kind, ...] = get_args(Kind)
RawRow = Mapping[str, Any]
RowReader = Callable[[RawRow], RawRow | None]


def as_is(row: RawRow) -> RawRow:
    """The reader of rows that already have the task's columns."""
    return row


def labelled(labels: Sequence[str], **columns: str) -> RowReader:
    """The reader of rows whose `label` is a number. columns: the task's name of a column = the source's name of it."""
    return lambda row: {ours: row[theirs] for ours, theirs in columns.items()} | {"label": labels[row["label"]]}


@dataclass(frozen=True)
class HubSplit:
    """One split of a data set of the Hugging Face hub, as `datasets.load_dataset` takes it."""

    dataset: str
    split: str
    config: str | None = None
    revision: str | None = None


@dataclass(frozen=True)
class Source:
    """Where rows come from: local files where a data folder is given, the hub otherwise.

    label: the name that a report prints for these rows, official or not.
    hub, files: read one after the other; files are names inside the data folder.
    read_hub, read_file: a source row -> a row with the task's columns (and, where known, `id`, `solution`, `subject`,
        `level`), or None for a row that does not belong to the source. left_out: why not, where that is to be told.
    folder: the folder of files that ship with the package; it goes before every data folder.
    file_rows: the part of the files that belongs to this source, after one fixed shuffle: for files without an
        official split of their own. file_label is then the label.
    part: the part of the rows, hub's or files', that belongs to this source after the same shuffle, once repeated ones
        are left out: for one set of rows that train and test are cut from.
    class_names: whether a number in a column of class labels on the hub is read as the label's name.
    hub_overlap: why rows of the hub's copy repeat test rows. They are left out and counted in the log. Without a
        reason, and always for local files, a repeated row is refused.
    access: what to do first for a data set that is not open.
    """

    label: str
    hub: tuple[HubSplit, ...] = ()
    files: tuple[str, ...] = ()
    read_hub: RowReader = as_is
    read_file: RowReader = as_is
    folder: Path | None = None
    file_rows: slice | None = None
    file_label: str = ""
    part: slice | None = None
    class_names: bool = False
    left_out: str = ""
    hub_overlap: str = ""
    access: str = ""


@dataclass(frozen=True)
class Task:
    """One data set with everything that the other rooms need to know about it.

    fields: column -> the label that stands before its text in the query, in the query's order.
    target: the column of the gold: one of `labels` (classification), an expression (math), a text or a list of texts
        any of which is right (open_question).
    train: scores rollouts; the dev rows are cut from it, by seed. test: for `evaluate.py` alone.
    words: the sources' label -> the word for it, where a config gives one for some (`data.labels`); `labels` are words.
    """

    name: str
    kind: Kind
    fields: Mapping[str, str]
    target: str
    default_instruction: str
    train: Source
    test: Source
    licence: str
    labels: tuple[str, ...] = ()
    words: Mapping[str, str] = field(default_factory=dict)
    aliases: tuple[str, ...] = ()


def query(task: Task, instruction: str, example: Example) -> str:
    """What the task model reads: the instruction, a newline, the example's labelled fields, one a line.

    Both are inserted literally: braces, `%s` and `$x` mean nothing here.
    """
    return "\n".join((instruction, *(f"{label}: {example.fields[column]}" for column, label in task.fields.items())))

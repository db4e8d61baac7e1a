"""From a source's rows to examples, with every fault of the rows at once, by file and line."""

import logging
from collections import Counter
from collections.abc import Sequence
from typing import Any, Literal

from prewrite.errors import UserError
from prewrite.tasks.base import RawRow, RowReader, Task
from prewrite.tasks.files import golds_of, is_missing, shown_text, text_or_none
from prewrite.types import Example
from prewrite.writing import has_half_character

log = logging.getLogger(__name__)

Empty = Literal["refuse", "drop", "keep"]
PlacedRow = tuple[str, RawRow]
_KINDS_TOLD, _PLACES_TOLD = 12, 5


class _Fault(Exception):
    """What is wrong with one row, in words that rows of the same fault share."""


class _Empty(_Fault):
    """A text or gold is empty."""


def make_examples(
    task: Task,
    rows: Sequence[PlacedRow],
    read: RowReader,
    *,
    label: str,
    empty: Empty,
    left_out: str = "",
    unread: Sequence[str] = (),
) -> list[Example]:
    """The examples of placed rows ("train.csv: row 3 (line 4)", and the row), numbered from 1 where they have no id.

    empty: what becomes of a row with an empty text or gold. A text may be kept, a gold never.
    left_out: why `read` gives None for some rows, where that is to be told.
    unread: what is wrong with rows that could not be read.
    Raises UserError with every fault, rows of the same one together, counted.
    """
    places: dict[str, list[str]] = {}
    examples: list[Example] = []
    number, others, dropped = 0, 0, []
    for place, raw in rows:
        try:
            row = _converted(raw, read)
            if row is None:
                others += 1
                continue
            number += 1
            examples.append(_example(task, row, f"{label}-{number}", empty))
        except _Fault as fault:
            if empty == "drop" and isinstance(fault, _Empty):
                dropped.append(place)
            else:
                places.setdefault(str(fault), []).append(place)
    for example_id, count in Counter(example.id for example in examples).items():
        if count > 1:
            places[f"two rows have the same id {example_id!r}; make it unique, or leave the column out."] = [label]
    if places or unread:
        raise UserError("\n".join(_told(task, places, unread)))
    if left_out and others:
        if not examples:
            raise UserError(f"{task.name}: all {len(rows)} rows are left out: {left_out}. See custom_tasks[].target.")
        log.warning("%s: %d of %d rows are left out: %s", task.name, others, len(rows), left_out)
    if dropped:
        told = (task.name, len(dropped), dropped[0].partition(": ")[0], _short(dropped))
        log.warning("%s: %d rows with an empty text or gold are left out (data.empty): %s: %s", *told)
    return examples


def _told(task: Task, places: dict[str, list[str]], unread: Sequence[str]) -> list[str]:
    lines = [f"{task.name}: {fault}" for fault in unread]
    for fault, own in places.items():
        also = f" ({len(own)} rows: {_short(own)})" if len(own) > 1 else ""
        lines.append(f"{task.name}: {own[0]}: {fault}{also}")
    more = [f"{task.name}: and {len(lines) - _KINDS_TOLD} faults more."] if len(lines) > _KINDS_TOLD else []
    return lines[:_KINDS_TOLD] + more


def _short(places: Sequence[str]) -> str:
    """The first places, those of one file without its name."""
    file = places[0].partition(": ")[0] + ": "
    shown = [place.removeprefix(file) for place in places[:_PLACES_TOLD]]
    return ", ".join([*shown, "..."] if len(places) > _PLACES_TOLD else shown)


def _converted(row: RawRow, read: RowReader) -> RawRow | None:
    try:
        return read(row)
    except KeyError as error:
        raise _Fault(_lacks(str(error), row)) from error


def _lacks(column: str, row: RawRow) -> str:
    return f"the column {column} is missing; the row has {', '.join(map(str, row)) or 'none'}. Every row needs it."


def _example(task: Task, row: RawRow, generated_id: str, empty: Empty) -> Example:
    for column in (*task.fields, task.target):
        if column not in row:
            raise _Fault(_lacks(repr(column), row))
    for column in task.fields:
        if isinstance(row[column], list | tuple | dict):
            rule = "a query shows texts: give the text a column of its own"
            raise _Fault(f"the column {column!r} holds a {type(row[column]).__name__}; {rule}.")
        if has_half_character(shown_text(row[column])):
            raise _Fault(f"the column {column!r} holds half a character (a lone surrogate); take it out.")
        if not shown_text(row[column]).strip() and empty != "keep":
            raise _Empty(f"the column {column!r} is empty; data.empty=drop leaves such rows out, keep keeps them.")
    own = (*task.fields, task.target, "solution")
    others = {column: cell for column, cell in row.items() if column not in own}
    return Example(
        id=text_or_none(row.get("id")) or generated_id,
        fields={column: shown_text(row[column]) for column in task.fields},
        target=_target(task, row[task.target]),
        **{name: text_or_none(row.get(name)) for name in ("subject", "level", "solution")},
        columns={name: shown_text(cell) for name, cell in others.items() if isinstance(cell, str | int | float)},
    )


def _target(task: Task, value: Any) -> str | tuple[str, ...]:
    where = f"the column {task.target!r}"
    if is_missing(value) or (isinstance(value, str) and not value.strip()):
        raise _Empty(f"{where} is empty; the gold must not be empty; data.empty=drop leaves such rows out.")
    try:
        golds = golds_of(value, where)
    except UserError as error:
        raise _Fault(str(error)) from error
    if task.kind == "open_question":
        return tuple(golds)
    if len(golds) > 1:
        raise _Fault(f"{where} holds {len(golds)} golds; {task.kind} has exactly one.")
    if task.kind != "classification":
        return golds[0]
    words = task.words or {label: label for label in task.labels}
    if golds[0] in words:
        return words[golds[0]]
    alike = [label for label in words if label.casefold() == golds[0].strip().casefold()]
    if alike:
        raise _Fault(f"{where} is {value!r}; it is {alike[0]!r} but for case and blanks; the two must be one.")
    raise _Fault(f"{where} is {value!r}; the labels are {', '.join(words)}.")

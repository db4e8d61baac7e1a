"""Rows out of JSONL, CSV, parquet and saved `datasets` folders, in any locale; faults have file, row and column."""

import ast
import codecs
import contextlib
import csv
import io
import json
import logging
import math
import os
import re
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, TypeVar

from prewrite.errors import UserError
from prewrite.types import InstructionRow
from prewrite.writing import has_half_character, kind_of

log = logging.getLogger(__name__)

Rows = TypeVar("Rows", bound=Sequence[Any])

_LineRow = tuple[int, dict[str, Any] | str]  # its first line, and the row, or what is wrong with it
_LONGEST_CELL = 2**31 - 1
_EXACT_FLOATS = 2**53
_FAULTS_TOLD = 12
_UNCLOSED = (
    'a cell opens with a quote (") that nothing closes: a quoted cell ends with one, and a quote in it is doubled '
    '(""); close it, or double the quotes in it'
)
_BRACED = re.compile(r"\{\s*([A-Za-z_]\w*)\s*\}")


def read_rows(path: Path) -> list[dict[str, Any]]:
    """All rows of a .jsonl, .csv or .parquet file, or of a folder that `datasets`' save_to_disk wrote.

    Text is UTF-8, with or without a byte-order mark. JSONL: blank lines are skipped; a last line that breaks off (the
    writer was killed) is left out with a warning that gives its number; any other line that is no JSON object is
    refused, all such lines in one message. A missing, unreadable or empty file raises UserError.
    """
    return [row for _, row in read_placed_rows(path)]


def read_placed_rows(path: Path, faults: list[str] | None = None) -> list[tuple[str, dict[str, Any]]]:
    """`read_rows`, each with its place in the file: "row 3", or "row 3 (line 4)" where the two differ.

    faults: where given, it gets what is wrong with rows that cannot be read, which are left out, so that the caller
    tells them together with the faults of the others.
    """
    if os.path.isdir(path):  # not Path.is_dir, which raises for a name too long
        rows = require_rows(_read_saved(path), str(path))
        return [(f"row {number}", row) for number, row in enumerate(rows, start=1)]
    if not os.path.isfile(path):
        raise UserError(f"{path}: there is no such file. Give the path of a .jsonl, .csv or .parquet file.")
    readers = {".jsonl": _read_jsonl, ".csv": _read_csv, ".parquet": _read_parquet}
    if path.suffix.lower() not in readers:
        raise UserError(f"{path}: its ending is {path.suffix!r}; rows are read from {', '.join(readers)} files.")
    read = require_rows(readers[path.suffix.lower()](path), str(path))
    rows, damaged = [], []
    for number, (line, row) in enumerate(read, start=1):
        if isinstance(row, str):
            damaged.append(f"{path}: {row}")
        else:
            rows.append((f"row {number}" + (f" (line {line})" if line != number else ""), row))
    if faults is None or not rows:
        refuse_faults(damaged)
    else:
        faults += damaged
    return rows


def require_rows(rows: Rows, where: str, filtered_by: str = "") -> Rows:
    """The rows, or UserError where none is left; filtered_by names the filter that removed them."""
    if not rows:
        cause = f"the filter {filtered_by} removed every row; loosen it" if filtered_by else "give a file that has rows"
        raise UserError(f"{where}: 0 rows. At least one is needed: {cause}.")
    return rows


def refuse_faults(faults: Sequence[str]) -> None:
    """UserError with the faults of rows, as far as one message can hold them."""
    if faults:
        more = [f"and {len(faults) - _FAULTS_TOLD} faults more."] if len(faults) > _FAULTS_TOLD else []
        raise UserError("\n".join([*faults[:_FAULTS_TOLD], *more]))


def require_columns(row: dict[str, Any], columns: Sequence[str], where: str) -> None:
    """UserError where the row lacks one of the columns, or has nothing in it."""
    for column in columns:
        if is_missing(row.get(column)):
            fault = "is empty" if column in row else f"is missing; the row has {', '.join(map(str, row)) or 'none'}"
            raise UserError(f"{where}: the column {column!r} {fault}. Every row needs it.")


def read_instruction_rows(path: Path, default_task: str | None = None) -> list[InstructionRow]:
    """Instruction data: `instruction`, `dataset_name`, and where wanted `subject`, `level`, `tags`, `information`, and
    `answer` (a text, a number, or a list of texts any of which is right).

    default_task: the dataset_name of rows without one. Raises UserError with every row's fault.
    """
    rows, faults = [], []
    for place, row in read_placed_rows(path, faults):
        try:
            if default_task is not None and is_missing(row.get("dataset_name")):
                row = row | {"dataset_name": default_task}
            rows.append(instruction_row(row, f"{path}: {place}"))
        except UserError as error:
            faults.append(str(error))
    refuse_faults(faults)
    return rows


def instruction_row(row: dict[str, Any], where: str) -> InstructionRow:
    """A row of instruction data. UserError at `where`."""
    require_columns(row, ("instruction", "dataset_name"), where)
    for column, cell in row.items():
        if isinstance(cell, str) and has_half_character(cell):
            raise UserError(f"{where}: the column {column!r} holds half a character (a lone surrogate); take it out.")
    tags = _tags(row.get("tags"), where)
    for column in ("instruction", "dataset_name"):
        if not isinstance(row[column], str) or not row[column].strip():
            raise UserError(f"{where}: the column {column!r} is {row[column]!r}; it must be a text that is not empty.")
    answer = _answer(row.get("answer"), f"{where}: the column 'answer'")
    others = {name: text_or_none(row.get(name)) for name in ("subject", "level", "information")}
    return InstructionRow(row["instruction"], row["dataset_name"], tags=tags, answer=answer, **others)


def _tags(value: Any, where: str) -> tuple[str, ...]:
    """The columns that a template shows: a list of names, or "{problem},{level}"; in CSV such a list as a text too."""
    if is_missing(value) or value == "":
        return ()
    tags = _BRACED.findall(value) if isinstance(value, str) and not _BRACED.sub("", value).strip(" ,") else value
    if isinstance(tags, str) and tags.lstrip().startswith("["):
        with contextlib.suppress(ValueError, SyntaxError, MemoryError, RecursionError):  # it is refused below
            tags = ast.literal_eval(tags.strip())
    if isinstance(tags, str) or not isinstance(tags, list | tuple) or not all(isinstance(tag, str) for tag in tags):
        raise UserError(
            f'{where}: the column \'tags\' is {value!r}; it must be a list of columns, as ["problem", "level"], or a '
            'text, as "{problem},{level}".'
        )
    return tuple(dict.fromkeys(tags))


def _answer(value: Any, where: str) -> str | tuple[str, ...] | None:
    """One gold, or several any of which is right; None where there is none."""
    if is_missing(value) or (isinstance(value, str) and not value.strip()):
        return None
    golds = golds_of(value, where)
    return tuple(golds) if isinstance(value, list | tuple) else golds[0]


def golds_of(value: Any, where: str) -> list[str]:
    """The golds of a cell, one or a list of them, each a text that is not empty. UserError otherwise."""
    cells = value if isinstance(value, list | tuple) else [value]
    golds = [text for text in map(_plain_text, cells) if text is not None and text.strip()]
    if not golds or len(golds) < len(cells):
        rule = "the gold must not be empty, but a text, a number, or a list of those"
        raise UserError(f"{where} is {repr(value)[:80]}; {rule}.")
    return golds


def is_missing(value: object) -> bool:
    """Whether a cell holds nothing: null, or the NaN that pandas writes for it."""
    return value is None or (isinstance(value, float | Decimal) and math.isnan(value))


def text_or_none(value: object) -> str | None:
    """The value of an optional column as a text; a blank one is absent."""
    text = None if is_missing(value) else _plain_text(value) or str(value)
    return text if text and text.strip() else None


def shown_text(value: object) -> str:
    """The value of a column that a query shows; "" where it is missing."""
    return "" if is_missing(value) else _plain_text(value) or str(value)


def _plain_text(value: object) -> str | None:
    """A text or a finite number as a text, a whole number without the ".0" that pandas gives it; None for all else."""
    if isinstance(value, str):
        return value
    if isinstance(value, float | Decimal) and not math.isfinite(value):
        return None
    if isinstance(value, float | Decimal) and value == int(value) and abs(value) < _EXACT_FLOATS:
        return str(int(value))
    return str(value) if isinstance(value, int | float | Decimal) else None


def _read_jsonl(path: Path) -> list[_LineRow]:
    lines = path.read_bytes().removeprefix(codecs.BOM_UTF8).split(b"\n")
    rows: list[_LineRow] = []
    for number, line in enumerate(lines, start=1):
        reason = ""
        try:
            text = line.decode()
            if not text.strip():
                continue
            row = json.loads(text, object_pairs_hook=_no_repeats)
            if not isinstance(row, dict):
                row = f"line {number} is {kind_of(row)}. Every line must be a JSON object."
        except UnicodeDecodeError as error:
            row = f"line {number} is not UTF-8 (its byte {error.start + 1}). Save the file as UTF-8."
            if error.reason == "unexpected end of data":  # in the middle of a letter
                reason = error.reason
        except (ValueError, RecursionError) as error:
            reason = error.msg if isinstance(error, json.JSONDecodeError) else ""
            row = f"line {number} is not JSON ({reason or error}). Every line must be an object."
        if reason and number == len(lines):
            log.warning("%s: line %d, the last, breaks off (%s): left out", path, number, reason)
        else:
            rows.append((number, row))
    return rows


def _no_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    _refuse_repeats([key for key, _ in pairs])
    return dict(pairs)


def _refuse_repeats(columns: Sequence[str]) -> None:
    """ValueError for a column that stands twice: one of the two would be read, and nobody knows which."""
    repeated = [column for column in set(columns) if column and columns.count(column) > 1]
    if repeated:
        raise ValueError(f"the column {min(repeated)!r} stands twice")


def _read_csv(path: Path) -> list[_LineRow]:
    content = path.read_bytes()
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = content[: error.start].split(b"\n")
        place = f"line {len(before)} is not UTF-8 (its byte {len(before[-1]) + 1})"
        raise UserError(f"{path}: {place}. Save the file as UTF-8.") from error
    csv.field_size_limit(_LONGEST_CELL)
    reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    rows: list[_LineRow] = []
    line = 1
    try:
        _refuse_repeats(list(reader.fieldnames or ()))
        line = reader.line_num + 1
        for row in reader:
            more = "it has more cells than the header; quote cells that hold commas"
            rows.append((line, _no_csv(len(rows), line, more) if None in row else row))
            line = reader.line_num + 1
    except (csv.Error, ValueError) as error:
        fault = _UNCLOSED if str(error) == "unexpected end of data" else error
        rows.append((line, _no_csv(len(rows), line, fault)))  # where the next row begins, nobody knows
    return rows


def _no_csv(rows_before: int, line: int, fault: object) -> str:
    return f"row {rows_before + 1} is no CSV (from line {line}): {fault}."


def _read_parquet(path: Path) -> list[_LineRow]:
    import pyarrow.parquet

    try:
        table = pyarrow.parquet.read_table(path)
        _refuse_repeats(table.column_names)
        return list(enumerate(table.to_pylist(), start=1))
    except Exception as error:  # a damaged file ends in whatever its bytes lead pyarrow to
        reason = " ".join(str(error).split())[:200]
        raise UserError(f"{path}: not a parquet file that can be read ({type(error).__name__}: {reason}).") from error


def _read_saved(path: Path) -> list[dict[str, Any]]:
    import datasets

    try:
        saved = datasets.load_from_disk(str(path))
    except Exception as error:  # a folder of other things, or damaged: whatever datasets and pyarrow make of it
        reason = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        way_out = "Give the path of a .jsonl, .csv or .parquet file, or of such a folder."
        raise UserError(f"{path}: not a folder that datasets' save_to_disk wrote ({reason}). {way_out}") from error
    if isinstance(saved, datasets.DatasetDict):
        splits = [str(name) for name in saved]
        way_out = f"give the folder of one, as {path / splits[0]}"
        raise UserError(f"{path}: it holds the splits {', '.join(splits)}; {way_out}.")
    return saved.to_list()

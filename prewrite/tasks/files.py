"""Rows out of JSONL, CSV and parquet files, whatever the locale, with faults told by file, row and column."""

import csv
import io
import json
import logging
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from prewrite.errors import UserError
from prewrite.types import InstructionRow

log = logging.getLogger(__name__)

Item = TypeVar("Item")


def read_rows(path: Path) -> list[dict[str, Any]]:
    """All rows of a .jsonl, .csv or .parquet file.

    Text is UTF-8, with or without a byte-order mark. JSONL: blank lines are skipped; a last line that breaks off (the
    writer was killed) is left out with a warning that gives its number; any other line that is no JSON object is
    refused. A missing, unreadable or empty file raises UserError.
    """
    if not path.is_file():
        raise UserError(f"{path}: there is no such file. Give the path of a .jsonl, .csv or .parquet file.")
    readers = {".jsonl": _read_jsonl, ".csv": _read_csv, ".parquet": _read_parquet}
    if path.suffix.lower() not in readers:
        raise UserError(f"{path}: its ending is {path.suffix!r}; rows are read from {', '.join(readers)} files.")
    return require_rows(readers[path.suffix.lower()](path), str(path))


def require_rows(rows: list[Item], where: str, filtered_by: str = "") -> list[Item]:
    """The rows, or UserError where none is left; filtered_by names the filter that removed them."""
    if not rows:
        cause = f"the filter {filtered_by} removed every row; loosen it" if filtered_by else "give a file that has rows"
        raise UserError(f"{where}: 0 rows. At least one is needed: {cause}.")
    return rows


def require_columns(rows: Iterable[dict[str, Any]], columns: Sequence[str], where: str) -> None:
    """UserError where a row lacks one of the columns, or has nothing in it; rows are numbered from 1."""
    for number, row in enumerate(rows, start=1):
        for column in columns:
            if row.get(column) is None:
                fault = "is empty" if column in row else f"is missing; the row has {', '.join(map(str, row)) or 'none'}"
                raise UserError(f"{where}: row {number}: the column {column!r} {fault}. Every row needs it.")


def read_instruction_rows(path: Path) -> list[InstructionRow]:
    """Instruction data: `instruction`, `dataset_name`, and where wanted `subject`, `level`, `tags`, `information`, and
    `answer` (a text, a number, or a list of texts any of which is right)."""
    rows = read_rows(path)
    require_columns(rows, ("instruction", "dataset_name"), str(path))
    return [_instruction_row(row, f"{path}: row {number}") for number, row in enumerate(rows, start=1)]


def _instruction_row(row: dict[str, Any], where: str) -> InstructionRow:
    tags = row.get("tags") or ()
    for column in ("instruction", "dataset_name"):
        if not isinstance(row[column], str) or not row[column].strip():
            raise UserError(f"{where}: the column {column!r} is {row[column]!r}; it must be a text that is not empty.")
        if row[column].encode("utf-8", "ignore").decode("utf-8") != row[column]:
            raise UserError(f"{where}: the column {column!r} holds half a character (a lone surrogate); take it out.")
    if isinstance(tags, str) or not all(isinstance(tag, str) for tag in tags):
        raise UserError(f"{where}: the column 'tags' is {tags!r}; it must be a list of texts, as in [\"problem\"].")
    return InstructionRow(
        instruction=row["instruction"],
        dataset_name=row["dataset_name"],
        subject=text_or_none(row.get("subject")),
        level=text_or_none(row.get("level")),
        tags=tuple(tags),
        information=text_or_none(row.get("information")),
        answer=_answer(row.get("answer"), where),
    )


def _answer(value: Any, where: str) -> str | tuple[str, ...] | None:
    """One gold, or several any of which is right."""
    if value is None:
        return None
    golds = tuple(map(str, value if isinstance(value, list | tuple) else [value]))
    if not golds or not all(gold.strip() for gold in golds):
        raise UserError(f"{where}: the column 'answer' is {value!r}; give a gold that is not empty, or leave it out.")
    return golds if isinstance(value, list | tuple) else golds[0]


def text_or_none(value: object) -> str | None:
    """The value of an optional column as a text."""
    return None if value is None else str(value)


def _read_text(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: byte {error.start} is not UTF-8. Save the file as UTF-8.") from error


def _read_jsonl(path: Path) -> list[dict[str, Any]]:
    lines = _read_text(path).split("\n")  # not splitlines: U+2028 and the like may stand inside a JSON string
    rows = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            if number == len(lines):
                log.warning("%s: line %d, the last, breaks off (%s): left out", path, number, error.msg)
                continue
            raise UserError(
                f"{path}: line {number} is not JSON ({error.msg}). Every line must be an object."
            ) from error
        if not isinstance(row, dict):
            raise UserError(f"{path}: line {number} is a {type(row).__name__}. Every line must be a JSON object.")
        rows.append(row)
    return rows


def _read_csv(path: Path) -> list[dict[str, Any]]:
    rows = list(csv.DictReader(io.StringIO(_read_text(path), newline="")))
    for number, row in enumerate(rows, start=1):
        if None in row:
            raise UserError(f"{path}: row {number} has more cells than the header. Quote cells that hold commas.")
    return rows


def _read_parquet(path: Path) -> list[dict[str, Any]]:
    import pyarrow
    import pyarrow.parquet

    try:
        return pyarrow.parquet.read_table(path).to_pylist()
    except pyarrow.ArrowInvalid as error:
        raise UserError(f"{path}: not a parquet file that can be read ({error}).") from error

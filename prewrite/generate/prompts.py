"""The prompts: a template filled in with the rows of a data set, without repeats and rows of a test split."""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jinja2
from jinja2 import meta, nodes
from jinja2.sandbox import SandboxedEnvironment

from prewrite.errors import UserError
from prewrite.plugins import TooSlow, faults_told, template_time
from prewrite.tasks.base import HubSplit, Task
from prewrite.tasks.examples import PlacedRow
from prewrite.tasks.files import is_missing, read_placed_rows, refuse_faults, require_rows, shown_text
from prewrite.tasks.loading import load_hub_split, overlapping
from prewrite.tasks.near_copies import near_copies
from prewrite.types import Example

_FILES = (".jsonl", ".csv", ".parquet")
_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[\w.-]+)?")


@dataclass(frozen=True)
class Prompt:
    """A row with what is asked about it. place: of the row, for messages. left_out: why it is not asked; "" = it is."""

    place: str
    row: Mapping[str, Any]
    text: str
    left_out: str = ""


def read_data(name: str, *, subset: str | None, split: str | None) -> list[PlacedRow]:
    """The rows of a local file, a folder that `datasets` saved, or a data set of the hub. Raises UserError."""
    path = Path(name)
    if os.path.exists(path) or path.suffix.lower() in _FILES:  # not Path.exists, which raises for a name too long
        if subset or split:
            raise UserError(f"--subset and --split are of data sets on the hub; --data {name} is local")
        return [(f"{name}: {place}", row) for place, row in read_placed_rows(path)]
    if not _HUB_NAME.fullmatch(name):
        raise UserError(f"--data {name}: there is no such file or folder, and a name on the hub is OWNER/NAME")
    there = HubSplit(name, split or "train", config=subset)
    way_out = "Look at --subset and --split, or give a .jsonl, .csv or .parquet file, or a folder of save_to_disk."
    rows = require_rows(load_hub_split(there, way_out), f"--data {name}")
    return [(f"{name}: row {number}", row) for number, row in enumerate(rows, start=1)]


def rows_of_task(task: Task, examples: Sequence[Example]) -> list[PlacedRow]:
    """A task's examples as rows: its fields, `answer`, and what else is known of each."""
    rows = []
    for one in examples:
        row = {**one.columns, **one.fields, "id": one.id, "answer": one.target}
        row |= {key: value for key in ("solution", "subject", "level") if (value := getattr(one, key)) is not None}
        rows.append((f"{task.name}: {one.id}", row))
    return rows


class Template:
    """A Jinja template in a sandbox; its variables are the columns of a row, and `row` is the row itself.

    given: the template's text, or a file that holds it. Raises UserError where it is none.
    """

    def __init__(self, given: str):
        environment = SandboxedEnvironment(undefined=jinja2.StrictUndefined)
        self.text = given if "{{" in given or "{%" in given else _template_file(given)
        try:
            parsed = environment.parse(self.text)
            self._template = environment.from_string(self.text)
        except jinja2.TemplateSyntaxError as error:
            raise UserError(f"--template: line {error.lineno} is no Jinja: {error.message}") from error
        except (RecursionError, SyntaxError, ValueError) as error:  # too deep or too long for Python
            raise UserError(f"--template: it cannot be compiled ({type(error).__name__}: {error})") from error
        self.names = meta.find_undeclared_variables(parsed) | set(_columns_of_row(parsed))
        if not self.names:
            raise UserError(
                f"--template {given[:80]!r}: it shows no column, so that every prompt would be the same; a column is "
                "{{ NAME }}"
            )

    def fill(self, row: Mapping[str, Any], place: str) -> str:
        """The prompt of a row. Raises UserError, also where it is blank. An empty cell is as undefined as no column."""
        cells = {str(name): cell for name, cell in row.items() if not is_missing(cell)}
        with faults_told(f"--template, {place}"), template_time(f"--template, {place}"):
            try:
                text = self._template.render({"row": cells, **cells})
            except jinja2.UndefinedError as error:
                raise UserError(
                    f"--template: {error}. {place} has {', '.join(cells) or 'none'}; for a column that not all rows "
                    "have, ask first: {% if NAME is defined %}"
                ) from error
        if not text.strip():
            raise UserError(f"--template: the prompt of {place} is blank")
        return text


def _columns_of_row(parsed: nodes.Template) -> Iterator[str]:
    """The columns that a template shows as `row['name']` or `row.name`."""
    for node in parsed.find_all((nodes.Getitem, nodes.Getattr)):
        if isinstance(node.node, nodes.Name) and node.node.name == "row":
            if isinstance(node, nodes.Getattr):
                yield node.attr
            elif isinstance(node.arg, nodes.Const):
                yield str(node.arg.value)


def make_prompts(placed: Sequence[PlacedRow], template: Template) -> list[Prompt]:
    """A prompt a row, in order; one that repeats another is left out. Raises UserError for all rows with a fault."""
    prompts: list[Prompt] = []
    faults: list[str] = []
    seen: set[str] = set()
    for place, row in placed:
        try:
            text = template.fill(row, place)
        except TooSlow:
            raise
        except UserError as error:
            faults.append(str(error))
            continue
        prompts.append(Prompt(place, row, text, "repeats another prompt" if text in seen else ""))
        seen.add(text)
    refuse_faults(faults)
    return prompts


def without_test_rows(prompts: list[Prompt], names: set[str], tests: Mapping[str, Sequence[Example]]) -> list[Prompt]:
    """The prompts, those left out whose row stands in a test split, whole or by a third of its runs of 8 words.

    names: the columns that the template shows, which are what is compared. tests: by task.
    """
    texts = [
        Example(str(number), {name: shown_text(cell) for name, cell in one.row.items() if name in names}, "")
        if names & set(one.row)
        else Example(str(number), {"prompt": one.text}, "")
        for number, one in enumerate(prompts)
    ]
    left_out = {number: one.left_out for number, one in enumerate(prompts)}
    for task, test in tests.items():
        for example in [*overlapping(texts, test), *(own for own, _ in near_copies(texts, test))]:
            left_out[int(example.id)] = left_out[int(example.id)] or f"like a test row of {task}"
    return [replace(one, left_out=left_out[number]) for number, one in enumerate(prompts)]


def _template_file(given: str) -> str:
    try:
        return Path(given).read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise UserError(
            f"--template {given[:80]!r}: neither a template, which shows a column as {{{{ column }}}}, nor a file that "
            f"can be read ({reason})"
        ) from error

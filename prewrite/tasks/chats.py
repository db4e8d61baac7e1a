"""Rows to imitate: chats of a file or of the hub, with `messages`, or with `prompt` and `completion`."""

import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prewrite.config import DataSettings
from prewrite.errors import UserError
from prewrite.tasks.base import HubSplit
from prewrite.tasks.examples import PlacedRow
from prewrite.tasks.files import is_missing, read_placed_rows, refuse_faults, require_rows
from prewrite.tasks.loading import load_hub_split
from prewrite.writing import has_half_character

log = logging.getLogger(__name__)

NO_REWRITES = (
    "a run that wrote no rewrites, as one of solving: give a run of rewriting, or a file of rows (python -m "
    "prewrite.generate makes one of a model's right answers)"
)
_WHAT = "a row has `messages`, or `prompt` and `completion`"


@dataclass(frozen=True)
class Turn:
    """Who speaks, as the chat template calls it, and what is said."""

    role: str
    content: str


@dataclass(frozen=True)
class Chat:
    """where: its place, for messages. What the assistant says is imitated from turn `first` on, counted from 0."""

    where: str
    turns: tuple[Turn, ...]
    first: int = 0


class EmptyTurn(UserError):
    """A turn without words."""


def is_run_folder(path: Path) -> bool:
    """Whether a run wrote the folder, so that its best rewrites are the rows."""
    return all(os.path.isfile(path / name) for name in ("config.json", "log.jsonl"))


def read_chats(path: Path, data: DataSettings) -> list[Chat]:
    """The chats of a file that `read_placed_rows` reads. Raises UserError with every row's fault."""
    faults: list[str] = []
    return chats_of([(f"{path}: {place}", row) for place, row in read_placed_rows(path, faults)], data, faults)


def read_hub_chats(split: HubSplit, data: DataSettings) -> list[Chat]:
    """The chats of a split on the hub. Raises UserError with every row's fault, and where it cannot be loaded."""
    where = f"{split.dataset}{f'/{split.config}' if split.config else ''}:{split.split}"
    rows = load_hub_split(split, "Without the hub, set data.chats to a file of its rows")
    return chats_of([(f"{where}: row {number}", row) for number, row in enumerate(rows, start=1)], data)


def chats_of(rows: Sequence[PlacedRow], data: DataSettings, unread: Sequence[str] = ()) -> list[Chat]:
    """Raises UserError with every row's fault; an empty turn is one, or leaves its row out, as `data.empty` says.

    unread: what is wrong with rows that could not be read.
    """
    chats, faults, empty = [], [*unread], []
    for where, row in rows:
        try:
            chats.append(chat_of(row, where))
        except EmptyTurn as error:
            (empty if data.empty == "drop" else faults).append(str(error))
        except UserError as error:
            faults.append(str(error))
    refuse_faults(faults)
    if empty:
        log.warning("data.empty drop: %d of %d rows left out; the first: %s", len(empty), len(rows), empty[0])
        require_rows(chats, empty[0].partition(": ")[0], "data.empty drop")
    return chats


def chat_of(row: Any, where: str) -> Chat:
    """A row's chat. `prompt` and `completion` are each a text, the user's and the assistant's, or a list of turns; what
    is said in the prompt is not imitated. UserError at `where`."""
    has_messages, has_pair = not is_missing(row.get("messages")), not is_missing(row.get("prompt"))
    if has_messages == has_pair:
        has = ", ".join(str(name) for name, cell in row.items() if not is_missing(cell))
        raise UserError(f"{where}: {_WHAT}, one of the two; this one has {has or 'nothing'}.")
    first = 0
    if has_messages:
        turns = _turns(row["messages"], f"{where}: messages", None)
    else:
        turns = _turns(row["prompt"], f"{where}: prompt", "user")
        first = len(turns)
        turns += _turns(row.get("completion"), f"{where}: completion", "assistant")
    if turns and turns[0].role == "assistant":
        raise UserError(f"{where}: the assistant speaks first, and nothing has been asked.")
    if not any(turn.role == "assistant" for turn in turns[first:]):
        raise UserError(f'{where}: there is no turn of the role "assistant" to imitate.')
    return Chat(where, tuple(turns), first)


def _turns(value: Any, where: str, role: str | None) -> list[Turn]:
    """role: of a text; None where a text is none."""
    if isinstance(value, str) and role is not None:
        value = [{"role": role, "content": value}]
    if not isinstance(value, list | tuple):
        rule = 'a list of turns, as {"role": "user", "content": "..."}'
        raise UserError(f"{where} is {_short(value)}; it must be {'a text or ' if role else ''}{rule}.")
    turns = []
    for number, turn in enumerate(value, start=1):
        place = where if len(value) == 1 else f"{where}, turn {number}"
        said = turn if isinstance(turn, dict) else {}
        if not isinstance(said.get("role"), str) or not isinstance(said.get("content"), str):
            raise UserError(f"{place} is {_short(turn)}; it must have a role and a content, both texts.")
        if other := [key for key, given in said.items() if key not in ("role", "content") and given not in (None, [])]:
            raise UserError(f"{place}: it has {', '.join(other)}, which is not read here; take it out.")
        if not said["content"].strip():
            raise EmptyTurn(f"{place}: it has no words (data.empty drop leaves such rows out).")
        if has_half_character(said["content"]):
            raise UserError(f"{place}: it holds half a character (a lone surrogate); take it out.")
        turns.append(Turn(said["role"], said["content"]))
    return turns


def _short(value: Any) -> str:
    shown = repr(value)
    return shown if len(shown) <= 80 else f"{shown[:80]}..."

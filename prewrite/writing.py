"""Files that a reader never sees in part, and what their values are called."""

import errno
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

HALVES = "backslashreplace"  # a lone surrogate, which UTF-8 cannot say, becomes JSON's own escape of it
_HALF = re.compile("[\ud800-\udfff]")


def has_half_character(text: str) -> bool:
    """Whether it holds a lone surrogate, as half an emoji in a JSON escape: no tokenizer takes it."""
    return _HALF.search(text) is not None


def kind_of(value: Any) -> str:
    """What a value out of a JSON or YAML file is, in the words of these formats."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    kinds: Mapping[type, str] = {int: "a number", float: "a number", str: "a text", list: "a list", dict: "an object"}
    return kinds[type(value)]


def write_whole(path: Path, text: str) -> None:
    """Writes a file by way of a neighbour and a rename: a reader sees the old text or the new, never a part."""
    path = Path(os.path.realpath(path))  # a link stays one
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "a device or a folder is there")  # a rename would put a file in a device's place
    draft = path.with_name(path.name + ".part")
    draft.write_text(text, encoding="utf-8", errors=HALVES, newline="\n")
    os.replace(draft, path)


def append_line(path: Path, line: str) -> None:
    """A line at the end of a file, flushed."""
    with path.open("a", encoding="utf-8", errors=HALVES, newline="\n") as file:
        file.write(line + "\n")

"""YAML by the core schema of YAML 1.2: `1e-6` is a number, `yes` and a date are words.

Built from the parser's events, not by its constructors: what a config has no use for, and what makes a small file
large, is refused where it stands.
"""

import re
from typing import Any

from ruamel.yaml import YAML, events
from ruamel.yaml.error import MarkedYAMLError, YAMLError

MAX_DEPTH = 20
_WORDS = dict.fromkeys(("", "~", "null", "Null", "NULL"))
_WORDS |= dict.fromkeys(("true", "True", "TRUE"), True) | dict.fromkeys(("false", "False", "FALSE"), False)
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"([-+]?\.(?:inf|Inf|INF))|(\.(?:nan|NaN|NAN))")


def read_yaml(text: str) -> Any:
    """What the one document of the text holds. Raises ValueError, with line and column, for what cannot be read."""
    try:
        return _Reader(text).document()
    except MarkedYAMLError as error:
        said = ", ".join(part.strip() for part in (error.context, error.problem) if part)
        raise ValueError(f"{_at(error.problem_mark)}{' '.join(said.split())}") from error
    except YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from error


class _Reader:
    def __init__(self, text: str):
        self._events = YAML(typ="safe", pure=True).parse(text)

    def document(self) -> Any:
        next(self._events)  # the stream starts
        start = next(self._events)
        if not isinstance(start, events.DocumentStartEvent):
            return None
        if start.version not in (None, (1, 2)):
            raise ValueError(f"{_at(start.start_mark)}%YAML: files are read by YAML 1.2; take that line away")
        value = self._value(next(self._events), 0)
        next(self._events)  # the document ends
        if isinstance(second := next(self._events), events.DocumentStartEvent):
            raise ValueError(f"{_at(second.start_mark)}a second document; a config is one")
        return value

    def _value(self, event: Any, depth: int) -> Any:
        self._refuse(event, depth)
        if isinstance(event, events.ScalarEvent):
            return _scalar(event)
        values: list[Any] = []
        mapping: dict[str, Any] = {}
        while isinstance(item := next(self._events), events.NodeEvent):
            if isinstance(event, events.SequenceStartEvent):
                values.append(self._value(item, depth + 1))
                continue
            self._refuse(item, depth + 1)
            if not isinstance(item, events.ScalarEvent):
                raise ValueError(f"{_at(item.start_mark)}a list or a mapping as a key; keys are texts")
            if item.value in mapping:
                raise ValueError(f"{_at(item.start_mark)}key {item.value!r} is given twice")
            mapping[item.value] = self._value(next(self._events), depth + 1)
        return mapping if isinstance(event, events.MappingStartEvent) else values

    @staticmethod
    def _refuse(event: Any, depth: int) -> None:
        if isinstance(event, events.AliasEvent) or event.anchor is not None:
            raise ValueError(f"{_at(event.start_mark)}an anchor or alias (& or *); write the value out in its place")
        if getattr(event, "tag", None) not in (None, "!"):
            raise ValueError(f"{_at(event.start_mark)}a tag (!); values are plain: texts, numbers, true, false, null")
        if depth > MAX_DEPTH:
            raise ValueError(f"{_at(event.start_mark)}nested more than {MAX_DEPTH} deep")


def _scalar(event: events.ScalarEvent) -> Any:
    text = event.value
    if event.style:  # quoted, or a block of text
        return text
    if text in _WORDS:
        return _WORDS[text]
    if re.fullmatch("[-+]?[0-9]+", text):
        return int(text)
    if base := re.fullmatch("0(o)[0-7]+|0x[0-9a-fA-F]+", text):
        return int(text[2:], 8 if base[1] else 16)
    if _FLOAT.fullmatch(text):
        return float(text)
    if _NOT_FINITE.fullmatch(text):
        return float(text.replace(".", ""))
    return text


def _at(mark: Any) -> str:
    return f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""

"""Reward functions with TRL's signature, `completions, **columns`, as they are."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from types import CodeType
from typing import Any

from prewrite.errors import UserError
from prewrite.rewards.base import NOT_MY_ROW, Score
from prewrite.types import Example, InstructionRow, Sample

_GIVEN = ("prompts", "completions", "completion_ids")
_READS = ("instruction", "problem", "prompt", "question")


def has_trl_signature(function: Callable[..., Any]) -> bool:
    """Whether the function takes `completions`, and not the `samples` of this package."""
    names = inspect.signature(function).parameters
    return "completions" in names and "samples" not in names


def required_columns(name: str, function: Callable[..., Any]) -> tuple[str, ...]:
    """The columns that the function cannot be called without. UserError for one that cannot be called so at all."""
    if inspect.iscoroutinefunction(inspect.unwrap(function)):
        raise UserError(f"reward {name!r}: it is asynchronous; make it an ordinary function.")
    parameters = inspect.signature(function).parameters.values()
    if by_position := [one.name for one in parameters if one.kind is one.POSITIONAL_ONLY]:
        raise UserError(f"reward {name!r}: {by_position[0]!r} can only be given by position; it is called by name.")
    named = [one for one in parameters if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)]
    return tuple(one.name for one in named if one.default is one.empty and one.name not in _GIVEN)


def as_reward(name: str, function: Callable[..., Any]) -> Callable[..., Sequence[Score]]:
    """The function as `Reward.function` is called. Its None is NOT_MY_ROW: in TRL too it leaves the sum alone.

    It gets the raw completions, as lists of one message where it, or a function of its module that it names, reads the
    key "content", else as texts; `prompts`, the instruction or the problem, in the same form; `completion_ids`; and the
    row's columns, each a list. Without samples it is not called.
    """
    in_messages = _reads_content(inspect.unwrap(function))
    required = required_columns(name, function)
    parameters = inspect.signature(function).parameters
    takes_all = any(one.kind is one.VAR_KEYWORD for one in parameters.values())

    def adapted(samples: Sequence[Sample], rows: Sequence[Any]) -> Sequence[Score]:
        if not samples:
            return []
        columns = [columns_of(row) for row in rows]
        prompts = [next((str(column[key]) for key in _READS if column.get(key)), "") for column in columns]
        texts = [sample.text for sample in samples]
        keys = dict.fromkeys(key for column in columns for key in column if key not in _GIVEN)
        given: dict[str, list[Any]] = {key: [column.get(key) for column in columns] for key in keys}
        given["prompts"] = [_message("user", text) for text in prompts] if in_messages else prompts
        given["completions"] = [_message("assistant", text) for text in texts] if in_messages else texts
        given["completion_ids"] = [list(sample.completion_ids) for sample in samples]
        for column in required:
            if column not in given:
                raise UserError(_lacks(name, column, given))
        scores = function(**{key: values for key, values in given.items() if takes_all or key in parameters})
        if not isinstance(scores, list | tuple):
            raise UserError(f"reward {name}: it returned a {type(scores).__name__}; it must be a list of scores.")
        return [NOT_MY_ROW if score is None else score for score in scores]

    return adapted


def columns_of(row: Mapping[str, Any] | InstructionRow | Example) -> dict[str, Any]:
    """A row as columns: a problem's fields, its gold as `answer`, and its source's further columns as texts."""
    if isinstance(row, Mapping):
        return dict(row)
    columns = dict(vars(row))
    if isinstance(row, Example):
        further, fields, gold = (columns.pop(name) for name in ("columns", "fields", "target"))
        columns = {**further, **columns, "answer": gold, **fields}
    return columns


def check_columns(name: str, columns: Sequence[str], row: InstructionRow | Example) -> None:
    """UserError where the row lacks one."""
    has = columns_of(row)
    for column in columns:
        if column not in has:
            raise UserError(_lacks(name, column, has))


def _lacks(name: str, column: str, has: Mapping[str, Any]) -> str:
    known = ", ".join(key for key in has if key not in _GIVEN)
    gold = " (the gold is `answer`)" if "answer" in has else ""
    way_out = "Give it a default, or the rows the column."
    return f"reward {name}: it takes {column!r}, and the rows have {known}{gold}. {way_out}"


def _message(role: str, text: str) -> list[dict[str, str]]:
    return [{"role": role, "content": text}]


def _reads_content(function: Callable[..., Any], seen: frozenset[str] = frozenset()) -> bool:
    codes = [function.__code__]
    for code in codes:  # grows: comprehensions and lambdas are code of their own
        codes += [inner for inner in code.co_consts if isinstance(inner, CodeType)]
    if any("content" in code.co_consts for code in codes):
        return True
    named = {name for code in codes for name in code.co_names} - seen
    helpers = [helper for name in named if inspect.isfunction(helper := function.__globals__.get(name))]
    own = [helper for helper in helpers if helper.__module__ == function.__module__]
    return any(_reads_content(helper, seen | named) for helper in own)

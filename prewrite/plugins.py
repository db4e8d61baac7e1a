"""Functions and classes of the user's own, named `package.module:name` in a config."""

import contextlib
import functools
import importlib
import inspect
import signal
import threading
import traceback
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any, TypeVar

from prewrite.errors import RankFailure, UserError, did_you_mean

T = TypeVar("T")

_TEMPLATE_SECONDS = 10


class TooSlow(UserError):
    """A template that did not end in time; those of the other rows are not waited for."""


def own_function(what: str, name: str, num_arguments: int | None = None) -> Callable[..., Any]:
    """The function that `name` says; its own exceptions become UserErrors that say where they were raised.

    what: the word for it in messages, as "reward". num_arguments: how many it is called with, by position.
    Raises UserError where there is no such module or function, or it can't be called so.
    """
    module, function_name = _module_of(what, name, "function")
    function = getattr(module, function_name, None)
    if callable(function) and not inspect.isfunction(function):
        raise UserError(
            f"{what} {name!r}: it is a {type(function).__name__}, not a function; write a `def` that calls it."
        )
    if not inspect.isfunction(function):
        hint = did_you_mean(function_name, dict(inspect.getmembers(module, inspect.isfunction)))
        raise UserError(f"{what} {name!r}: the module {module.__name__} has no function {function_name!r}.{hint}")
    if num_arguments is not None:
        try:
            inspect.signature(function).bind(*range(num_arguments))
        except TypeError as error:
            raise UserError(
                f"{what} {name!r}: it is called with {num_arguments} arguments, by position: {error}."
            ) from error

    @functools.wraps(function)
    def checked(*args: Any, **kwargs: Any) -> Any:
        with faults_told(f"{what} {name}"):
            return function(*args, **kwargs)

    return checked


def own_class(what: str, name: str, base: type[T]) -> type[T]:
    """The class that `name` says, which is one of `base`'s and is made without arguments. Raises UserError."""
    module, class_name = _module_of(what, name, "class")
    found = getattr(module, class_name, None)
    if not (inspect.isclass(found) and issubclass(found, base)):
        raise UserError(
            f"{what} {name!r}: the module {module.__name__} has no class {class_name!r} that inherits from "
            f"{base.__module__}.{base.__name__}."
        )
    return found


@contextlib.contextmanager
def faults_told(whose: str) -> Iterator[None]:
    """The exceptions of the user's own code, in words that say where they were raised; "" = the code is not theirs."""
    try:
        yield
    except (UserError, RankFailure):
        raise
    except (Exception, SystemExit) as error:
        if not whose:
            raise
        raise UserError(_told(whose, error)) from error


@contextlib.contextmanager
def template_time(whose: str) -> Iterator[None]:
    """TooSlow where the block, the filling in of a template, takes more than ten seconds of this process.

    By a signal, so in the main thread alone; elsewhere there is no limit.
    """

    def over(signum: int, frame: object) -> None:
        rule = f"it takes more than {_TEMPLATE_SECONDS} s for one row: look for a loop that does not end"
        raise TooSlow(f"{whose}: {rule}.")

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGPROF, over)
    signal.setitimer(signal.ITIMER_PROF, _TEMPLATE_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def _told(whose: str, error: BaseException) -> str:
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith("<")]
    return f"{whose}: it raised {type(error).__name__}: {error} ({frames[-1].filename}, line {frames[-1].lineno})."


def _module_of(what: str, name: str, kind: str) -> tuple[ModuleType, str]:
    """(the module that `package.module:name` says, the name in it)."""
    module_name, _, own_name = name.partition(":")
    if not own_name or not all(map(str.isidentifier, module_name.split("."))):
        raise UserError(f"{what} {name!r}: a {what} of your own is named package.module:{kind}.")
    try:
        return importlib.import_module(module_name), own_name
    except SyntaxError as error:
        raise UserError(f"{what} {name!r}: {module_name} is no Python: {error}.") from error
    except (Exception, SystemExit) as error:
        if isinstance(error, ModuleNotFoundError) and f"{module_name}.".startswith(f"{error.name}."):
            raise UserError(f"{what} {name!r}: there is no module {module_name!r} on the Python path.") from error
        raise UserError(_told(f"{what} {name!r}", error)) from error

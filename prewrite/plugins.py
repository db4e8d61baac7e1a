"""Functions of the user's own, named `package.module:function` in a config."""

import functools
import importlib
import inspect
import traceback
from collections.abc import Callable
from typing import Any

from prewrite.errors import UserError, did_you_mean


def own_function(what: str, name: str, num_arguments: int | None = None) -> Callable[..., Any]:
    """The function that `name` says; its own exceptions become UserErrors that say where they were raised.

    what: the word for it in messages, as "reward". num_arguments: how many it is called with, by position.
    Raises UserError where there is no such module or function, or it can't be called so.
    """
    module_name, _, function_name = name.partition(":")
    if not module_name or not function_name:
        raise UserError(f"{what} {name!r}: a {what} of your own is named package.module:function.")
    try:
        module = importlib.import_module(module_name)
    except SyntaxError as error:
        raise UserError(f"{what} {name!r}: {module_name} is no Python: {error}.") from error
    except ModuleNotFoundError as error:
        if error.name is None or not module_name.startswith(error.name):
            raise  # the module is there; what it imports is not
        raise UserError(f"{what} {name!r}: there is no module {module_name!r} on the Python path.") from error
    function = getattr(module, function_name, None)
    if not inspect.isfunction(function):
        hint = did_you_mean(function_name, dict(inspect.getmembers(module, inspect.isfunction)))
        raise UserError(f"{what} {name!r}: the module {module_name} has no function {function_name!r}.{hint}")
    if num_arguments is not None:
        try:
            inspect.signature(function).bind(*range(num_arguments))
        except TypeError as error:
            raise UserError(
                f"{what} {name!r}: it is called with {num_arguments} arguments, by position: {error}."
            ) from error

    @functools.wraps(function)
    def checked(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except UserError:
            raise
        except Exception as error:
            place = traceback.extract_tb(error.__traceback__)[-1]
            raise UserError(
                f"{what} {name}: it raised {type(error).__name__}: {error} ({place.filename}, line {place.lineno})."
            ) from error

    return checked

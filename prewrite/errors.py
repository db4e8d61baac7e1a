"""The one exception for the user's faults."""

import difflib
from collections.abc import Iterable

from prewrite.secrets import hidden


class UserError(Exception):
    """Something the user can put right: a config, a file, a server, a model folder.

    The message says where, what was given, the rule, and the way out. `train.py` and `evaluate.py` print it alone,
    without a traceback, and exit with code 2. Our own faults are `assert`s and ordinary exceptions.
    Whatever looks like a key is hidden in it (`prewrite.secrets`).
    """

    def __init__(self, message: str):
        super().__init__(hidden(message))

    on_every_rank = True
    """False where one rank alone met it (`prewrite.engine.distributed.together`): that rank prints it. Else the first
    rank of each machine does."""


class RankFailure(Exception):
    """Another rank failed while this one was well; its own message has been printed there.

    exit_code: 2 where every failure was the user's to put right, else 1.
    elsewhere: it is on another machine, in whose output nobody here looks.
    """

    def __init__(self, message: str, exit_code: int, *, elsewhere: bool = False):
        super().__init__(message)
        self.exit_code, self.elsewhere = exit_code, elsewhere


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A hint for the end of a message, " Did you mean 'x'?"; "" where nothing is known."""
    nearest = difflib.get_close_matches(name, list(known), n=1, cutoff=0.0)
    return f" Did you mean {nearest[0]!r}?" if nearest else ""

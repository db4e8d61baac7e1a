"""What a message may repeat of what was given: never a key.

Two rules, since a key can stand in a wrong place. By its place: a value whose name is that of a secret, and a word of
the command line that is no option's name, are told by kind and size. By its look: whatever reads as a key is hidden in
every message of a `UserError`.
"""

import argparse
import json
import re
import sys
from collections.abc import Sequence
from typing import NoReturn

_SHOWN_CHARACTERS = 80
_SECRET_NAMES = {
    "key", "apikey", "token", "secret", "password", "passwd", "passphrase", "pwd", "auth", "authorization", "bearer",
    "credential", "credentials",
}  # fmt: skip
_KEY = re.compile(
    r"""(?<![A-Za-z0-9])(?:sk|csk|xai|nvapi|pplx|glpat|xox[a-z])-[\w-]+  # what providers begin keys with
    | (?<![A-Za-z0-9])(?:hf|gsk|r8|fw|tgp|gh[opusr]|github_pat)_(?=[A-Za-z_]*\d)\w{4,}
    | (?<![A-Za-z0-9])(?:AIza|AKIA|eyJ)[\w.-]{12,}
    | (?<=://)[^\s/@'"]+@  # the user name and password of an address
    | (?<=\bBearer\ )\S+
    | (?<![\w/])(?=(?:[A-Za-z]*\d){3})(?=\d*[A-Za-z])[A-Za-z0-9]{24,}[\w-]*  # a long unbroken word, no part of a path
    """,
    re.VERBOSE,
)


def hidden(text: str) -> str:
    """The text, with its length in place of whatever looks like a key."""
    return _KEY.sub(lambda found: f"<hidden: {len(found[0])} characters>", text)


def shown(name: str, value: object) -> str:
    """A value as a message may repeat it: kind and size where its name is a secret's, or where it holds others."""
    if isinstance(value, list):
        return f"a list of {len(value)}"
    if isinstance(value, dict):
        return f"an object of {len(value)} keys"
    if _SECRET_NAMES.isdisjoint(re.findall("[a-z]+", re.sub("(?<=[a-z])(?=[A-Z])", " ", name).lower())):
        return json.dumps(value, default=str, ensure_ascii=False)[:_SHOWN_CHARACTERS]
    kind = "text" if isinstance(value, str) else "a value"
    return f"{kind} of {len(str(value))} characters, which is not repeated here"


class ArgumentParser(argparse.ArgumentParser):
    """Its faults repeat options alone, and no other word of the command line. Options are written out in full."""

    def __init__(self, prog: str, description: str, epilog: str | None = None):
        super().__init__(prog=prog, description=description, epilog=epilog, allow_abbrev=False)
        self._words: Sequence[str] = ()

    def parse_args(  # type: ignore[override]  # typeshed overloads it by namespace, which nobody here gives
        self, args: Sequence[str] | None = None, namespace: None = None
    ) -> argparse.Namespace:
        """The arguments; a fault leaves with exit code 2."""
        self._words = sys.argv[1:] if args is None else args
        parsed, unknown = self.parse_known_args(self._words)
        if unknown:
            options = [word.partition("=")[0] for word in unknown if word.startswith("--")]
            self.error(f"unknown arguments: {', '.join(options) or 'words that belong to no option'}")
        return parsed

    def error(self, message: str) -> NoReturn:
        """Leaves with exit code 2 and the message."""
        for given in {part for word in self._words for part in (word, word.partition("=")[2])}:
            message = message.replace(repr(given), f"text of {len(given)} characters")
        super().error(hidden(message))


def positive(text: str) -> int:
    """An argument's whole number, 1 or more."""
    if not (text.isdecimal() and len(text) < 10 and int(text)):
        raise argparse.ArgumentTypeError("a whole number, 1 or more, is wanted")
    return int(text)

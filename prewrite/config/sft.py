"""Supervised fine-tuning."""

import difflib
import re
from collections.abc import Iterator

from prewrite.config.base import Positive, Section

_FILLED_IN = ("solution", "answer")


class SFTSettings(Section):
    """How the policy imitates rows, where `method` is sft; the rows are `data.chats`, `data.hub` or `data.tasks`."""

    completion: str = "{solution}"
    """of `data.tasks`: what is imitated of an example, with {solution} and {answer} in place of its own"""
    max_length: Positive = 1024
    """tokens of a row, its request included; `data.too_long` says what becomes of longer ones"""
    top_rewrites: Positive = 4
    """of a run folder: the best so many rewrites of each instruction"""

    def faults(self) -> Iterator[str]:
        """A completion that is the same of every example, or holds the name of a part misspelt."""
        names = re.findall(r"\{(\w+)\}", self.completion)
        if not set(names) & set(_FILLED_IN):
            yield f"`completion` {self.completion!r} holds neither {{solution}} nor {{answer}}: all would be alike"
        for name in names:
            if name not in _FILLED_IN and (near := difflib.get_close_matches(name, _FILLED_IN, n=1)):
                yield f"`completion`: {{{name}}} stands for nothing; did you mean {{{near[0]}}}?"

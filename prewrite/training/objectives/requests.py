"""What the policy is asked: to rewrite the row's instruction, or a better one that was found since."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import Levenshtein

from prewrite.config import Config
from prewrite.errors import UserError
from prewrite.training.rollout import build_request, build_requests
from prewrite.types import InstructionRow

NEAR_COPY = 0.9  # Levenshtein ratio above which two instructions are near-copies of one another


@dataclass(frozen=True)
class Request:
    """token_ids: of the whole request. parent: the instruction in it."""

    token_ids: Sequence[int]
    parent: str


class Requests:
    """The requests of a step's groups: drawn by seed from each row's parents, the same on every rank.

    rows: with an instruction that is known to make a request. initial: token ids of each row's own request. Raises
    UserError where one cannot be made or is too long.
    """

    def __init__(self, config: Config, rows: Sequence[InstructionRow], tokenizer: Any):
        self.config, self.rows, self.tokenizer = config, rows, tokenizer
        self.initial = build_requests(rows, tokenizer, config.rollout)
        self.parents: Sequence[Sequence[str]] = [[row.instruction] for row in rows]

    def draw(self, index: int, key: str) -> Request:
        """The request of a group of row `index`: with one of its parents, or its own where that makes no request."""
        row = self.rows[index]
        parent = random.Random(f"request/{self.config.seed}/{key}").choice(self.parents[index])
        for text in (parent, row.instruction):
            try:
                tokens = build_request(replace(row, instruction=text), self.tokenizer, self.config.rollout)
            except UserError:  # too long, or it forges a turn; the row's own is known to pass
                continue
            return Request(tokens, text)
        raise AssertionError("the row's own request was checked at the start")


def distinct(texts: Sequence[str], most: int) -> list[str]:
    """The first `most` texts that are no near-copies of one before them."""
    kept: list[str] = []
    for text in texts:
        if len(kept) < most and all(Levenshtein.ratio(text, other) < NEAR_COPY for other in kept):
            kept.append(text)
    return kept

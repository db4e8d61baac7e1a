"""From instruction rows to samples: requests in the policy's chat template, shared out over the ranks."""

import contextlib
import logging
from collections.abc import Callable, Sequence
from typing import Any

from prewrite.config import RolloutSettings
from prewrite.config.rollout import PLACE
from prewrite.engine.chat_template import render_request
from prewrite.engine.distributed import World
from prewrite.engine.sampler import Sampler
from prewrite.errors import UserError
from prewrite.types import InstructionRow, Sample, Sampled

logger = logging.getLogger(__name__)


class RequestTooLong(UserError):
    """A request is longer than rollout.max_prompt_length."""


def rows_that_fit(
    rows: Sequence[InstructionRow], tokenizer: Any, settings: RolloutSettings, what: str
) -> list[InstructionRow]:
    """The rows whose request is not too long; how many are dropped is told. UserError where none is left."""
    kept = []
    for row in rows:
        with contextlib.suppress(RequestTooLong):
            build_request(row, tokenizer, settings)
            kept.append(row)
    if len(kept) < len(rows):
        longer = f"longer than rollout.max_prompt_length {settings.max_prompt_length}"
        if not kept:
            raise UserError(f"data.too_long drop: the requests of all {len(rows)} {what} are {longer}: raise it")
        dropped = len(rows) - len(kept)
        logger.warning("data.too_long drop: %d of %d %s left out: request %s", dropped, len(rows), what, longer)
    return kept


def build_requests(rows: Sequence[InstructionRow], tokenizer: Any, settings: RolloutSettings) -> list[list[int]]:
    """`build_request` of each row; its UserError names the row by its number."""
    return [
        build_request(row, tokenizer, settings, where=f"instruction row {number}")
        for number, row in enumerate(rows, start=1)
    ]


def build_request(
    row: InstructionRow, tokenizer: Any, settings: RolloutSettings, *, where: str = "instruction"
) -> list[int]:
    """Token ids of a row's request: the meta-instruction, the instruction, the row's information, as one user turn.

    Raises UserError as `render_request` does, and where a request is longer than max_prompt_length.
    """
    turn = request_turn(row, settings)
    request = render_request(tokenizer, turn, settings.chat_template_kwargs, where=where, system=settings.system_prompt)
    if len(request) > settings.max_prompt_length:
        raise RequestTooLong(
            f"{where}: its request has {len(request)} tokens; rollout.max_prompt_length is "
            f"{settings.max_prompt_length}: shorten the instruction, raise the limit, or set data.too_long drop"
        )
    return request


def request_turn(row: InstructionRow, settings: RolloutSettings) -> str:
    """The user turn of a row's request: the meta-instruction, the instruction where it has a place for it, else after
    it, and the row's information."""
    meta = settings.meta_instruction
    asked = [meta.replace(PLACE, row.instruction)] if PLACE in meta else [meta, row.instruction]
    parts = [*asked, row.information or ""]
    return "\n\n".join(part for part in parts if part)


def roll_out(
    sampler: Sampler,
    requests: Sequence[Sequence[int]],
    num_generations: int,
    world: World,
    read: Callable[[int, Sample], Sampled],
    *,
    greedy: bool = False,
) -> list[Sampled]:
    """This rank's share of num_generations samples of each request.

    The samples of all groups stand in one line that is cut into equal parts, one a rank: a group may span ranks. The
    ranks of one engine (`vllm_tensor_parallel_size`) generate all their parts together, and each keeps its own.
    read: makes a `Sampled` of (index of the request, sample), once for each of this rank's samples, as soon as it is
    written.
    """
    ranks = sampler.ranks_per_engine
    total, leader = len(requests) * num_generations, world.rank - world.rank % ranks
    first, end = total * leader // world.size, total * (leader + ranks) // world.size
    mine = range(total * world.rank // world.size - first, total * (world.rank + 1) // world.size - first)
    counts = [
        max(0, min(end, (group + 1) * num_generations) - max(first, group * num_generations))
        for group in range(len(requests))
    ]
    wanted = [group for group, count in enumerate(counts) if count]
    starts = [sum(counts[:group]) for group in wanted]

    if not wanted:
        return []
    finished: dict[int, Sampled] = {}

    def finish(index: int, copy: int, sample: Sample) -> None:
        if (place := starts[index] + copy) in mine:
            finished[place] = read(wanted[index], sample)

    asked, wanted_counts = [requests[group] for group in wanted], [counts[group] for group in wanted]
    sampler.sample(asked, wanted_counts, greedy=greedy, on_finished=finish)
    return [finished[place] for place in mine]

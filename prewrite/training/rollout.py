"""From instruction rows to samples: requests in the policy's chat template, shared out over the ranks."""

import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from prewrite.config import RolloutSettings
from prewrite.engine.distributed import World
from prewrite.engine.sampler import Sampler
from prewrite.errors import UserError
from prewrite.types import InstructionRow, Sample


def build_requests(rows: Sequence[InstructionRow], tokenizer: Any, settings: RolloutSettings) -> list[list[int]]:
    """Token ids of each row's request: the meta-instruction and the instruction as one user turn.

    Raises UserError where the tokenizer has no chat template, where a row holds the template's own control tokens (it
    would forge a turn), and where a request is longer than max_prompt_length.
    """
    if not tokenizer.chat_template:
        raise UserError("policy.model: its tokenizer has no chat template; give an instruction-tuned (chat) model")
    requests = []
    for number, row in enumerate(rows, start=1):
        turn = f"{settings.meta_instruction}\n\n{row.instruction}"
        if row.information:
            turn += f"\n\n{row.information}"
        forged = [token for token in tokenizer.all_special_tokens if token in turn]
        if forged:
            raise UserError(f"instruction row {number}: it holds the control token {forged[0]!r}; take it out")
        text = tokenizer.apply_chat_template(
            [{"role": "user", "content": turn}],
            add_generation_prompt=True,
            tokenize=False,
            **settings.chat_template_kwargs,
        )
        request = tokenizer(text, add_special_tokens=False)["input_ids"]
        if len(request) > settings.max_prompt_length:
            raise UserError(
                f"instruction row {number}: its request has {len(request)} tokens; rollout.max_prompt_length is "
                f"{settings.max_prompt_length}: shorten the instruction or raise the limit"
            )
        requests.append(request)
    return requests


def row_order(num_rows: int, seed: int) -> Iterator[int]:
    """Row indices for ever: one shuffled pass over the rows after another, the same on every rank."""
    for epoch in range(1_000_000_000):
        order = list(range(num_rows))
        random.Random(f"{seed}/{epoch}").shuffle(order)
        yield from order


def roll_out(
    sampler: Sampler,
    requests: Sequence[Sequence[int]],
    num_generations: int,
    world: World,
    on_finished: Callable[[int, Sample], None] | None = None,
) -> list[tuple[int, Sample]]:
    """This rank's share of num_generations samples of each request, as (index of the request, sample).

    The samples of all groups stand in one line that is cut into equal parts, one a rank: a group may span ranks. The
    ranks of one engine (`vllm_tensor_parallel_size`) generate all their parts together, and each keeps its own.
    on_finished: called with each of this rank's samples as soon as it is written.
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

    def tell(index: int, copy: int, sample: Sample) -> None:
        if on_finished is not None and starts[index] + copy in mine:
            on_finished(wanted[index], sample)

    if not wanted:
        return []
    asked = [requests[group] for group in wanted], [counts[group] for group in wanted]
    sampled = sampler.sample(*asked, on_finished=tell)
    line = [(group, sample) for group, samples in zip(wanted, sampled, strict=True) for sample in samples]
    return line[mine.start : mine.stop]

"""Partial rollouts (Kimi k1.5, arXiv 2501.12599, section 2.6; APRIL, arXiv 2509.18521): a rollout ends when enough
groups are complete, and the rest goes on in the next batch, each token with the log-prob under which it was sampled.

Every engine has whole groups and its share of what has to be complete, and ends by itself: ranks say no word to one
another while they write, and which groups are complete does not depend on how fast each of them is.
"""

import math
from collections.abc import Sequence

from prewrite.config import Config
from prewrite.engine import distributed
from prewrite.engine.distributed import World
from prewrite.engine.sampler import Sampler
from prewrite.training.progress import CarriedGroup, Progress
from prewrite.types import Sample

MAX_PUSHES = 4  # that an answer spans: a rollout waits for groups that have seen as many


def num_begun(config: Config, progress: Progress, missing: int, groups_per_batch: int, *, is_last: bool) -> int:
    """How many groups begin now. missing: that have to be complete. is_last: no batch comes after this one, so that
    none begins which would not be complete in it."""
    beyond = 0 if is_last else math.ceil(config.rollout.partial_rollouts * groups_per_batch)
    return max(0, missing + beyond - len(progress.carried))


def begin_group(index: int, request: Sequence[int], num_generations: int) -> CarriedGroup:
    """A group of row `index` without a token."""
    return CarriedGroup(index, 0, [Sample(tuple(request), (), (), "", "abort")] * num_generations)


def go_on(sampler: Sampler, groups: Sequence[CarriedGroup], missing: int, world: World) -> list[CarriedGroup]:
    """The groups, gone on with until at least `missing` are complete, and all that have seen MAX_PUSHES. The same on
    every rank; a collective. missing: at most as many as there are groups."""
    ranks = sampler.ranks_per_engine
    engine, engines = world.rank // ranks, world.size // ranks
    mine = list(groups[engine::engines])
    share, num_generations = len(range(missing)[engine::engines]), len(groups[0].samples)
    left = [group.num_unfinished for group in mine]

    def is_enough() -> bool:
        waits = any(count and group.pushes >= MAX_PUSHES for count, group in zip(left, mine, strict=True))
        return left.count(0) >= share and not waits

    def finished(place: int, sample: Sample) -> bool:
        left[place // num_generations] -= 1
        return is_enough()

    if not is_enough():
        samples = sampler.go_on([sample for group in mine for sample in group.samples], finished)
        mine = [
            CarriedGroup(group.index, group.pushes, samples[start : start + num_generations])
            for group, start in zip(mine, range(0, len(samples), num_generations), strict=True)
        ]
    after = list(groups)
    for number, part in enumerate(distributed.gather(mine)[::ranks]):  # the ranks of one engine have written the same
        after[number::engines] = part
    return after


def carried_metrics(carried: Sequence[CarriedGroup]) -> dict[str, float]:
    """What goes on in the next batch, as a step's line tells it."""
    return {
        "carried_answers": float(sum(group.num_unfinished for group in carried)),
        "carried_pushes_max": float(max((group.pushes for group in carried), default=0)),
    }

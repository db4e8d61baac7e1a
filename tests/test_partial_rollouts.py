"""Partial rollouts: what goes on after a push, what is trained, and when; with a stand-in for the engine."""

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from prewrite.config import Config
from prewrite.config.loading import check_world
from prewrite.engine.distributed import World
from prewrite.errors import UserError
from prewrite.reporting.console import step_line
from prewrite.training import partial_rollouts
from prewrite.training.partial_rollouts import MAX_PUSHES, begin_group, carried_metrics, go_on
from prewrite.training.progress import CarriedGroup, Progress, row_at
from prewrite.training.trainer import Trainer
from prewrite.types import Rollout, Sample
from tests.test_objective_solve import config, objective

CPU = torch.device("cpu")
LONGEST = 40


@pytest.fixture(scope="module", autouse=True)
def _world() -> Iterator[None]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


class Engine:
    """Stands in for the sampler: a token a turn for all that is unfinished, of which one in 16 ends it.

    A token's log-prob is minus the number of pushes before it.
    """

    ranks_per_engine = 1

    def __init__(self, seed: int = 0):
        self.generator, self.pushes, self.turns = random.Random(seed), 0, 0

    def go_on(self, samples: Sequence[Sample], on_finished: Callable[[int, Sample], bool]) -> list[Sample]:
        after, enough = list(samples), False
        while not enough and any(sample.finish_reason == "abort" for sample in after):
            self.turns += 1
            done = []
            for place, sample in enumerate(after):
                if sample.finish_reason != "abort":
                    continue
                token = self.generator.randrange(16)
                ids, logprobs = (*sample.completion_ids, token), (*sample.sampler_logprobs, -float(self.pushes))
                after[place] = replace(sample, completion_ids=ids, sampler_logprobs=logprobs)
                if token == 0 or len(ids) == LONGEST:
                    text = "<think>a</think><answer>b</answer>" if ids[0] % 2 else "no"
                    after[place] = replace(after[place], text=text, finish_reason="stop" if token == 0 else "length")
                    done.append(place)
            for place in done:
                enough = on_finished(place, after[place]) or enough
        return after


class Collecting(Trainer):
    """A trainer without a policy: it collects batches, and every one is followed by a push."""

    def __init__(self, settings: Config, engine: Engine, progress: Progress):
        self.config, self.sampler, self.progress = settings, engine, progress  # type: ignore[assignment]
        self.objective, self.world, self.seconds = objective(settings, progress=progress), World(0, 1, CPU), {}
        self.num_generations, self.groups_per_batch = settings.rollout.num_generations, settings.groups_per_batch(1)
        self.total_steps = settings.training.max_steps or 0

    def batch(self) -> list[Rollout]:
        rollouts, _ = self._collect()
        self.progress.step += 1
        self.sampler.pushes += 1  # type: ignore[attr-defined]
        return rollouts


def settings_of(tmp_path: Path, steps: int = 8, **sections: dict[str, Any]) -> Config:
    """4 groups of 4 a batch, and half as many again under way."""
    own: dict[str, dict[str, Any]] = {
        "rollout": {"num_generations": 4, "partial_rollouts": 0.5},
        "training": {"max_steps": steps, "per_device_train_batch_size": 16},
    }
    return config(tmp_path, **own | {name: own.get(name, {}) | section for name, section in sections.items()})


def test_every_group_is_trained_once_and_the_last_batch_leaves_none(tmp_path: Path) -> None:
    trainer = Collecting(settings_of(tmp_path), Engine(), Progress())
    trained, carried = [], []
    for _ in range(8):
        batch = trainer.batch()
        assert Counter(one.group for one in batch) == {group: 4 for group in range(4)}
        trained += batch
        carried.append(len(trainer.progress.carried) + len(trainer.progress.leftovers))
        assert all(one.pushes for one in trainer.progress.carried)
    assert carried == [2] * 7 + [0]
    problems = [trainer.objective.data.train[row_at(place, 480, seed=1)] for place in range(32)]  # type: ignore[attr-defined]
    assert Counter(one.sample.prompt_ids for one in trained) == Counter({tuple(one.request): 4 for one in problems})
    texts = {tuple(one.request): one.example for one in problems}
    assert all(one.row == texts[one.sample.prompt_ids] for one in trained)
    assert trainer.progress.place == 32


def test_each_token_keeps_the_log_prob_of_the_weights_that_wrote_it(tmp_path: Path) -> None:
    trainer = Collecting(settings_of(tmp_path), Engine(), Progress())
    spans = []
    for step in range(8):
        for one in trainer.batch():
            pushes = [-round(logprob) for logprob in one.sample.sampler_logprobs]
            assert len(pushes) == len(one.sample.completion_ids) <= LONGEST
            assert pushes == sorted(pushes)
            assert step - MAX_PUSHES <= pushes[0] <= pushes[-1] <= step
            spans.append(pushes[-1] - pushes[0])
    assert max(spans) > 0, "an answer that went on after a push"


def test_a_rollout_ends_when_the_last_group_of_its_batch_is_complete(tmp_path: Path) -> None:
    engine = Engine()
    trainer = Collecting(settings_of(tmp_path), engine, Progress())
    num_unfinished = 0
    for _ in range(4):
        before = {one.samples[0].prompt_ids: one.samples for one in trainer.progress.carried}
        engine.turns = 0
        trainer.batch()
        unfinished = [
            (sample, before.get(sample.prompt_ids, ())[place : place + 1])
            for one in trainer.progress.carried
            for place, sample in enumerate(one.samples)
            if sample.finish_reason == "abort"
        ]
        num_unfinished += len(unfinished)
        for sample, earlier in unfinished:
            assert len(sample.completion_ids) == engine.turns + sum(len(one.completion_ids) for one in earlier)
    assert num_unfinished


def test_a_run_that_was_stopped_goes_on_with_the_same_tokens(tmp_path: Path) -> None:
    def lines(rollouts: Sequence[Rollout]) -> list:
        return [(one.group, one.sample, one.row, one.reward, one.advantage) for one in rollouts]

    settings = settings_of(tmp_path, data={"max_train_rows": 9, "set_aside_passes": 1})
    whole = Collecting(settings, Engine(), Progress())
    before = [lines(whole.batch()) for _ in range(3)]
    kept, state = whole.progress.to_json(), whole.sampler.generator.getstate()  # type: ignore[attr-defined]
    assert whole.progress.carried
    assert whole.progress.set_aside
    engine = Engine()
    engine.generator.setstate(state)
    engine.pushes = 3
    resumed = Collecting(settings, engine, Progress.from_json(kept))
    assert resumed.progress == whole.progress
    rest = [lines(whole.batch()) for _ in range(5)]
    assert [lines(resumed.batch()) for _ in range(5)] == rest
    assert len(before + rest) == 8


def test_refills_take_what_is_under_way_and_begin_no_more_than_is_missing(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, loss={"dynamic_sampling_refills": 9}, rollout={"num_generations": 2})
    trainer = Collecting(settings, Engine(), Progress())
    prompts: list[tuple[int, ...]] = []
    for _ in range(8):
        batch = trainer.batch()
        assert all(one.advantage for one in batch)
        prompts += {one.sample.prompt_ids for one in batch}
        under_way = len(trainer.progress.carried) + len(trainer.progress.leftovers)
        assert under_way <= 4, "half of the 8 groups of a batch"
    assert len(set(prompts)) == len(prompts) == 64
    assert trainer.progress.carried == []


def test_a_problem_under_way_is_not_taken_for_one_that_is_set_aside(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, data={"max_train_rows": 4, "set_aside_passes": 1})
    solve = objective(settings, progress=Progress(place=4, draws=1, set_aside={0: 3, 1: 3}))
    solve.request(2, -1, draw=1)
    assert [solve.choose(index, index, draw=1) for index in (0, 3)] == [3, 3]
    solve.request(3, 0, draw=1)
    assert solve.choose(1, 1, draw=1) == 1, "all others are taken or set aside"
    assert solve.choose(0, 0, draw=2) in (2, 3), "another draw's are free"


def groups(*pushes: int) -> list[CarriedGroup]:
    """Of 3 samples each, by their pushes."""
    return [replace(begin_group(index, [index + 1], 3), pushes=count) for index, count in enumerate(pushes)]


def test_a_group_that_has_seen_enough_pushes_is_waited_for() -> None:
    old = groups(*[0] * 9, MAX_PUSHES)
    after = go_on(Engine(1), old, 1, World(0, 1, CPU))  # type: ignore[arg-type]
    assert after[-1].num_unfinished == 0
    assert [one.index for one in after] == list(range(10))
    assert any(one.num_unfinished for one in after)
    assert [one.pushes for one in after] == [one.pushes for one in old]
    without = go_on(Engine(1), groups(*[0] * 10), 1, World(0, 1, CPU))  # type: ignore[arg-type]
    assert without[-1].num_unfinished, "else it proves nothing"


@pytest.mark.parametrize(("size", "ranks_per_engine"), [(2, 1), (3, 1), (4, 2), (6, 2)])
@pytest.mark.parametrize("missing", [3, 5, 8])
def test_ranks_share_whole_groups_and_agree_without_a_word_while_they_write(
    size: int, ranks_per_engine: int, missing: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each rank by itself: its part first, then all of them with the parts of all."""

    class Parted(Exception):
        pass

    def work(rank: int, gather: Callable[[Any], list]) -> list[CarriedGroup]:
        engine = Engine(rank // ranks_per_engine)
        engine.ranks_per_engine = ranks_per_engine
        monkeypatch.setattr(partial_rollouts.distributed, "gather", gather)
        return go_on(engine, groups(*[0] * 8), missing, World(rank, size, CPU))  # type: ignore[arg-type]

    parts: list[Any] = []

    def part(value: Any) -> list:
        parts.append(value)
        raise Parted

    for rank in range(size):
        with pytest.raises(Parted):
            work(rank, part)
    for rank in range(size):
        assert parts[rank] == parts[rank - rank % ranks_per_engine], "the ranks of one engine write the same"
    after = [work(rank, lambda _: parts) for rank in range(size)]
    assert all(one == after[0] for one in after)
    assert [(one.index, one.samples[0].prompt_ids) for one in after[0]] == [(index, (index + 1,)) for index in range(8)]
    complete = sum(not one.num_unfinished for one in after[0])
    assert complete >= missing
    assert complete < 8 or missing == 8
    assert all(len(part) - 8 // (size // ranks_per_engine) in (0, 1) for part in parts)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"objective": "rewrite", "task_model": {"model": "m"}}, "partial_rollouts is read by objective=solve alone"),
        ({"loss": {"sampler_correction": "none"}}, "partial_rollouts with sampler_correction=none"),
        ({"rollout": {"partial_rollouts": 1.5}}, "less than or equal to 1"),
        ({"method": "sft", "objective": "rewrite"}, "rollout.partial_rollouts is not read by method=sft"),
    ],
)
def test_where_it_cannot_be_it_is_refused(tmp_path: Path, change: dict, told: str) -> None:
    whole = settings_of(tmp_path).model_dump()
    for name, value in change.items():
        whole[name] = {**whole[name], **value} if isinstance(value, dict) else value
    with pytest.raises(ValueError, match=told):
        Config.model_validate(whole)


def test_a_batch_has_a_group_for_each_engine(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, training={"per_device_train_batch_size": 2})
    with pytest.raises(UserError, match=r"partial_rollouts gives every engine whole groups, and a batch has 1 for 2"):
        check_world(settings, 2)
    two = settings.rollout.model_copy(update={"vllm_tensor_parallel_size": 2})
    check_world(settings.model_copy(update={"rollout": two}), 2)


def test_a_step_tells_what_goes_on() -> None:
    done = Sample((1,), (5,), (-1.0,), "a", "stop")
    begun = begin_group(3, [1], 3)
    old = CarriedGroup(4, 3, [done, replace(begun.samples[0], completion_ids=(5,), sampler_logprobs=(-1.0,)), done])
    metrics = carried_metrics([old, replace(begun, pushes=1)])
    assert metrics == {"carried_answers": 4.0, "carried_pushes_max": 3.0}
    assert carried_metrics([]) == {"carried_answers": 0.0, "carried_pushes_max": 0.0}
    assert "| carried 4, 3 pushes |" in step_line({"step": 1, "reward_mean": 0.5, **metrics}, 9)
    assert "carried" not in step_line({"step": 1, "reward_mean": 0.5, **carried_metrics([])}, 9)

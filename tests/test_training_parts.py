"""The parts of the loop that need no model: order, shares, plans, rates, dynamic sampling, metrics, the run folder."""

import json
import math
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from prewrite.algorithm.batching import collate
from prewrite.asking.questions import answers_bar
from prewrite.config import Config, LossSettings, TrainingSettings
from prewrite.config.loading import load_config
from prewrite.engine.deepspeed_config import warn_of_full_host
from prewrite.engine.distributed import World
from prewrite.errors import UserError
from prewrite.reporting.console import outcome, step_line
from prewrite.reporting.journal import Journal
from prewrite.training.engines import full_memory_told
from prewrite.training.progress import Candidate, Claim, Progress, RowMemory, row_at
from prewrite.training.rollout import roll_out
from prewrite.training.schedule import GAP_WINDOW, STANDSTILL, check_gap, learning_rate_at, total_steps
from prewrite.training.step_metrics import rollout_metrics
from prewrite.training.trainer import Trainer
from prewrite.training.update import Updater
from prewrite.types import InstructionRow, Rollout, Sample, Sampled, Scored, Verdict

CPU = torch.device("cpu")
ROW = InstructionRow("Say positive or negative.", "sentiment")
CONFIG = load_config(Path(__file__).parent.parent / "configs" / "quickstart.json")


def sample(length: int = 3, prompt: int = 2) -> Sample:
    return Sample(tuple(range(1, prompt + 1)), tuple([5] * length), tuple([-1.0] * length), "text", "stop")


def scored(reward: float | None) -> Scored:
    return Scored(sample(), ROW, 0, f"rewrite {reward}", reward, {"f1": reward})


def rollout(reward: float | None, group: int = 0, length: int = 3) -> Rollout:
    return Rollout(sample(length), ROW, group, f"rewrite {reward}", reward, {"f1": reward}, 0.0)


@dataclass
class CountingSampler:
    counts: list[list[int]]
    ranks_per_engine: int = 1

    def sample(self, requests, counts, *, greedy=False, on_finished=None):
        self.counts.append(list(counts))
        written = [[sample() for _ in range(count)] for count in counts]
        for index, samples in reversed(list(enumerate(written))):  # the last may be done first
            for copy, one in enumerate(samples):
                on_finished(index, copy, one)
        return written


def test_rows_come_in_whole_shuffled_passes() -> None:
    passes = [[row_at(5 * epoch + place, 5, seed=3) for place in range(5)] for epoch in range(4)]
    assert all(sorted(one) == [0, 1, 2, 3, 4] for one in passes)
    assert len({tuple(one) for one in passes}) > 1
    assert row_at(13, 5, seed=3) == passes[2][3], "any place can be had without those before it"
    assert [row_at(place, 5, seed=4) for place in range(20)] != [index for one in passes for index in one]


@pytest.mark.parametrize(("size", "ranks_per_engine"), [(1, 1), (2, 1), (3, 1), (4, 1), (5, 1), (2, 2), (4, 2), (6, 3)])
def test_a_group_may_span_ranks_and_no_sample_is_lost(size: int, ranks_per_engine: int) -> None:
    requests, generations = [[1], [2], [3]], 4
    groups: list[int] = []
    asked: list[list[list[int]]] = []
    for rank in range(size):
        sampler = CountingSampler([], ranks_per_engine)
        told: list[Sampled] = []

        def read(group: int, one: Sample, told: list[Sampled] = told) -> Sampled:
            told.append(Sampled(one, ROW, group, one.text))
            return told[-1]

        share = roll_out(
            sampler,
            requests,
            generations,
            World(rank, size, CPU),
            read,
        )
        assert sorted(map(id, told)) == sorted(map(id, share)), "its own alone, each read once"
        assert abs(len(share) - 12 / size) < 1
        groups += [one.group for one in share]
        asked.append(sampler.counts)
    assert groups == [0] * 4 + [1] * 4 + [2] * 4
    for rank in range(size):
        assert asked[rank] == asked[rank - rank % ranks_per_engine], "the ranks of one engine ask it the same"


def updater(world_size: int, rank: int, *, computes_padding: bool = True, **training) -> Updater:
    policy = SimpleNamespace(world=World(rank, world_size, CPU), computes_padding=computes_padding)
    settings = TrainingSettings(max_steps=1, logprob_chunk_tokens=4, **training)
    return Updater(policy, None, LossSettings(), settings, max_completion_length=8, rollouts_per_step=5)


@pytest.mark.parametrize(
    "shape",
    [
        {"per_device_train_batch_size": 2},
        {"max_tokens_per_micro_batch": 8},
        {"max_tokens_per_micro_batch": 8, "computes_padding": False},
    ],
)
def test_every_rank_plans_the_same_forwards_and_every_row_is_trained_once(shape: dict) -> None:
    batch = collate([sample(length) for length in (1, 6, 3, 2, 5)], [1.0, -1.0, 0.5, 0.0, 2.0], pad_token_id=0)
    plans = [updater(3, rank, **shape).plan(batch, range(5)) for rank in range(3)]
    assert len({len(plan.micro_batches) for plan in plans}) == 1
    for micros in zip(*(plan.micro_batches for plan in plans), strict=True):
        assert len({micro.num_chunks for micro in micros}) == 1, "a head call is a collective"
    rows = [row for plan in plans for micro in plan.micro_batches for row in micro.rows]
    assert sorted(rows) == [0, 1, 2, 3, 4]
    assert {plan.totals.num_tokens for plan in plans} == {17}
    assert {plan.totals.num_sequences for plan in plans} == {5}


def test_a_step_of_flat_groups_teaches_nothing_unless_another_term_pulls() -> None:
    batch = collate([sample()] * 5, [0.0] * 5, pad_token_id=0)
    one = updater(1, 0)
    assert not one.plan(batch, range(5)).teaches
    one.loss = LossSettings(entropy_coef=0.01)
    assert one.plan(batch, range(5)).teaches
    one.entropy_scale = 0
    assert not one.plan(batch, range(5)).teaches
    one.loss, one.entropy_scale = LossSettings(), 1
    assert one.plan(replace(batch, advantage_B=torch.tensor([0.0, 0, 1, 0, 0])), range(5)).teaches


def test_a_full_gpu_is_one_message() -> None:
    with (
        pytest.raises(
            UserError, match=r"memory is full: CUDA out of memory\. What takes less of it: .*offload"
        ) as told,
        full_memory_told(),
    ):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20 GiB. GPU 0 has")
    assert not told.value.on_every_rank


def test_learning_rate() -> None:
    warm = TrainingSettings(max_steps=1, learning_rate=0.1, warmup_steps=4)
    assert [round(learning_rate_at(step, 20, warm), 4) for step in range(6)] == [0.025, 0.05, 0.075, 0.1, 0.1, 0.1]
    cosine = TrainingSettings(max_steps=1, learning_rate=0.1, lr_scheduler_type="cosine")
    assert learning_rate_at(8, 20, cosine) == pytest.approx(0.0654508497)  # 0.1 (1 + cos(8/20 pi)) / 2
    linear = TrainingSettings(max_steps=1, learning_rate=0.1, lr_scheduler_type="linear")
    assert learning_rate_at(15, 20, linear) == pytest.approx(0.025)
    assert learning_rate_at(20, 20, linear) == 0.0
    floor = TrainingSettings(max_steps=1, learning_rate=0.1, lr_scheduler_type="cosine", min_lr_rate=0.1)
    assert learning_rate_at(0, 20, floor) == pytest.approx(0.1)
    assert learning_rate_at(8, 20, floor) == pytest.approx(0.0689057548)  # 0.1 (0.1 + 0.9 x 0.654508497)
    assert learning_rate_at(20, 20, floor) == pytest.approx(0.01)


def with_loss(**settings) -> Config:
    return CONFIG.model_copy(update={"loss": LossSettings(**settings)})


class ScriptedTrainer(Trainer):
    """A trainer whose groups come from a script: rewards of each group, batch after batch."""

    def __init__(self, config: Config, batches: list[list[list[float]]], *, affords: bool = True):
        self.config, self.progress, self.batches = config, Progress(), batches
        self.objective: Any = SimpleNamespace(affords=lambda num_rollouts: affords)
        self.groups_per_batch, self.num_generations = len(batches[0]), config.rollout.num_generations

    def _score_groups(self, missing: int) -> list[list[Scored]]:
        return [[scored(reward) for reward in group] for group in self.batches.pop(0)]


GENERATIONS = CONFIG.rollout.num_generations
FLAT, SPREAD, WIDE = [0.25] * GENERATIONS, [0.2, 0.4] * (GENERATIONS // 2), [0.0, 1.0] * (GENERATIONS // 2)


def test_dynamic_sampling_replaces_flat_groups_and_keeps_leftovers() -> None:
    trainer = ScriptedTrainer(with_loss(dynamic_sampling_refills=3), [[FLAT, SPREAD], [WIDE, WIDE], [FLAT, FLAT]])
    rollouts, refills = trainer._collect()
    assert refills == 1
    assert [r.reward for r in rollouts] == SPREAD + WIDE
    assert [r.group for r in rollouts] == [0] * GENERATIONS + [1] * GENERATIONS
    assert len(trainer.progress.leftovers) == 1
    trainer.batches = [[SPREAD, FLAT]]
    rollouts, refills = trainer._collect()
    assert [r.reward for r in rollouts] == WIDE + SPREAD, "what was left over comes first"
    assert trainer.progress.leftovers == []


def test_what_the_budget_does_not_afford_is_not_refilled() -> None:
    trainer = ScriptedTrainer(with_loss(dynamic_sampling_refills=3), [[FLAT, SPREAD], [WIDE, WIDE]], affords=False)
    rollouts, refills = trainer._collect()
    assert refills == 0
    assert [r.reward for r in rollouts] == SPREAD + FLAT


def test_refills_are_bounded_and_flat_groups_then_fill_the_batch() -> None:
    trainer = ScriptedTrainer(with_loss(dynamic_sampling_refills=2), [[FLAT, FLAT]] * 3)
    rollouts, refills = trainer._collect()
    assert refills == 2
    assert len(rollouts) == 2 * GENERATIONS
    assert all(r.advantage == 0 for r in rollouts)


def test_without_dynamic_sampling_a_batch_is_taken_as_it_comes() -> None:
    trainer = ScriptedTrainer(with_loss(), [[FLAT, WIDE]])
    rollouts, refills = trainer._collect()
    assert refills == 0
    assert [r.reward for r in rollouts] == FLAT + WIDE
    # (0 - 0.5) / (std of as many 0s as 1s, n - 1 below, + 1e-4)
    std = math.sqrt(GENERATIONS * 0.25 / (GENERATIONS - 1))
    assert rollouts[-2].advantage == pytest.approx(-0.5 / (std + 1e-4), rel=1e-5)


def test_the_alarm_stops_at_a_jump_of_the_gap_above_its_floor() -> None:
    gaps: list[float] = []
    for step, gap in enumerate((0.05, None, 0.06, 0.04, 0.3)):  # the last is a jump, below the floor
        check_gap(gaps, 0.5, step, gap)
    with pytest.raises(RuntimeError, match=r"step 5: .* jumped to 0.600 from a running median of 0.055"):
        check_gap(gaps, 0.5, 5, 0.6)
    with pytest.raises(AssertionError, match="blind"):
        check_gap(gaps, 0.5, 6, math.nan)
    noisy: list[float] = []
    for step in range(30):
        check_gap(noisy, 0.5, step, 0.6)  # above the floor, and no jump
    assert len(noisy) == GAP_WINDOW


def test_progress_comes_back_from_json_as_it_was() -> None:
    verdict = Verdict("7", ("a", "b"), "a", None, True, 0.5)
    memory = RowMemory({"Say.": Candidate(3, "train")}, {"Say.": {"7": verdict}}, form={"Say.": -0.1}, best="Say.")
    memory.claim = Claim(False, 0.3, 4, 3, 20)
    record = Progress(7, 9, 36, [[scored(0.1), scored(None)]], [0.05, 0.1], 2, {"sentiment": memory}, (3, 4))
    again = Progress.from_json(record.to_json())
    assert again == record
    assert isinstance(again.leftovers[0][0].row, InstructionRow)
    assert isinstance(again.memory["sentiment"].train["Say."]["7"], Verdict)


def test_steps_of_a_run() -> None:
    epochs = CONFIG.model_copy(update={"training": TrainingSettings(num_train_epochs=3)})
    assert total_steps(epochs, num_rows=10, groups_per_batch=2) == 15
    twice = TrainingSettings(
        num_train_epochs=3, gradient_accumulation_steps=2, steps_per_generation=4, num_iterations=2
    )
    assert total_steps(CONFIG.model_copy(update={"training": twice}), num_rows=10, groups_per_batch=2) == 60
    assert total_steps(CONFIG, num_rows=10, groups_per_batch=2) == CONFIG.training.max_steps


def test_metrics_leave_missing_verdicts_out() -> None:
    rewards = [0.0, 1.0, None, 1.0]
    metrics = rollout_metrics([rollout(reward, length=2 + i) for i, reward in enumerate(rewards)], num_generations=4)
    assert metrics["reward_mean"] == pytest.approx(2 / 3)
    assert metrics["reward/f1_mean"] == pytest.approx(2 / 3)
    assert metrics["no_verdict"] == 0.25
    assert metrics["flat_groups"] == 0.0
    assert (metrics["completion_length_mean"], metrics["completion_length_max"]) == (3.5, 5.0)


def test_a_step_is_one_line() -> None:
    line = step_line({"step": 3, "reward_mean": 0.5, "reward_std": 0.1, "loss": -0.01, "seconds/step": 2.0}, 12)
    assert line.startswith("step  3/12 | reward 0.500 ±0.100")
    assert "\n" not in line


def test_a_bar_follows_the_answers(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with answers_bar("sst2 dev", 8, leave=True) as progress:
        for done in range(1, 7):
            progress(done, 8)
    assert "6/8" in capsys.readouterr().err
    with answers_bar("sst2 dev", 0, leave=True):  # nothing new to ask
        pass
    assert not capsys.readouterr().err


def test_the_outcome_tells_initial_and_best_and_what_the_test_says() -> None:
    baseline = {"instruction": "Say it.", "score": 0.5, "interval": [0.4, 0.6], "n": 90}
    recall = {"recall": {"good": 0.9, "bad": 0.0}, "majority": ("good", 0.97)}
    test = {"n": 200, "wins": 30, "losses": 20, "p_value": 0.1, "proven": False}
    best = {**baseline, **recall, "instruction": "Good or bad?", "score": 0.75, "step": 4, "num_candidates": 9}
    best |= {"baseline": baseline, "task": "sentiment", "test": test}
    text = outcome({"sentiment": best}, {"sentiment": "race: 8 on 10"}, "runs/x")
    assert "race: 8 on 10" in text
    assert "0.500 [0.400, 0.600]  'Say it.'" in text
    assert "0.750 [0.400, 0.600]  'Good or bad?'" in text
    assert "recall: good 0.90, bad 0.00; commonest answer: good (97%)" in text
    assert "30 won, 20 lost, one-sided p 0.1: within noise" in text
    assert "python evaluate.py --prompts runs/x --task sentiment" in text
    proven = {**best, "test": {**test, "proven": True}}
    assert "better, proven" in outcome({"sentiment": proven}, {}, "runs/x")
    unchanged = {**best, "instruction": "Say it."}
    kept = outcome({"sentiment": unchanged}, {}, "runs/x")
    assert "none of 8 rewrites is better" in kept
    assert "commonest answer: good (97%)" in kept, "a label that is always given is seen here too"


def test_the_journal_writes_any_text_and_no_nan(tmp_path: Path) -> None:
    journal = Journal(CONFIG.model_copy(update={"output_dir": str(tmp_path)}))
    text = "情感？ 😀 e\u0301 \u2028 {x} %s"
    row = replace(ROW, instruction=text)
    kept = Rollout(sample(), row, 0, text, None, {"f1": float("nan")}, 0.0)
    journal.write_rollouts([kept], step=1, stage=0, seed=1, gaps=[float("inf")])
    (line,) = (journal.folder / "log.jsonl").read_bytes().decode("utf-8").rstrip("\n").split("\n")
    read = json.loads(line, parse_constant=pytest.fail)
    assert (read["instruction"], read["rewrite"], read["reward"]) == (text, text, None)
    assert (read["reward_parts"], read["sampler_gap"]) == ({"f1": None}, None)
    with pytest.raises(UserError, match="never written over"):
        Journal(CONFIG.model_copy(update={"output_dir": str(tmp_path)}))


def test_the_entropy_bonus_weighs_more_with_each_batch_below_the_target_and_rests_above_it() -> None:
    trainer = ScriptedTrainer(with_loss(entropy_coef=0.01, entropy_target=0.9), [[FLAT]])
    trainer.updater = updater(1, 0)
    sure, varied = (
        collate([replace(sample(), sampler_logprobs=(value,) * 3)] * 2, [1.0, -1.0], pad_token_id=0)
        for value in (-0.5, -1.0)
    )
    told = [trainer._control_entropy(batch)["entropy_coef"] for batch in (sure, sure, sure, varied, varied, sure)]
    assert told == pytest.approx([0.01, 0.02, 0.03, 0.0, 0.0, 0.02])
    assert (trainer.updater.entropy_scale, trainer.progress.entropy_scale) == (2, 3)
    assert Progress.from_json(trainer.progress.to_json()).entropy_scale == 3, "a resume goes on with it"
    trainer.progress.next_stage({})
    assert trainer._control_entropy(sure) == {"entropy_coef": 0.01}
    for _ in range(3):
        trainer._control_entropy(varied)
    assert trainer._control_entropy(sure) == {"entropy_coef": 0.01}, "never less than the setting"
    trainer.config = with_loss(entropy_coef=0.01)
    assert trainer._control_entropy(sure) == {}


def test_training_ends_at_the_last_step_at_a_standstill_and_where_the_budget_is_for_choosing() -> None:
    trainer = ScriptedTrainer(with_loss(), [[FLAT]])
    trainer.total_steps, asked = 9, []

    class Affords:
        def affords(self, num_rollouts: int) -> bool:
            asked.append(num_rollouts)
            return len(asked) < 3

    trainer.objective = Affords()  # type: ignore[assignment]  # nothing else of it is asked
    assert trainer._why_over() == ""
    trainer.progress.alike_batches = STANDSTILL - 1
    assert trainer._why_over() == ""
    trainer.progress.alike_batches = STANDSTILL
    assert "all rewrites of a group were alike" in trainer._why_over()
    trainer.progress.alike_batches = 0
    assert "budget" in trainer._why_over()
    assert asked == [GENERATIONS] * 3
    trainer.progress.step = 9
    assert trainer._why_over()


@pytest.mark.parametrize(
    ("gib_free", "local_ranks", "is_told"), [(1, 2, True), (1, 1, True), (2, 1, False), (4, 2, False)]
)
def test_optimizer_state_that_host_memory_has_no_room_for_is_told(
    gib_free: int, local_ranks: int, is_told: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    """3 GiB of it over two ranks, which are on one machine or on two."""
    monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(available=gib_free * 2**30))
    monkeypatch.setenv("LOCAL_WORLD_SIZE", str(local_ranks))
    weights = [torch.empty(3 * 2**26, device="meta")]
    warn_of_full_host(weights, World(0, 2, torch.device("cpu")))
    assert ("policy.offload_optimizer puts" in caplog.text) == is_told

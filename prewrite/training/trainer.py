"""The training loop. A step reads like the algorithm:

roll out -> score -> advantages -> batch -> optimizer steps (log-probs, loss, backward) -> push weights -> write down
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

import torch

from prewrite.algorithm.advantages import combine_rewards, flat_groups, group_advantages
from prewrite.algorithm.batching import Batch, collate
from prewrite.config import Config
from prewrite.engine import distributed
from prewrite.engine.distributed import World
from prewrite.engine.policy import Policy
from prewrite.engine.sampler import Sampler
from prewrite.engine.task_model import TaskModel
from prewrite.engine.weight_sync import push
from prewrite.errors import UserError
from prewrite.reporting.console import Console, outcome
from prewrite.reporting.journal import Journal
from prewrite.rewards.rewrite import clean_rewrite
from prewrite.training.checkpoint import save_checkpoint
from prewrite.training.rollout import roll_out, row_order
from prewrite.training.schedule import GapAlarm, learning_rate_at, total_steps
from prewrite.training.scorer import Scorer
from prewrite.training.selection import Selection
from prewrite.training.step_metrics import rollout_metrics
from prewrite.training.update import Updater
from prewrite.types import InstructionRow, Rollout, Sample


@dataclass(frozen=True)
class Collaborators:
    """Everything the loop works with. journal and selection: on rank 0 alone."""

    policy: Policy
    reference: Policy | None
    sampler: Sampler
    scorer: Scorer
    task_model: TaskModel
    tokenizer: Any
    journal: Journal | None
    selection: Selection | None


class Trainer:
    """Runs a config from the first push to the last checkpoint. Every method is called on every rank."""

    def __init__(
        self,
        config: Config,
        rows: Sequence[InstructionRow],
        requests: Sequence[Sequence[int]],
        world: World,
        with_: Collaborators,
    ):
        self.config, self.rows, self.requests, self.world, self.with_ = config, rows, requests, world, with_
        self.groups_per_batch = config.rollouts_per_generation(world.size) // config.rollout.num_generations
        self.total_steps = total_steps(config, len(rows), self.groups_per_batch)
        self.updater = Updater(
            with_.policy,
            with_.reference,
            config.loss,
            config.training,
            max_completion_length=config.rollout.max_completion_length,
            rollouts_per_step=config.rollouts_per_step(world.size),
        )
        self.order = row_order(len(rows), config.seed)
        self.step = 0
        self.draws = 0
        self.leftovers: list[list[Rollout]] = []
        self.gap_alarm = GapAlarm(config.training.max_sampler_gap)
        self.seconds: dict[str, float] = {}

    def run(self) -> None:
        """Trains to the last step. Raises UserError past the share of failed calls."""
        console = Console(self.total_steps, is_main=self.world.is_main)
        try:
            push(self.with_.policy, self.with_.sampler)
            self._judge_initial(console)
            while self.step < self.total_steps:
                self._train_on_fresh_rollouts(console)
        finally:
            console.close()
        if self.with_.journal is not None:
            if self.with_.selection is not None:
                console.say(outcome(self.with_.journal.best))
            console.say(f"run folder: {self.with_.journal.folder}")

    def _train_on_fresh_rollouts(self, console: Console) -> None:
        """One rollout batch and the optimizer steps on it."""
        started = time.perf_counter()
        self.seconds = {}
        rollouts, refills = self._collect()
        shared = rollout_metrics(rollouts, self.config.rollout.num_generations) | {"refills": float(refills)}
        self.with_.sampler.sleep()
        batch = self._batch(rollouts)
        first_step, row_gaps = self.step + 1, {}
        metrics: dict[str, float] = {}
        try:
            updates = self.updater.updates(batch, self._learning_rate, first_step)
            while self.step < self.total_steps:
                with self._clock("training"):
                    update = next(updates, None)
                if update is None:
                    break
                if metrics:  # of the step before, which is not the batch's last
                    self._write_down(metrics, console, started)
                    started = time.perf_counter()
                    self.seconds = {}
                self.step += 1
                row_gaps = row_gaps or update.row_gaps
                metrics = {"step": self.step, **shared, **update.metrics}
                self.gap_alarm.hear(self.step, metrics.get("sampler_gap"))
        finally:
            if self.with_.journal is not None:
                self.with_.journal.write_rollouts(
                    rollouts,
                    step=first_step,
                    seed=self.config.seed,
                    gaps=[row_gaps.get(row) for row in range(len(rollouts))],
                )
        self._move_reference(first_step)
        with self._clock("push"):
            push(self.with_.policy, self.with_.sampler)
        metrics |= self._task_model_metrics() | self._throughput(rollouts, batch)
        metrics |= self._look_if_due(first_step, rollouts)
        self._save_if_due(first_step)
        self._write_down(metrics, console, started)

    def _collect(self) -> tuple[list[Rollout], int]:
        """A batch of scored groups, with advantages, and the number of refills it took.

        Dynamic sampling (DAPO, arXiv 2503.14476, section 3.2): groups without spread are replaced by fresh ones, a
        bounded number of times; informative groups beyond the batch are kept for the next one. After the last refill
        groups without spread fill what is still missing.
        """
        wanted, limit = self.groups_per_batch, self.config.loss.dynamic_sampling_refills
        kept, flat = self.leftovers, []
        refills = -1
        while len(kept) < wanted and refills < limit:
            refills += 1
            for group in self._score_fresh_groups():
                (flat if limit and _is_flat(group) else kept).append(group)
        kept, self.leftovers = kept[:wanted], kept[wanted:]
        groups = kept + flat[: wanted - len(kept)]
        rollouts = [replace(rollout, group=index) for index, group in enumerate(groups) for rollout in group]
        advantages = group_advantages(
            _rewards(rollouts),
            self.config.rollout.num_generations,
            scale_rewards=self.config.loss.scale_rewards,
            leave_one_out=self.config.loss.leave_one_out,
        )
        return [
            replace(rollout, advantage=value) for rollout, value in zip(rollouts, advantages.tolist(), strict=True)
        ], max(0, refills)

    def _score_fresh_groups(self) -> list[list[Rollout]]:
        """One batch of groups, rolled out and scored over the ranks, whole on every rank."""
        chosen = [next(self.order) for _ in range(self.groups_per_batch)]
        rows = [self.rows[index] for index in chosen]
        size = self.config.rollout.num_generations

        def ask_ahead(group: int, sample: Sample) -> None:
            with suppress(UserError):  # `score` meets it again, where the ranks fail together
                self.with_.scorer.ask_ahead(group, sample, rows[group], self.draws)

        with self._clock("rollout"):
            requests = [self.requests[index] for index in chosen]
            samples = roll_out(self.with_.sampler, requests, size, self.world, on_finished=ask_ahead)
        with self._clock("scoring"):
            with distributed.together("scoring rewrites"):
                mine = self.with_.scorer.score(samples, rows, self.draws)
                self.with_.task_model.check_failure_share()
            rollouts = [rollout for part in distributed.gather(mine) for rollout in part]
        self.draws += 1
        names = [entry.reward.name for entry in self.with_.scorer.rewards]
        totals = combine_rewards(
            torch.tensor([[_number(rollout.reward_parts.get(name)) for rollout in rollouts] for name in names]),
            torch.tensor([[name in rollout.reward_parts for rollout in rollouts] for name in names]),
            torch.tensor([entry.weight for entry in self.with_.scorer.rewards]),
            aggregation=self.config.loss.multi_objective_aggregation,
            num_generations=size,
        ).tolist()
        scored = [
            replace(rollout, reward=None if total != total else total)
            for rollout, total in zip(rollouts, totals, strict=True)
        ]
        return [scored[start : start + size] for start in range(0, len(scored), size)]

    def _batch(self, rollouts: Sequence[Rollout]) -> Batch:
        return collate(
            [rollout.sample for rollout in rollouts],
            [rollout.advantage for rollout in rollouts],
            pad_token_id=self.with_.tokenizer.pad_token_id or 0,
            has_verdict=[rollout.reward is not None for rollout in rollouts],
            mask_truncated_completions=self.config.loss.mask_truncated_completions,
        )

    def _learning_rate(self) -> float:
        return learning_rate_at(self.step, self.total_steps, self.config.training)

    def _move_reference(self, first_step: int) -> None:
        loss, reference = self.config.loss, self.with_.reference
        if reference is not None and loss.sync_ref_model and self._due(loss.ref_model_sync_steps, first_step):
            reference.mix_in(self.with_.policy, loss.ref_model_mixup_alpha)

    def _judge_initial(self, console: Console) -> None:
        with distributed.together("judging the initial instruction"):
            if self.with_.selection is not None:
                self.with_.selection.judge_initial(self.rows)
                for task, standing in self.with_.selection.initial.items():
                    console.say(f"{task}: the initial instruction scores {standing.score:.3f} on dev")
        if self.config.selection.num_sampled and not self.with_.scorer.rewrites_are_problems:
            shown = self._look()
            if self.with_.journal is not None:
                self.with_.journal.write_step({"step": 0, **shown})
                console.say("before training: " + ", ".join(f"{key} {value:.3f}" for key, value in shown.items()))

    def _look_if_due(self, first_step: int, rollouts: Sequence[Rollout]) -> dict[str, float]:
        if self.with_.selection is not None:
            self.with_.selection.note(rollouts)
        is_due = self._due(self.config.selection.eval_steps, first_step) or self.step >= self.total_steps
        if not is_due or self.with_.scorer.rewrites_are_problems:
            return {}
        with self._clock("dev"):
            return self._look()

    def _look(self) -> dict[str, float]:
        """A look at dev: the policy writes its greedy rewrites, and new samples, of every instruction."""
        greedy = self._write(1, greedy=True)
        sampled = self._write(self.config.selection.num_sampled, greedy=False)
        shown: dict[str, float] = {}
        with distributed.together("judging rewrites on dev"):
            if self.with_.selection is not None:
                shown = self.with_.selection.look(self.step, greedy, sampled)
        return shown

    def _write(self, count: int, *, greedy: bool) -> list[tuple[str, str]]:
        """(task, rewrite), `count` of each instruction row; truncated ones are "", as in training."""
        if not count:
            return []
        samples = self.with_.sampler.sample(self.requests, [count] * len(self.requests), greedy=greedy)
        return [
            (row.dataset_name, "" if sample.finish_reason == "length" else clean_rewrite(sample.text))
            for row, own in zip(self.rows, samples, strict=True)
            for sample in own
        ]

    def _save_if_due(self, first_step: int) -> None:
        if self._due(self.config.training.save_steps, first_step) or self.step >= self.total_steps:
            folder = distributed.broadcast(self.with_.journal.folder if self.with_.journal else None)
            save_checkpoint(self.with_.policy, self.with_.tokenizer, folder / "checkpoints", self.step)

    def _due(self, every: int, first_step: int) -> bool:
        """Whether one of the steps since first_step is a multiple of `every`; 0 = never."""
        return bool(every) and self.step // every > (first_step - 1) // every

    def _task_model_metrics(self) -> dict[str, float]:
        """Counts since the start, over all ranks."""
        stats = self.with_.task_model.stats
        mine = {
            "task_calls": stats.calls,
            "cached_calls": stats.cached,
            "retried_calls": stats.retries,
            "failed_calls": stats.failed,
        }
        return {name: float(sum(part[name] for part in distributed.gather(mine))) for name in mine}

    def _throughput(self, rollouts: Sequence[Rollout], batch: Batch) -> dict[str, float]:
        completion_tokens = sum(len(rollout.sample.completion_ids) for rollout in rollouts)
        rates = {
            "tokens_per_second/rollout": completion_tokens / max(self.seconds.get("rollout", 0.0), 1e-9),
            "tokens_per_second/training": int(batch.length_B.sum()) / max(self.seconds.get("training", 0.0), 1e-9),
            # Scoring begins while rewrites are still being written; its own seconds are what is left afterwards.
            "rewrites_per_second": len(rollouts)
            / max(self.seconds.get("rollout", 0.0) + self.seconds.get("scoring", 0.0), 1e-9),
        }
        if self.world.device.type == "cuda":
            rates["gpu_memory_peak_gib"] = torch.cuda.max_memory_allocated() / 2**30
        return rates

    def _write_down(self, metrics: dict[str, float], console: Console, started: float) -> None:
        metrics |= {f"seconds/{phase}": seconds for phase, seconds in self.seconds.items()}
        metrics["seconds/step"] = time.perf_counter() - started
        if self.with_.journal is not None:
            self.with_.journal.write_step(metrics)
        is_due = self.step % self.config.training.logging_steps == 0 or self.step >= self.total_steps
        console.step(metrics, shown=is_due)

    @contextmanager
    def _clock(self, phase: str) -> Iterator[None]:
        started = time.perf_counter()
        yield
        if self.world.device.type == "cuda":
            torch.cuda.synchronize()
        self.seconds[phase] = self.seconds.get(phase, 0.0) + time.perf_counter() - started


def _number(value: float | None) -> float:
    return float("nan") if value is None else value


def _rewards(rollouts: Sequence[Rollout]) -> torch.Tensor:
    return torch.tensor([_number(rollout.reward) for rollout in rollouts], dtype=torch.float64)


def _is_flat(group: Sequence[Rollout]) -> bool:
    return bool(flat_groups(_rewards(group), len(group))[0])

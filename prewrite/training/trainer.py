"""GRPO on the loop of `loop.py`. A step reads like the algorithm:

roll out -> score -> advantages -> batch -> optimizer steps (log-probs, loss, backward) -> push weights -> write down
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch

from prewrite.algorithm.advantages import combine_rewards, flat_groups, group_advantages
from prewrite.algorithm.batching import Batch, collate
from prewrite.config import Config
from prewrite.engine import distributed
from prewrite.engine.weight_sync import push
from prewrite.report import try_report
from prewrite.reporting.console import Console
from prewrite.training.callbacks import Callback
from prewrite.training.engines import Engines
from prewrite.training.loop import Loop
from prewrite.training.objectives.base import Objective, Parts
from prewrite.training.partial_rollouts import begin_group, carried_metrics, go_on, num_begun
from prewrite.training.progress import Progress, row_at
from prewrite.training.rollout import roll_out
from prewrite.training.schedule import check_gap, count_alike, entropy_scale, total_steps
from prewrite.training.step_metrics import rollout_metrics, throughput
from prewrite.training.update import Updater
from prewrite.types import Rollout, Sample, Sampled, Scored


class Trainer(Loop):
    """GRPO: trains on an objective's rollouts."""

    def __init__(
        self,
        config: Config,
        engines: Engines,
        objective: Objective,
        progress: Progress,
        callbacks: Sequence[Callback] = (),
    ):
        self.groups_per_batch = config.groups_per_batch(engines.world.size)
        stage_steps = total_steps(config, len(objective.rows), self.groups_per_batch)
        super().__init__(config, engines, progress, stage_steps, callbacks)
        assert engines.sampler is not None, "rollouts come from a sampler"
        self.objective, self.sampler = objective, engines.sampler
        self.num_generations = config.rollout.num_generations
        self.updater = Updater(
            engines.policy,
            engines.reference,
            config.loss,
            config.training,
            max_completion_length=config.rollout.max_completion_length,
            rollouts_per_step=config.rollouts_per_step(self.world.size),
        )

    def _begin(self, console: Console) -> None:
        self.objective.outlook(self.stage_steps, console.say)
        push(self.engines.policy, self.sampler)

    def _look(self) -> dict[str, float]:
        return self.objective.evaluate(self.progress.step, self.sampler)

    def _finish(self) -> dict[str, float]:
        """Chooses the best."""
        return self.objective.finish(self.progress.step, self.sampler)

    def _counts(self) -> dict[str, float]:
        return self.objective.counts()

    def _summary(self) -> str:
        return self.objective.summary()

    def _why_over(self) -> str:
        if why := super()._why_over():
            return why
        if not self.objective.affords(self.groups_per_batch * self.num_generations):
            return "the rest of the budget is for choosing"
        return ""

    def _train_on_batch(self, console: Console) -> tuple[Sequence[Rollout], str]:
        """One rollout batch and the optimizer steps on it, each written down when it ends; and `_why_over`."""
        started, self.looked = time.perf_counter(), False
        self.seconds = {}
        rollouts, refills = self._collect()
        console.rewrites(rollouts, self.config.training.num_completions_to_print)
        shared = rollout_metrics(rollouts, self.num_generations) | {"refills": float(refills)}
        if self.config.rollout.partial_rollouts:
            shared |= carried_metrics(self.progress.carried)
        count_alike(self.progress, shared["distinct_rewrites"])
        over = ""
        self.sampler.sleep()
        batch = self._batch(rollouts)
        shared |= self._control_entropy(batch)
        self.state.first_step, row_gaps = self.progress.step + 1, {}
        num_updates = min(self.updater.count(batch), self.total_steps - self.progress.step)
        updates = self.updater.updates(batch, self._learning_rate, self.state.first_step)
        try:
            for left in reversed(range(num_updates)):
                with self._clock("training"):
                    update = next(updates)
                self.progress.step += 1
                row_gaps = update.row_gaps | row_gaps
                metrics = self._place() | shared | update.metrics
                check_gap(
                    self.progress.gaps,
                    self.config.training.max_sampler_gap,
                    self.progress.step,
                    metrics.get("sampler_gap"),
                )
                if not left:
                    after, over = self._after_batch(rollouts, batch)
                    metrics |= after
                self._write_down(metrics, console, started)
                started, self.seconds = time.perf_counter(), {}
        except BaseException:
            self._write_rollouts(rollouts, row_gaps)  # what was paid for is told, whatever went wrong
            raise
        with distributed.together("writing rollouts down"):
            self._write_rollouts(rollouts, row_gaps)
        return rollouts, over

    def _after_batch(self, rollouts: Sequence[Rollout], batch: Batch) -> tuple[dict[str, float], str]:
        """What the last step of a rollout batch ends with: reference, push, held-out evaluation.

        Returns metrics, and `_why_over`.
        """
        self._move_reference()
        with self._clock("push"):
            push(self.engines.policy, self.sampler)
        metrics = throughput(rollouts, int(batch.length_B.sum()), self.seconds)
        self.objective.remember(rollouts, self.state.first_step - 1)
        over = self._why_over()
        if over or self.state.due(self.config.selection.eval_steps):
            self.looked = True
            with self._clock("dev"):
                metrics |= self._look()
        return metrics | self.objective.spent(), over

    def _collect(self) -> tuple[list[Rollout], int]:
        """A batch of scored groups, with advantages, and the number of refills it took.

        Dynamic sampling (DAPO, arXiv 2503.14476, section 3.2): groups without spread are replaced by fresh ones, a
        bounded number of times; informative groups beyond the batch are kept for the next one. After the last refill
        groups without spread fill what is still missing. Groups under way see a push before they go on.
        """
        wanted, limit = self.groups_per_batch, self.config.loss.dynamic_sampling_refills
        kept, flat = self.progress.leftovers, []
        refills = -1
        size = wanted * self.num_generations
        while len(kept) < wanted and refills < limit and (refills < 0 or self.objective.affords(size)):
            refills += 1
            for group in self._score_groups(wanted - len(kept)):
                (flat if limit and _is_flat(group) else kept).append(group)
        kept, self.progress.leftovers = kept[:wanted], kept[wanted:]
        self.progress.carried = [replace(one, pushes=one.pushes + 1) for one in self.progress.carried]
        groups = kept + flat[: wanted - len(kept)]
        scored = [(index, one) for index, group in enumerate(groups) for one in group]
        advantages = group_advantages(
            _rewards([one for _, one in scored]),
            self.num_generations,
            scale_rewards=self.config.loss.scale_rewards,
            leave_one_out=self.config.loss.leave_one_out,
        )
        return [
            Rollout(
                one.sample,
                one.row,
                index,
                one.output,
                one.reward,
                one.reward_parts,
                advantage,
                shown=one.shown,
                verdicts=one.verdicts,
            )
            for (index, one), advantage in zip(scored, advantages.tolist(), strict=True)
        ], max(0, refills)

    def _score_groups(self, missing: int) -> list[list[Scored]]:
        """Groups, rolled out and scored over the ranks, whole on every rank: a batch of fresh ones, or with partial
        rollouts those that are complete first, `missing` or more."""
        draw = self.progress.draws
        with self._clock("rollout"):
            sampled, num_fresh = self._roll_out(missing, draw)
        with self._clock("scoring"):
            mine = list(zip(sampled, self.objective.score(sampled, draw), strict=True))
            shared = [pair for part in distributed.gather(mine) for pair in part]
        self.progress.place += num_fresh
        self.progress.draws += 1
        scored = [
            Scored(
                one.sample,
                one.row,
                one.group,
                one.output,
                None if total != total else total,
                mark.parts,
                shown=one.shown,
                verdicts=mark.verdicts,
            )
            for (one, mark), total in zip(shared, self._totals([mark.parts for _, mark in shared]), strict=True)
        ]
        return [scored[i : i + self.num_generations] for i in range(0, len(scored), self.num_generations)]

    def _roll_out(self, missing: int, draw: int) -> tuple[list[Sampled], int]:
        """This rank's share of the samples to be scored, and the number of groups that began now."""
        progress, num_fresh = self.progress, self.groups_per_batch
        is_partial = bool(self.config.rollout.partial_rollouts)
        if is_partial:
            per_batch = self.config.updates_per_generation() * self.config.training.num_iterations
            is_last = progress.step + per_batch >= self.total_steps
            num_fresh = num_begun(self.config, progress, missing, num_fresh, is_last=is_last)
        chosen = dict(enumerate((one.index for one in progress.carried), start=-len(progress.carried)))
        requests = {group: self.objective.request(index, group, draw) for group, index in chosen.items()}
        for group in range(num_fresh):
            index = row_at(progress.place + group, len(self.objective.rows), self.config.seed)
            chosen[group] = self.objective.choose(index, group, draw)
            requests[group] = self.objective.request(chosen[group], group, draw)

        def read(group: int, sample: Sample) -> Sampled:
            sampled = self.objective.read(chosen[group], group, draw, sample)
            self.objective.score_ahead(sampled, draw)
            return sampled

        if not is_partial:
            return roll_out(self.sampler, list(requests.values()), self.num_generations, self.world, read), num_fresh
        fresh = [begin_group(chosen[group], requests[group], self.num_generations) for group in range(num_fresh)]
        groups = go_on(self.sampler, [*progress.carried, *fresh], missing, self.world)
        progress.carried = [one for one in groups if one.num_unfinished]
        written = [
            (group, sample)
            for group, one in zip(chosen, groups, strict=True)
            if not one.num_unfinished
            for sample in one.samples
        ]
        rank, size = self.world.rank, self.world.size
        mine = written[len(written) * rank // size : len(written) * (rank + 1) // size]
        return [read(group, sample) for group, sample in mine], num_fresh

    def _totals(self, parts: Sequence[Parts]) -> list[float]:
        """One reward a sample; NaN = no verdict."""
        names = [entry.reward.name for entry in self.objective.rewards]
        return combine_rewards(
            torch.tensor([[_number(part.get(name)) for part in parts] for name in names]),
            torch.tensor([[name in part for part in parts] for name in names]),
            torch.tensor([entry.weight for entry in self.objective.rewards]),
            aggregation=self.config.loss.multi_objective_aggregation,
            num_generations=self.num_generations,
        ).tolist()

    def _batch(self, rollouts: Sequence[Rollout]) -> Batch:
        return collate(
            [rollout.sample for rollout in rollouts],
            [rollout.advantage for rollout in rollouts],
            pad_token_id=self.engines.tokenizer.pad_token_id or 0,
            has_verdict=[rollout.reward is not None for rollout in rollouts],
            mask_truncated_completions=self.config.loss.mask_truncated_completions,
        )

    def _control_entropy(self, batch: Batch) -> dict[str, float]:
        """Sets how much of the entropy bonus the batch's steps pay; returns it as a metric where it is controlled.

        The mean of -log-prob over sampled tokens estimates their entropy, for all ranks alike and before the steps.
        """
        target, sampled = self.config.loss.entropy_target, batch.sampler_logprob_BT[batch.mask_BT]
        if target is None or not len(sampled):
            return {}
        self.updater.entropy_scale = entropy_scale(self.progress, float(-sampled.mean()) <= target)
        return {"entropy_coef": self.config.loss.entropy_coef * self.updater.entropy_scale}

    def _move_reference(self) -> None:
        loss, reference = self.config.loss, self.engines.reference
        if reference is not None and loss.sync_ref_model and self.state.due(loss.ref_model_sync_steps):
            reference.mix_in(self.engines.policy, loss.ref_model_mixup_alpha)

    def _write_first_look(self, shown: Mapping[str, float]) -> None:
        spent = self.objective.spent()
        if self.config.selection.num_sampled:
            super()._write_first_look({**shown, **spent})

    def _write_rollouts(self, rollouts: Sequence[Rollout], gaps: Mapping[int, float]) -> None:
        if self.engines.journal is not None:
            self.engines.journal.write_rollouts(
                rollouts,
                step=self.state.first_step,
                stage=self.progress.stage,
                seed=self.config.seed,
                gaps=[gaps.get(row) for row in range(len(rollouts))],
            )
            if self.looked:
                try_report(self.engines.journal.folder)


def _number(value: float | None) -> float:
    return float("nan") if value is None else value


def _rewards(scored: Sequence[Scored]) -> torch.Tensor:
    return torch.tensor([_number(one.reward) for one in scored], dtype=torch.float64)


def _is_flat(group: Sequence[Scored]) -> bool:
    return bool(flat_groups(_rewards(group), len(group))[0])

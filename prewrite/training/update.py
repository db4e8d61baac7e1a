"""From a batch of rollouts with advantages to optimizer steps. The loss is `prewrite/algorithm/losses.py`.

Every rank holds the whole batch and makes the same plan, then takes its own micro-batches: so counts, normalisers and
the number of forwards agree without a word between the ranks.
"""

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from prewrite.algorithm.batching import Batch, deal, micro_batches, pack_by_tokens, pack_evenly
from prewrite.algorithm.logprobs import count_chunks
from prewrite.algorithm.losses import LossTensors, PolicyLoss, StepTotals, entropy_quantile, policy_loss
from prewrite.algorithm.metrics import LossMetrics, merge_metrics, metric_values
from prewrite.config import LossSettings, TrainingSettings
from prewrite.engine import distributed
from prewrite.engine.policy import Policy
from prewrite.errors import UserError

NUM_TOLD = 3  # places of a number that is not finite, in one message


@dataclass(frozen=True)
class MicroBatch:
    """rows: indices into the batch; num_chunks: head calls, the same on every rank."""

    rows: list[int]
    batch: Batch
    num_chunks: int


@dataclass(frozen=True)
class StepPlan:
    """This rank's micro-batches of one optimizer step, and the totals of the whole step over all ranks."""

    micro_batches: list[MicroBatch]
    totals: StepTotals
    teaches: bool


@dataclass(frozen=True)
class Update:
    """One optimizer step. metrics: `metric_values` and the optimizer's; row_gaps: mean |l_old - l_sampler| by row."""

    metrics: dict[str, float]
    row_gaps: dict[int, float] = field(default_factory=dict)


class Updater:
    """Takes the optimizer steps of one rollout batch."""

    # Of a step that is not finite: what is measured of each row, where the rows are, and where to look.
    ROW_MEASURE = "the sampler gap"
    ROWS = "in the lines of log.jsonl's step {first_step}"
    WAY_OUT = (
        "A row whose sampler gap is not finite has such log-probs: of weights that ran away (lower "
        "training.learning_rate or max_grad_norm, policy.dtype float32), or of the sampler. Where the loss alone is "
        "not, look at the settings in `loss`, at a loss of your own first; where the gradient alone is not, at "
        "training.learning_rate and policy.dtype"
    )

    def __init__(
        self,
        policy: Policy,
        reference: Policy | None,
        loss: LossSettings,
        training: TrainingSettings,
        *,
        max_completion_length: int,
        rollouts_per_step: int,
    ):
        wanted = loss.beta != 0 and policy.is_trainable
        assert (reference is not None) == wanted, "a reference exactly where beta is not 0 and something is trained"
        self.policy, self.reference = policy, reference
        self.loss, self.training = loss, training
        self.max_completion_length = max_completion_length
        self.rollouts_per_step = rollouts_per_step
        self.entropy_scale = 1  # of the batch at hand

    def count(self, batch: Batch) -> int:
        """How many optimizer steps `updates` takes on the batch."""
        return self.training.num_iterations * -(-len(batch.length_B) // self.rollouts_per_step)

    def updates(self, batch: Batch, learning_rate: Callable[[], float], first_step: int) -> Iterator[Update]:
        """The optimizer steps of a batch, one at a time. learning_rate: asked before each. Collective.

        first_step: their numbers start with it. UserError, on every rank, in place of a step that is not finite.

        l_old is computed once, before the first step; where that is also the last one, the policy has not moved since
        the rollout and l_old is l itself, which saves a forward.
        """
        size = self.rollouts_per_step
        rows = range(len(batch.length_B))
        plans = [self.plan(batch, rows[start : start + size]) for start in range(0, len(rows), size)]
        moves_between = self.training.num_iterations * len(plans) > 1
        if moves_between or self.loss.top_entropy_quantile < 1:
            plans = [self._with_old(plan) for plan in plans]
        if self.reference is not None:
            plans = [self._with_reference(plan) for plan in plans]
        for index, plan in enumerate(plans * self.training.num_iterations):
            yield self._update(plan, learning_rate(), first_step + index, first_step)

    def plan(self, batch: Batch, rows: Sequence[int]) -> StepPlan:
        """The cut of one optimizer step's rows, and this rank's share of it."""
        step, world = batch.select(rows), self.policy.world
        if (max_tokens := self.training.max_tokens_per_micro_batch) and self.policy.computes_padding:
            packs = pack_by_tokens(step.length_B.tolist(), max_tokens)
        elif max_tokens:
            sharing = step.prefix_length_B.tolist(), step.lead_B.tolist()
            packs = pack_evenly(step.length_B.tolist(), *sharing, max_tokens, world.size)
        else:
            packs = micro_batches(step, size=self.training.per_device_train_batch_size)
        shares = deal(packs, world.size)
        tokens_B = step.mask_BT.sum(1)
        micros = []
        for index, mine in enumerate(shares[world.rank]):
            largest = max(int(tokens_B[share[index]].sum()) for share in shares)
            micros.append(
                MicroBatch(
                    [rows[row] for row in mine],
                    step.select(mine),
                    count_chunks(largest, self.training.logprob_chunk_tokens),
                )
            )
        pushes_surrogate = bool((step.advantage_B[step.mask_BT.any(1)] != 0).any())
        totals = StepTotals(
            num_tokens=step.num_tokens,
            num_sequences=step.num_sequences,
            max_completion_length=self.max_completion_length,
            num_micro_batches=sum(bool(tokens_B[pack].any()) for pack in packs),
            entropy_scale=self.entropy_scale,
        )
        pulls = pushes_surrogate or self.loss.beta != 0 or self._pays_entropy
        return StepPlan(micros, totals, teaches=step.num_tokens > 0 and pulls)

    @property
    def _pays_entropy(self) -> bool:
        return self.loss.entropy_coef * self.entropy_scale != 0

    def _update(self, plan: StepPlan, learning_rate: float, step: int, first_step: int) -> Update:
        """One optimizer step; none where every advantage is 0 and no other term pulls (a step of momentum alone)."""
        parts, gaps = [], []  # both stay on the device until the last backward: to read one is to wait for it
        for index, micro in enumerate(plan.micro_batches):
            batch = micro.batch.to(self.policy.world.device)
            with torch.set_grad_enabled(plan.teaches):
                logprob_BT, entropy_BT = self.policy.logprobs(batch, micro.num_chunks, entropy_grad=self._pays_entropy)
                loss = self._loss(plan.totals, batch, logprob_BT, entropy_BT)
            if plan.teaches:
                self.policy.backward(loss.value, last=index == len(plan.micro_batches) - 1)
            parts.append(loss.metrics)
            old_BT = logprob_BT.detach() if batch.old_logprob_BT is None else batch.old_logprob_BT
            gaps.append(_row_gaps(batch, old_BT))
        losses = torch.stack([part.sums["loss"] for part in parts]).tolist()
        row_gaps = {
            row: value
            for micro, gap_B in zip(plan.micro_batches, gaps, strict=True)
            for row, value in zip(micro.rows, gap_B.tolist(), strict=False)  # an empty one has a dummy row
        }
        by_rows = [(value, micro.rows) for micro, value in zip(plan.micro_batches, losses, strict=True)]
        shared = distributed.gather((_on_cpu(merge_metrics(parts)), by_rows, row_gaps))
        row_gaps = {row: gap for _, _, part in shared for row, gap in part.items()}
        measured = {
            "the loss": [pair for _, part, _ in shared for pair in part],
            self.ROW_MEASURE: [(gap, [row]) for row, gap in row_gaps.items()],
        }
        self._refuse_non_finite(measured, step, first_step)
        # DeepSpeed 0.19.8, ZeRO-1 and 3: a step whose gradient or norm is not finite is skipped, without a word, and
        # the norm is then infinite on every rank.
        grad_norm = self.policy.step(learning_rate) if plan.teaches else 0.0
        measured = {"the gradient norm, with a finite loss,": [(grad_norm, list(row_gaps))]}
        self._refuse_non_finite(measured, step, first_step)
        metrics = metric_values(merge_metrics(part for part, _, _ in shared))
        metrics |= {"grad_norm": grad_norm, "learning_rate": learning_rate, "skipped": float(not plan.teaches)}
        return Update(metrics, row_gaps)

    def _loss(self, totals: StepTotals, batch: Batch, logprob_BT: Tensor, entropy_BT: Tensor) -> PolicyLoss:
        tensors = LossTensors(
            logprob_BT,
            batch.old_logprob_BT,
            batch.advantage_B,
            batch.mask_BT,
            sampler_logprob_BT=batch.sampler_logprob_BT,
            ref_logprob_BT=batch.ref_logprob_BT,
            entropy_BT=entropy_BT,
        )
        if self.loss.own_loss() is None:
            return policy_loss(tensors, self.loss, totals)
        with distributed.together("computing the loss"):  # the user's own may raise, on one rank alone
            loss = policy_loss(tensors, self.loss, totals)
        return loss

    def _refuse_non_finite(
        self, measured: Mapping[str, list[tuple[float, list[int]]]], step: int, first_step: int
    ) -> None:
        """measured: by its name, each value with its rows. The same on every rank, and so is the end."""
        told = []
        for what, values in measured.items():
            bad = sorted((sorted(rows), value) for value, rows in values if not math.isfinite(value))
            if bad:
                places = " and ".join(f"{value} in {_named(rows)}" for rows, value in bad[:NUM_TOLD])
                more = f" and in {len(bad) - NUM_TOLD} more places" if len(bad) > NUM_TOLD else ""
                told.append(f"{what} is {places}{more}")
        if told:
            raise UserError(
                f"step {step}: {'; '.join(told)}, counted from 0 {self.ROWS.format(first_step=first_step)}. The step "
                f"was not taken; everything up to it is kept. {self.WAY_OUT}"
            )

    def _with_old(self, plan: StepPlan) -> StepPlan:
        micros, entropies = [], []
        for micro in plan.micro_batches:
            logprob_BT, entropy_BT = self._frozen_logprobs(self.policy, micro)
            micros.append(_with(micro, old_logprob_BT=logprob_BT))
            entropies.append(entropy_BT[micro.batch.mask_BT])
        totals = plan.totals
        if self.loss.top_entropy_quantile < 1:
            entropy_N = torch.cat([part for parts in distributed.gather(entropies) for part in parts])
            threshold = entropy_quantile(entropy_N, torch.ones_like(entropy_N), self.loss.top_entropy_quantile)
            totals = dataclasses.replace(totals, entropy_threshold=threshold)
        return dataclasses.replace(plan, micro_batches=micros, totals=totals)

    def _with_reference(self, plan: StepPlan) -> StepPlan:
        assert self.reference is not None
        micros = [
            _with(micro, ref_logprob_BT=self._frozen_logprobs(self.reference, micro)[0]) for micro in plan.micro_batches
        ]
        return dataclasses.replace(plan, micro_batches=micros)

    @torch.no_grad()
    def _frozen_logprobs(self, policy: Policy, micro: MicroBatch) -> tuple[Tensor, Tensor]:
        logprob_BT, entropy_BT = policy.logprobs(micro.batch.to(policy.world.device), micro.num_chunks)
        return logprob_BT.cpu(), entropy_BT.cpu()


def _named(rows: list[int]) -> str:
    if len(rows) > 2 and rows == list(range(rows[0], rows[-1] + 1)):
        return f"rows {rows[0]} to {rows[-1]}"
    return ("row " if len(rows) == 1 else "rows ") + ", ".join(map(str, rows))


def _with(micro: MicroBatch, **tensors: Tensor) -> MicroBatch:
    return dataclasses.replace(micro, batch=dataclasses.replace(micro.batch, **tensors))


def _row_gaps(batch: Batch, old_logprob_BT: Tensor) -> Tensor:
    gap_BT = (old_logprob_BT - batch.sampler_logprob_BT).abs().masked_fill(~batch.mask_BT, 0.0)
    return gap_BT.sum(1) / batch.mask_BT.sum(1).clamp(min=1)


def _on_cpu(metrics: LossMetrics) -> LossMetrics:
    return LossMetrics(
        {key: value.cpu() for key, value in metrics.sums.items()},
        {key: value.cpu() for key, value in metrics.maxima.items()},
    )

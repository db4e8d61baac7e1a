"""Supervised fine-tuning on the loop of `loop.py`. A step: rows -> batch -> log-probs, loss, backward -> write down.

No vLLM engine is started, and no task model is asked. The update is GRPO's own (`update.py`) with another loss.
"""

import time
from collections.abc import Sequence

import torch
from torch import Tensor

from prewrite.algorithm.batching import Batch, collate_rows
from prewrite.algorithm.losses import PolicyLoss, StepTotals, imitation_loss
from prewrite.config import LossSettings
from prewrite.engine import distributed
from prewrite.report import try_report
from prewrite.report.folder import read_folder
from prewrite.reporting.console import Console
from prewrite.training.callbacks import Callback
from prewrite.training.engines import Engines
from prewrite.training.loop import Loop
from prewrite.training.progress import Progress, row_at
from prewrite.training.schedule import total_steps
from prewrite.training.sft_data import SFTStage
from prewrite.training.step_metrics import gpu_memory_peak
from prewrite.training.update import Updater
from prewrite.types import Rollout, TokenRow


class SFTUpdater(Updater):
    """`Updater` with the loss of imitation."""

    ROW_MEASURE = "the row's own loss"
    ROWS = "in the step's rows"
    WAY_OUT = (
        "Weights that ran away look like that: lower training.learning_rate or max_grad_norm, or set policy.dtype "
        "float32"
    )

    def _loss(self, totals: StepTotals, batch: Batch, logprob_BT: Tensor, entropy_BT: Tensor) -> PolicyLoss:
        return imitation_loss(logprob_BT, entropy_BT, batch.mask_BT, totals)


class SFTTrainer(Loop):
    """Trains on the rows of a stage."""

    def __init__(self, stage: SFTStage, engines: Engines, progress: Progress, callbacks: Sequence[Callback] = ()):
        config = stage.config
        self.stage, self.rows_per_step = stage, config.rollouts_per_step(engines.world.size)
        steps = total_steps(config, len(stage.train), self.rows_per_step)
        super().__init__(config, engines, progress, steps, callbacks)
        self.updater = SFTUpdater(
            engines.policy,
            None,
            LossSettings(),
            config.training,
            max_completion_length=config.sft.max_length,
            rollouts_per_step=self.rows_per_step,
        )
        self.held_out = self.updater.plan(self._batch(stage.held_out), range(len(stage.held_out)))

    def _begin(self, console: Console) -> None:
        console.say(self.stage.outlook(self.world.size))

    @torch.no_grad()
    def _look(self) -> dict[str, float]:
        """The held-out rows' loss: the mean of -logprob over their trained tokens."""
        policy, total = self.engines.policy, 0.0
        policy.model.eval()
        for micro in self.held_out.micro_batches:
            logprob_BT, _ = policy.logprobs(micro.batch.to(self.world.device), micro.num_chunks)
            total -= float(logprob_BT.sum(dtype=torch.float64))
        policy.model.train()
        return {"dev_loss": sum(distributed.gather(total)) / self.held_out.totals.num_tokens}

    def _train_on_batch(self, console: Console) -> tuple[Sequence[Rollout], str]:
        started, self.seconds = time.perf_counter(), {}
        progress, train = self.progress, self.stage.train
        places = range(progress.place, progress.place + self.rows_per_step)
        batch = self._batch([train[row_at(place, len(train), self.config.seed)] for place in places])
        self.state.first_step = progress.step + 1
        with self._clock("training"):
            (update,) = self.updater.updates(batch, self._learning_rate, self.state.first_step)
        progress.step += 1
        progress.place = places.stop
        metrics = self._place() | {"epoch": progress.place / len(train)} | update.metrics | gpu_memory_peak()
        metrics["tokens_per_second/training"] = batch.num_positions / max(self.seconds["training"], 1e-9)
        over = self._why_over()
        looks = bool(over) or self.state.due(self.config.selection.eval_steps)
        if looks:
            with self._clock("dev"):
                metrics |= self._look()
        self._write_down(metrics, console, started)
        if looks and self.engines.journal is not None:
            try_report(self.engines.journal.folder)
        return (), over

    def _summary(self) -> str:
        """The held-out loss before and after, a start before a resume included."""
        journal = self.engines.journal
        if journal is None:
            return ""
        _, losses = read_folder(journal.folder).series("dev_loss")
        told = f"loss of {len(self.stage.held_out)} held-out rows: {losses[0]:.4f} before, {losses[-1]:.4f} after"
        checkpoint = journal.folder / "checkpoints" / f"step_{self.progress.step:06d}"
        if self.config.policy.lora:
            return f"{told}\nGRPO starts from it merged: python -m prewrite.export {checkpoint} --merge --out DIR"
        return f"{told}\nGRPO starts from it with --set policy.model={checkpoint}"

    def _batch(self, rows: Sequence[TokenRow]) -> Batch:
        return collate_rows(rows, pad_token_id=self.engines.tokenizer.pad_token_id or 0)

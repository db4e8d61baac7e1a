"""Where else a run can be watched."""

from typing import Literal

from prewrite.config.base import Count, Section


class TrackingSettings(Section):
    """Mirrors of the run folder, which stays the truth (docs/metrics.md)."""

    report_to: list[Literal["tensorboard", "wandb"]] = []
    """TensorBoard (a folder `tensorboard` in the run folder), W&B (WANDB_MODE=offline: a folder `wandb` there)"""
    project: str = "prewrite"
    """W&B's project"""
    group: str | None = None
    """W&B's group of runs, as the seeds of one experiment"""
    rollout_rows: Count = 8
    """rollouts of each batch in the mirrors' table, those with the highest rewards; 0 = no table"""

"""Supervised fine-tuning: whose answers the policy imitates."""

from collections.abc import Iterator

from prewrite.config.base import Positive, Section
from prewrite.config.data import HubSettings


class SFTSettings(Section):
    """What the policy imitates where `method` is sft: rows of a file, of the hub, of an earlier run, or `data.tasks`."""

    data: str | None = None
    """JSONL, CSV, parquet or a saved `datasets` folder, with `messages`, or with `prompt` and `completion`; or a run
    folder, whose best rewrites are imitated"""
    hub: HubSettings | None = None
    """such rows on the hub: {"dataset": NAME, "config", "split": "train", "test_split", "revision"}; those of
    test_split are held out"""
    eval_data: str | None = None
    """held-out rows, as `data`; null = those of hub.test_split, or data.dev_size rows cut off by seed"""
    completion: str = "{solution}"
    """of `data.tasks`: what is imitated of an example, with {solution} and {answer} in place of its own"""
    max_length: Positive = 1024
    """tokens of a row, its request included; `data.too_long` says what becomes of longer ones"""
    top_rewrites: Positive = 4
    """of a run folder: the best so many rewrites of each instruction"""

    def faults(self) -> Iterator[str]:
        """One set of held-out rows."""
        if self.hub and self.hub.test_split and self.eval_data:
            yield "`hub.test_split` and `eval_data` both say what is held out: one of the two"

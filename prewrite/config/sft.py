"""Supervised fine-tuning."""

from prewrite.config.base import Positive, Section


class SFTSettings(Section):
    """How the policy imitates rows, where `method` is sft; the rows are `data.chats`, `data.hub` or `data.tasks`."""

    completion: str = "{solution}"
    """of `data.tasks`: what is imitated of an example, with {solution} and {answer} in place of its own"""
    max_length: Positive = 1024
    """tokens of a row, its request included; `data.too_long` says what becomes of longer ones"""
    top_rewrites: Positive = 4
    """of a run folder: the best so many rewrites of each instruction"""

"""Reward functions as TRL's users have them, by hand: texts, messages, columns, helpers."""

import re


def long_ones(completions, **kwargs):
    """Texts."""
    return [float(len(completion)) for completion in completions]


def ends_with_answer(completions, answer, **kwargs):
    """Messages and a column."""
    contents = [completion[0]["content"] for completion in completions]
    return [1.0 if content.endswith(gold) else 0.0 for content, gold in zip(contents, answer, strict=True)]


def _contents(completions):
    return [completion[-1]["content"] for completion in completions]


def tagged_by_a_helper(prompts, completions, completion_ids=None, **kwargs):
    """Messages that a helper reads; the prompt as messages too."""
    assert all(prompt[-1]["role"] == "user" for prompt in prompts)
    return [len(re.findall("<think>", text)) / 1 for text in _contents(completions)]


def only_math(completions, kind):
    """No **kwargs; None where the row is not its own."""
    return [None if one != "math" else len(text) / 10 for text, one in zip(completions, kind, strict=True)]


def of_instructions(completions, instruction, dataset_name):
    """Columns of an instruction row."""
    return [float(old in new) for new, old in zip(completions, instruction, strict=True)]


def looks_at_the_first(completions, **kwargs):
    """As TRL's documentation does: fails on an empty list."""
    return [1.0] * len(completions) if isinstance(completions[0], str) else [2.0] * len(completions)


async def later(completions, **kwargs):
    return [1.0] * len(completions)


def none_at_all(completions, **kwargs):
    return None


def breaks(completions, **kwargs):
    return [completion["content"] for completion in completions]

"""Reward functions as TRL's users have them, by hand: texts, messages, columns, helpers."""

import functools
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


def of_their_data(prompts, completions, answer, solution, type, source="none", **kwargs):
    """All that a solving row has: the gold, the worked solution, and columns of the user's own."""
    assert all(gold in whole for gold, whole in zip(answer, solution, strict=True))
    assert set(type) == {"Algebra"}
    assert kwargs.keys() >= {"level", "id", "completion_ids"}
    return [float(gold in text) for gold, text in zip(answer, completions, strict=True)]


def correctness(prompts, completions, answer, **kwargs):
    """A notebook's: 2 for the gold between tags."""
    assert prompts[0][-1]["role"] == "user"
    said = [completion[0]["content"].split("<answer>")[-1].split("</answer>")[0] for completion in completions]
    return [2.0 if text.strip() == gold else 0.0 for text, gold in zip(said, answer, strict=True)]


def whole_number(completions, **kwargs):
    """A notebook's: half a point."""
    said = [completion[0]["content"].split("<answer>")[-1].split("</answer>")[0] for completion in completions]
    return [0.5 if text.strip().isdigit() else 0.0 for text in said]


def strict_form(completions, **kwargs):
    """A notebook's: half a point."""
    pattern = r"<reasoning>\n.*?\n</reasoning>\n<answer>\n.*?\n</answer>\n?"
    return [0.5 if re.fullmatch(pattern, one[0]["content"], re.DOTALL) else 0.0 for one in completions]


def looks_at_the_first(completions, **kwargs):
    """As TRL's documentation does: fails on an empty list."""
    return [1.0] * len(completions) if isinstance(completions[0], str) else [2.0] * len(completions)


async def later(completions, **kwargs):
    return [1.0] * len(completions)


def none_at_all(completions, **kwargs):
    return None


def breaks(completions, **kwargs):
    return [completion["content"] for completion in completions]


in_part = functools.partial(long_ones, scale=2)

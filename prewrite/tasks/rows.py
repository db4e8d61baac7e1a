"""Instruction rows and their own examples: those of a row's subject and level, held out for it and trained on."""

import re
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache

from prewrite.errors import UserError
from prewrite.tasks.base import Task
from prewrite.types import Example, InstructionRow

LEAST_DEV = 50  # examples of a subject or level held out, below which rewrites cannot be told apart


def row_names(rows: Sequence[InstructionRow]) -> list[str]:
    """A name for each row: its task's, with subject and level where it has them, and a number where that repeats."""
    names = ["/".join(part for part in (row.dataset_name, row.subject, row.level) if part) for row in rows]
    total, seen = Counter(names), Counter[str]()
    numbered = []
    for name in names:
        seen[name] += 1
        numbered.append(f"{name}#{seen[name]}" if total[name] > 1 else name)
    return numbered


def own_examples(row: InstructionRow, examples: Sequence[Example]) -> Sequence[Example]:
    """The examples of the row's subject and level, all where it names none: what it is judged on.

    Spelling does not count: "Counting & Probability" is counting_and_probability, "Level 5" is 5.
    """
    if is_whole(row):
        return examples
    subject, level = _bare(row.subject), _bare(row.level)
    own = [example for example in examples if subject in (None, _bare(example.subject))]
    return [example for example in own if level in (None, _bare(example.level))]


def unknown_tags(row: InstructionRow, task: Task, examples: Sequence[Example]) -> tuple[list[str], list[str]]:
    """(the row's tags that are no column of the examples, the columns)."""
    known = list(dict.fromkeys(column for example in examples for column in example.texts)) or list(task.fields)
    return [tag for tag in row.tags if tag not in known], known


def is_whole(row: InstructionRow) -> bool:
    """Whether all of a task's examples are the row's own."""
    return row.subject is None and row.level is None


def cut_dev(
    rows: Sequence[InstructionRow], pool: Sequence[Example], *, dev_size: int, least_train: int
) -> tuple[list[Example], list[Example]]:
    """(train, dev) of a task: of each row's own examples the first `dev_size` of the shuffled pool are dev; of a
    subject or level at most half, or LEAST_DEV.

    least_train: train examples that a row cannot do without. Raises UserError, with every row's fault, where a row has
    too few examples, and says what to set.
    """
    held_out: set[str] = set()
    faults = []
    for name, row in zip(row_names(rows), rows, strict=True):
        own = own_examples(row, pool)
        most = dev_size if is_whole(row) else max(len(own) // 2, min(LEAST_DEV, len(own) - least_train), 0)
        size = min(dev_size, most)
        held_out |= {example.id for example in own[:size]}
        if fault := _too_few(name, row, pool, len(own), size, dev_size, least_train):
            faults.append(fault)
    if faults:
        raise UserError("\n".join(faults))
    train = [example for example in pool if example.id not in held_out]
    return train, [example for example in pool if example.id in held_out]


def _too_few(
    name: str, row: InstructionRow, pool: Sequence[Example], own: int, size: int, dev_size: int, least_train: int
) -> str:
    """The fault of a row that has too few examples; "" where they are enough."""
    if not own:
        column = "subject" if row.subject is not None else "level"
        known = sorted({value for example in pool if (value := getattr(example, column))})
        theirs = f"Their {column}s are {', '.join(known) or 'not known'}."
        return f"{name}: none of the {len(pool)} train examples is of it. {theirs}"
    if not is_whole(row) and size < min(LEAST_DEV, dev_size):
        return (
            f"{name}: {own} train examples, of which {size} could be held out (dev): with fewer than {LEAST_DEV} "
            "rewrites cannot be told apart. Leave its level or subject out, or bring more examples; for a mere try set "
            f"data.dev_size to {max(1, size)}."
        )
    if own - size >= least_train:
        return ""
    fitting = max(1, min(own // 2, own - least_train))
    also = "" if own > least_train else f", and reward.examples_per_rewrite to {max(1, own - fitting)}"
    wanted = f"data.dev_size {dev_size} beside reward.examples_per_rewrite {least_train}"
    way_out = f"set data.dev_size to {fitting}{also}, or bring more examples"
    return f"{name}: {own} different train examples are too few for {wanted}: {way_out}."


@lru_cache(maxsize=4096)
def _bare(name: str | None) -> str | None:
    if name is None:
        return None
    return re.sub(r"[\W_]", "", name.casefold().replace("&", "and").removeprefix("level "))

"""Solving's held-out looks as one table: every reward before, during and after training."""

from collections.abc import Mapping, Sequence
from typing import Any

Look = Mapping[str, Any]


def look_rows(looks: Sequence[Look]) -> list[tuple[str, list[str], list[tuple[str, list[float | None]]]]]:
    """(title, names of the rewards, (step, their means) of each look) for each task and way of sampling.

    looks: lines of dev.jsonl with `step`, `task`, `sampling`, `n` and `rewards`; others are passed over. What is no
    number among the means is None.
    """
    kept = [look for look in looks if isinstance(look.get("rewards"), Mapping)]
    found = []
    for title in dict.fromkeys(map(_title, kept)):
        own = [look for look in kept if _title(look) == title]
        names = list(dict.fromkeys(name for look in own for name in look["rewards"]))
        rows = [(str(look.get("step")), [_number(look["rewards"].get(name)) for name in names]) for look in own]
        found.append((title, names, rows))
    return found


def look_table(looks: Sequence[Look]) -> str:
    """`look_rows` in lines of text; a line "gain" below each table is the last look less the first."""
    lines = []
    for title, names, rows in look_rows(looks):
        first, last = rows[0][1], rows[-1][1]
        gains = [None if a is None or b is None else b - a for a, b in zip(first, last, strict=True)]
        lines.append(f"{title}: the mean of each reward")
        lines.append("  ".join([f"{'step':>6}", *(f"{name:>6}" for name in names)]))
        for label, values in [*rows, ("gain", gains)]:
            sign = "+" if label == "gain" else ""
            shown = ["-" if value is None else format(value, f"{sign}.3f") for value in values]
            cells = [cell.rjust(max(6, len(name))) for name, cell in zip(names, shown, strict=True)]
            lines.append("  ".join([f"{label:>6}", *cells]))
    return "\n".join(lines)


def _title(look: Look) -> str:
    return f"{look.get('task')}, {look.get('n')} {look.get('sampling')} answers to held-out problems"


def _number(value: Any) -> float | None:
    return value if isinstance(value, int | float) else None

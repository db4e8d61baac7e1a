"""What a report shows of wins and losses: the examples that only one of initial and best got right."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from prewrite.report.folder import Line, RunFolder, number, text

SHOWN_BOUTS = 4


@dataclass(frozen=True)
class Bout:
    """An example that only one of initial and best got right. others: share of the other instructions that did."""

    where: str
    text: str
    gold: str
    initial: str
    best: str
    others: float | None


def bouts(run: RunFolder, row: str) -> dict[str, list[Bout]]:
    """The most telling wins and losses of the best, by "won" and "lost": of the test first, then of the race."""
    places = {"test": 0, "race": 1}
    duels = [duel for duel in run.wins_losses if duel.get("row") == row and duel.get("where") in places]
    return _bouts(sorted(duels, key=lambda duel: places[duel["where"]]))


def bouts_of(evaluation: Line) -> dict[str, list[Bout]]:
    """Those of an evaluation on the test split."""
    duel = evaluation.get("duel")
    return _bouts([duel] if isinstance(duel, dict) else [])


def _bouts(duels: Sequence[Line]) -> dict[str, list[Bout]]:
    found: dict[str, list[Bout]] = {}
    for kind in ("won", "lost"):
        own = [duel for duel in duels if isinstance(duel.get(kind), list)]
        lines = [(duel, line) for duel in own for line in duel[kind][:SHOWN_BOUTS]]
        kept = [_bout(duel, line) for duel, line in lines if isinstance(line, dict)]
        found |= {kind: kept[:SHOWN_BOUTS]} if kept else {}
    return found


def _bout(duel: Line, line: Line) -> Bout:
    gold, initial, best = (_told(line.get(key)) for key in ("gold", "initial", "best"))
    others = number(line.get("others_right"))
    return Bout(text(duel.get("where")), text(line.get("text")), gold, initial, best, others)


def _told(value: Any) -> str:
    """An answer or a gold as it is shown."""
    if isinstance(value, list):
        return " or ".join(map(str, value))
    return "no answer" if value is None else str(value)

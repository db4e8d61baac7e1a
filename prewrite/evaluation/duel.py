"""Where two instructions differ: the examples that only one of them got right, the most telling first."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from prewrite.types import Verdict

SHOWN = 3
KEPT = 50
_CHARACTERS = 300


@dataclass(frozen=True)
class Bout:
    """An example that one of two got right. text: what the query shows of it; best, initial: what each answered.

    others_right: share of the other instructions that got it right; None where there are none.
    """

    example_id: str
    text: str
    gold: Any
    best: str | None
    initial: str | None
    others_right: float | None


@dataclass(frozen=True)
class Duel:
    """The examples that the best won and lost against the initial instruction, at most KEPT of each.

    First what most other instructions got right: a win shows there what the initial instruction lacks, a loss what the
    best alone does wrong.
    """

    num_won: int
    num_lost: int
    won: tuple[Bout, ...]
    lost: tuple[Bout, ...]

    def lines(self) -> list[str]:
        """The first of both for a console."""
        told: list[str] = []
        for title, bouts, count in (("won", self.won, self.num_won), ("lost", self.lost, self.num_lost)):
            if bouts:
                shown = f", {SHOWN} of them" if count > SHOWN else ""
                told.append(f"{title} by rank 1 against the initial instruction: {count}{shown}")
            for bout in bouts[:SHOWN]:
                told.append(f"  {bout.example_id}: {_short(bout.text)}")
                said = f"initial {_short(bout.initial)}; rank 1 {_short(bout.best)}"
                told.append(f"    gold {_short(bout.gold)}; {said}")
        return [*told, ""] if told else []


def make_duel(
    best: Sequence[Verdict], initial: Sequence[Verdict], others: Sequence[Sequence[Verdict]], texts: Mapping[str, str]
) -> Duel:
    """best, initial: verdicts on the same examples, in one order. others: of further instructions, in the same order or
    with other examples. Of several samples the first counts."""
    right: dict[str, list[bool]] = {}
    for verdicts in others:
        for verdict in verdicts:
            if verdict.correct is not None:
                right.setdefault(verdict.example_id, []).append(verdict.correct)
    won: dict[str, Bout] = {}
    lost: dict[str, Bout] = {}
    seen: set[str] = set()
    for ours, theirs in zip(best, initial, strict=True):
        if ours.example_id in seen or None in (ours.correct, theirs.correct):
            continue
        seen.add(ours.example_id)
        if ours.correct == theirs.correct:
            continue
        known = right.get(ours.example_id)
        share = sum(known) / len(known) if known else None
        text = texts.get(ours.example_id, "")
        bout = Bout(ours.example_id, text, ours.target, ours.prediction, theirs.prediction, share)
        (won if ours.correct else lost)[ours.example_id] = bout
    return Duel(len(won), len(lost), _telling(won.values()), _telling(lost.values()))


def _telling(bouts: Any) -> tuple[Bout, ...]:
    return tuple(sorted(bouts, key=lambda bout: (-(bout.others_right or 0.0), len(bout.text))))[:KEPT]


def _short(value: Any) -> str:
    text = " ".join(str(value).split())
    return text if len(text) <= _CHARACTERS else f"{text[:_CHARACTERS]} …"

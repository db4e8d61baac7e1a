"""What there is to tell where a prompts file has several rows, each scored on its own task, subject and level."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from prewrite.evaluation.report import Report, ReportRow, cost_line, p_shown, percent, won_lost, wrapped
from prewrite.evaluation.summary import compare
from prewrite.terminal import table_lines
from prewrite.types import Evaluation

_HEAD = ("row", "n", "initial", "best", "won/lost", "p")


@dataclass(frozen=True)
class RowsReport:
    """names: of the rows; reports: of each, whose "initial" and "rank 1" are compared, the initial one alone where
    nothing else is known. cost: of all."""

    names: Sequence[str]
    reports: Sequence[Report]
    cost: Mapping[str, float]

    def text(self) -> str:
        """A line a row, the means, and the texts of the instructions."""
        lines = [f"{name}: {value}" for name, value in self.reports[0].facts.items()]
        lines += [f"note: {note}" for note in dict.fromkeys(note for report in self.reports for note in report.notes)]
        if any(report.is_limited for report in self.reports):
            lines.append("note: ONLY THE FIRST test examples of each row (--limit)")
        lines += ["", *table_lines([_HEAD, *map(self._line, self.names, self.reports)]), ""]
        lines.append("scores: accuracy in percent with 95% intervals, on each row's own test examples")
        mean = self._mean()
        if mean is not None:
            test = "McNemar's exact p" if self.reports[0].rows[0].summary.samples == 1 else "a permutation test's p"
            scores = f"initial {100 * mean['initial']:.1f}, best {100 * mean['best']:.1f}"
            fought = f"over all examples {mean['wins']} won, {mean['losses']} lost"
            lines.append(f"- mean of {len(self.reports)} rows: {scores}; {fought}, {test} {mean['p_value']:.2g}")
        lines.append(cost_line(self.cost))
        for name, report in zip(self.names, self.reports, strict=True):
            lines += ["", f"{name}, {report.test_label}"]
            lines += report.rows[0].lines() + ([] if report.best is report.rows[0] else report.best.lines())
        return wrapped(lines)

    def as_json(self) -> dict[str, Any]:
        """Every row's whole report, and the means."""
        reports = [{"row": name} | one.as_json() for name, one in zip(self.names, self.reports, strict=True)]
        return {"mean": self._mean(), "cost": dict(self.cost), "reports": reports}

    def _line(self, name: str, report: Report) -> tuple[str, ...]:
        initial, best = report.rows[0], report.best
        test = best.against.get("initial")
        scores = (percent(initial.summary.accuracy), percent(best.summary.accuracy))
        return (name, str(initial.summary.n), *scores, won_lost(test), p_shown(test))

    def _mean(self) -> dict[str, Any] | None:
        """None where a row has no verdict."""
        pairs = [(report.rows[0], report.best) for report in self.reports]
        scores = [[row.summary.accuracy for row in pair] for pair in pairs]
        if any(score is None for pair in scores for score in pair):
            return None
        initial, best = ([score.value for score in column if score] for column in zip(*scores, strict=True))
        theirs, ours = (_together(column) for column in zip(*pairs, strict=True))
        test = compare(ours, theirs)
        means = {"initial": sum(initial) / len(initial), "best": sum(best) / len(best)}
        return means | {"wins": test.wins, "losses": test.losses, "p_value": test.p_value}


def _together(rows: Sequence[ReportRow]) -> list[Evaluation]:
    """The verdicts of all rows as one evaluation a sample."""
    return [
        Evaluation("", "", tuple(v for row in rows for v in row.verdicts[row.summary.n * k : row.summary.n * (k + 1)]))
        for k in range(rows[0].summary.samples)
    ]

"""An evaluation as a person reads it (a table within 120 columns, and what it does and does not show) and as JSON."""

import dataclasses
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from prewrite.evaluation.prompts import Candidate
from prewrite.evaluation.statistics import PairedTest, wilson_interval
from prewrite.evaluation.summary import Score, Summary, compare, compare_f1, summarise
from prewrite.tasks.base import Task
from prewrite.types import Evaluation, Verdict

WIDTH = 120
LEVEL = 0.05
SMALL_TEST = 200
NEARLY_ALWAYS = 0.95
LABELS_IN_TABLE = 4


@dataclass(frozen=True)
class ReportRow:
    """One instruction with its scores. role: "initial", "default" or "rank 1"; provenance: why it is here.

    against: paired tests against the baselines by their role, all of right answers; f1_against: of token F1.
    """

    role: str
    instruction: str
    provenance: str
    summary: Summary
    verdicts: tuple[Verdict, ...]
    against: dict[str, PairedTest]
    f1_against: dict[str, PairedTest]


@dataclass(frozen=True)
class Report:
    """What `evaluate.py` tells. rows: the baselines first ("initial" before all), then the candidates, best first.

    test_size: examples of the whole test split; the rows were scored on the first `n` of them where n is smaller.
    facts: where prompts, task model and settings come from, by name.
    """

    task: Task
    test_label: str
    test_size: int
    scoring: str
    facts: dict[str, str]
    notes: tuple[str, ...]
    rows: tuple[ReportRow, ...]

    @property
    def best(self) -> ReportRow:
        """The candidate that was ranked first before it was measured here; the initial one where there is none."""
        return next((row for row in self.rows if row.role == "rank 1"), self.rows[0])

    @property
    def is_limited(self) -> bool:
        return self.rows[0].summary.n < self.test_size

    def text(self) -> str:
        """Head, table, legend, findings, and the texts of the instructions."""
        n = self.rows[0].summary.n
        size = f"ONLY THE FIRST {n} of {self.test_size} examples" if self.is_limited else f"all {n} examples"
        facts = {"task": self.task.name, "test split": f"{self.test_label}, {size}", "scoring": self.scoring}
        lines = [f"{name}: {value}" for name, value in (facts | self.facts).items()]
        lines += [f"note: {note}" for note in self.notes]
        lines += ["", *_table(self.task, self.rows), "", *_legend(self.task, self.rows), ""]
        lines += [f"- {finding}" for finding in findings(self.task, self.rows)]
        lines.append("")
        for row in self.rows:
            lines.append(f"[{row.role}] ({row.provenance})")
            lines += [f"    {line}" for line in row.instruction.split("\n")]
        return "\n".join(
            wrapped for line in lines for wrapped in (textwrap.wrap(line, WIDTH, subsequent_indent="    ") or [""])
        )

    def as_json(self) -> dict[str, Any]:
        """Everything, verdicts included; scores and intervals are shares, not percent."""
        rows = [dataclasses.asdict(row) for row in self.rows]
        head = {
            "task": self.task.name,
            "labels": list(self.task.labels),
            "test_split": self.test_label,
            "test_size": self.test_size,
            "is_limited": self.is_limited,
            "scoring": self.scoring,
        }
        return head | self.facts | {"notes": list(self.notes), "findings": findings(self.task, self.rows), "rows": rows}


def make_rows(task: Task, by_role: Mapping[str, Candidate], evaluations: Sequence[Evaluation]) -> tuple[ReportRow, ...]:
    """The rows of a report: `evaluations` are those of the instructions in `by_role`, in its order, baselines first."""
    evaluation_of = dict(zip(by_role, evaluations, strict=True))
    baselines = [role for role in ("initial", "default") if role in by_role]
    return tuple(
        ReportRow(
            role=role,
            instruction=evaluation.instruction,
            provenance=by_role[role].provenance(),
            summary=summarise(task, evaluation),
            verdicts=evaluation.verdicts,
            against={other: compare(evaluation, evaluation_of[other]) for other in baselines if other != role},
            f1_against={
                other: compare_f1(evaluation, evaluation_of[other])
                for other in baselines
                if other != role and task.kind == "open_question"
            },
        )
        for role, evaluation in evaluation_of.items()
    )


def findings(task: Task, rows: Sequence[ReportRow]) -> list[str]:
    """What the numbers show and, with few examples or scores of zero, what they do not."""
    initial, others = rows[0], rows[1:]
    judged = initial.summary.n - initial.summary.failed
    tested = [(row, (row.f1_against or row.against)["initial"]) for row in others]
    better = [row.role for row, test in tested if test.p_value < LEVEL and test.wins > test.losses]
    worse = [row.role for row, test in tested if test.p_value < LEVEL and test.wins < test.losses]
    lines = []
    if better:
        lines.append(f"better than the initial instruction (p < {LEVEL}): {', '.join(better)}.")
    if worse:
        lines.append(f"worse than the initial instruction (p < {LEVEL}): {', '.join(worse)}.")
    if not better and not worse:
        lines.append(f"no instruction differs from the initial one at the {LEVEL:.0%} level.")
    if len(tested) > 1:
        lines.append(
            f"p is that of each row by itself: were all {len(tested)} no better, one would still pass {LEVEL} with a "
            f"chance of up to {min(1, LEVEL * len(tested)):.0%}. The ranks were given "
            "without these examples; taking another row for its score here would be choosing on the test."
        )
    if all(row.summary.accuracy is not None and row.summary.accuracy.value == 0 for row in rows):
        high = wilson_interval(0, judged).high
        lines.append(
            f"not one of the {judged} answers is right under any instruction: the true share may still be up to "
            f"{high:.1%}, and instructions cannot be told apart."
        )
    elif judged < SMALL_TEST:
        half = wilson_interval(judged // 2, 2 * (judged // 2)) if judged > 1 else None
        width = f"about {100 * (half.high - half.low) / 2:.0f} points either way" if half else "nothing"
        lines.append(f"{judged} examples tell little: a share near one half is known to {width}.")
    for row in rows:
        majority = row.summary.majority
        if majority is not None and majority[1] >= NEARLY_ALWAYS:
            lines.append(
                f"under {row.role} the answer is {majority[0]} in {majority[1]:.1%} of cases, whatever is asked."
            )
    if num_cut := sum(row.summary.num_cut for row in rows):
        lines.append(
            f"{num_cut} of the {sum(row.summary.n for row in rows)} answers were cut off at task_model.max_tokens: "
            "raise it where that comes before the result."
        )
    if any(row.summary.failed for row in rows):
        lines.append("failed examples have no verdict: they count neither as right nor as wrong, nor in p.")
    if task.kind == "classification" and len(task.labels) > LABELS_IN_TABLE:
        lines += [f"recall under {row.role}: {_recall(row.summary, named=True)}." for row in rows]
    return lines


def _table(task: Task, rows: Sequence[ReportRow]) -> list[str]:
    accuracy = "exact match" if task.kind == "open_question" else "accuracy"
    columns: dict[str, list[str]] = {
        "": [row.role for row in rows],
        "n": [str(row.summary.n) for row in rows],
        "failed": [str(row.summary.failed) for row in rows],
        accuracy: [percent(row.summary.accuracy) for row in rows],
    }
    if task.kind == "open_question":
        columns["F1"] = [percent(row.summary.f1) for row in rows]
    if task.kind == "classification":
        columns["macro-F1"] = [percent(row.summary.macro_f1) for row in rows]
        if len(task.labels) <= LABELS_IN_TABLE:
            columns["recall"] = [_recall(row.summary) for row in rows]
        columns["majority"] = [_majority(row.summary) for row in rows]
    columns["format"] = [_one_decimal(row.summary.format_compliance) for row in rows]
    columns["p"] = [_p(row.against.get("initial")) for row in rows]
    columns["won/lost"] = [_won_lost(row.against.get("initial")) for row in rows]
    if task.kind == "open_question":
        columns["p (F1)"] = [_p(row.f1_against.get("initial")) for row in rows]
    if any("default" in row.against for row in rows):
        columns["p default"] = [_p(row.against.get("default")) for row in rows]
    return table_lines([tuple(columns), *zip(*columns.values(), strict=True)])


def table_lines(table: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a table, its head first, with columns as wide as their widest cell."""
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in table]


def _legend(task: Task, rows: Sequence[ReportRow]) -> list[str]:
    parts = ["scores in percent, with 95% intervals"]
    if task.kind == "classification":
        if len(task.labels) <= LABELS_IN_TABLE:
            parts.append(f"recall: {' / '.join(task.labels)}")
        parts.append("majority: the label answered most often, and how often")
    parts.append("format: answers of the form asked for")
    parts.append("p, won/lost: right answers paired with the initial instruction's, McNemar's exact test")
    if task.kind == "open_question":
        parts.append("p (F1): the same for token F1, permutation test")
    if any("default" in row.against for row in rows):
        parts.append("p default: right answers paired with those of the task's default instruction")
    return ["; ".join(parts) + "."]


def percent(score: Score | None) -> str:
    """A score in percent with its interval."""
    if score is None:
        return "-"
    return f"{100 * score.value:.1f} [{100 * score.interval.low:.1f}, {100 * score.interval.high:.1f}]"


def _one_decimal(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f}"


def _recall(summary: Summary, *, named: bool = False) -> str:
    shares = {label: "-" if share is None else f"{100 * share:.0f}" for label, share in (summary.recall or {}).items()}
    return ", ".join(f"{label} {share}" for label, share in shares.items()) if named else "/".join(shares.values())


def _majority(summary: Summary) -> str:
    return "-" if summary.majority is None else f"{summary.majority[0]} {100 * summary.majority[1]:.0f}"


def _p(test: PairedTest | None) -> str:
    if test is None:
        return ""
    return "<0.0001" if test.p_value < 1e-4 else f"{test.p_value:.4f}"


def _won_lost(test: PairedTest | None) -> str:
    return "" if test is None else f"{test.wins}/{test.losses}"

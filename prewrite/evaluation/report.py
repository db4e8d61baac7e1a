"""An evaluation as a person reads it (a table within 120 columns, and what it does and does not show) and as JSON."""

import dataclasses
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from prewrite.evaluation.duel import Duel, make_duel
from prewrite.evaluation.prompts import Candidate
from prewrite.evaluation.statistics import PairedTest, holm, share_interval
from prewrite.evaluation.summary import Score, Summary, compare, compare_f1, summarise
from prewrite.tasks.base import Task
from prewrite.terminal import table_lines
from prewrite.types import Evaluation, Verdict

WIDTH = 120
LEVEL = 0.05
SMALL_TEST = 200
NEARLY_ALWAYS = 0.95
LABELS_IN_TABLE = 4


@dataclass(frozen=True)
class ReportRow:
    """One instruction with its scores. role: "initial", "default" or "rank 1"; provenance: why it is here.

    verdicts: sample after sample. against: paired tests against the baselines by their role, all of right answers;
    f1_against: of token F1.
    """

    role: str
    instruction: str
    provenance: str
    summary: Summary
    verdicts: tuple[Verdict, ...]
    against: dict[str, PairedTest]
    f1_against: dict[str, PairedTest]

    def lines(self) -> list[str]:
        """The instruction, with why it is here."""
        return [f"[{self.role}] ({self.provenance})", *(f"    {line}" for line in self.instruction.split("\n"))]


@dataclass(frozen=True)
class Report:
    """What `evaluate.py` tells. rows: the baselines first ("initial" before all), then the candidates, best first.

    test_size: examples of the whole test split; the rows were scored on the first `n` of them where n is smaller.
    facts: where prompts, task model and settings come from, by name. cost: what was asked for it.
    texts: what the query shows of each example, by its id.
    """

    task: Task
    test_label: str
    test_size: int
    scoring: str
    facts: dict[str, str]
    notes: tuple[str, ...]
    rows: tuple[ReportRow, ...]
    cost: Mapping[str, float] = field(default_factory=dict)
    texts: Mapping[str, str] = field(default_factory=dict)

    @property
    def best(self) -> ReportRow:
        """The candidate that was ranked first before it was measured here; the first baseline where there is none."""
        return next((row for row in self.rows if row.role == "rank 1"), self.rows[0])

    @property
    def is_limited(self) -> bool:
        return self.rows[0].summary.n < self.test_size

    @property
    def duel(self) -> Duel | None:
        """The first rank against the initial instruction; None where there is none."""
        if self.best is self.rows[0]:
            return None
        others = [row.verdicts for row in self.rows if row is not self.best and row.role != "initial"]
        return make_duel(self.best.verdicts, self.rows[0].verdicts, others, self.texts)

    def text(self) -> str:
        """Head, table, legend, findings, and the texts of the instructions."""
        n = self.rows[0].summary.n
        size = f"ONLY THE FIRST {n} of {self.test_size} examples" if self.is_limited else f"all {n} examples"
        facts = {"task": self.task.name, "test split": f"{self.test_label}, {size}", "scoring": self.scoring}
        lines = [f"{name}: {value}" for name, value in (facts | self.facts).items()]
        lines += [f"note: {note}" for note in self.notes]
        lines += ["", *_table(self.task, self.rows), ""]
        lines += [f"- {finding}" for finding in findings(self.task, self.rows)]
        if self.cost:
            lines.append(cost_line(self.cost))
        lines.append("")
        lines += self.duel.lines() if self.duel else []
        for row in self.rows:
            lines += row.lines()
        return wrapped(lines)

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
        told = {"notes": list(self.notes), "findings": findings(self.task, self.rows), "cost": dict(self.cost)}
        return head | self.facts | told | {"duel": dataclasses.asdict(self.duel) if self.duel else None, "rows": rows}


def wrapped(lines: Sequence[str]) -> str:
    """The lines as one text within the width of a page."""
    return "\n".join(textwrap.fill(line, WIDTH, subsequent_indent="    ") for line in lines)


def cost_line(cost: Mapping[str, float]) -> str:
    """What was asked, as `KeptAnswers.cost` counts it, what was kept, and the seconds it took."""
    return (
        "- cost: {calls:,.0f} calls ({kept:,.0f} more answers were kept from an earlier start), {prompt_tokens:,.0f} "
        "tokens in, {completion_tokens:,.0f} out, {seconds:,.0f} s."
    ).format(**cost)


def make_rows(task: Task, by_role: Mapping[str, Candidate], evaluations: Sequence[Evaluation]) -> tuple[ReportRow, ...]:
    """The rows of a report: `evaluations` are those of the instructions in `by_role`, in its order, baselines first;
    with K samples there are K of each, one after another."""
    samples = len(evaluations) // len(by_role)
    own = {role: evaluations[samples * i : samples * (i + 1)] for i, role in enumerate(by_role)}
    baselines = [role for role in ("initial", "default") if role in by_role]
    with_f1 = baselines if task.kind == "open_question" else []
    rows = [
        ReportRow(
            role=role,
            instruction=these[0].instruction,
            provenance=by_role[role].provenance(),
            summary=summarise(task, *these),
            verdicts=tuple(verdict for one in these for verdict in one.verdicts),
            against={other: compare(these, own[other]) for other in baselines if other != role},
            f1_against={other: compare_f1(these, own[other]) for other in with_f1 if other != role},
        )
        for role, these in own.items()
    ]
    for other in baselines:
        tested = [row for row in rows if other in row.against]
        for tests in ([row.against for row in tested], [row.f1_against for row in tested if row.f1_against]):
            for test, adjusted in zip(tests, holm([test[other].p_value for test in tests]), strict=True):
                test[other] = replace(test[other], adjusted=adjusted)
    return tuple(rows)


def findings(task: Task, rows: Sequence[ReportRow]) -> list[str]:
    """What the numbers show and, with few examples or scores of zero, what they do not."""
    initial, others = rows[0], rows[1:]
    judged = initial.summary.n - initial.summary.failed
    tested = [(row, (row.f1_against or row.against)["initial"]) for row in others]
    better = [row.role for row, test in tested if _p_of(test) < LEVEL and test.wins > test.losses]
    worse = [row.role for row, test in tested if _p_of(test) < LEVEL and test.wins < test.losses]
    lines = []
    for word, roles in (("better", better), ("worse", worse)):
        if roles:
            lines.append(f"{word} than the initial instruction (p < {LEVEL}): {', '.join(roles)}.")
    if tested and not better and not worse:
        lines.append(f"no instruction differs from the initial one at the {LEVEL:.0%} level.")
    if len(tested) > 1:
        lines.append(
            f"p is corrected for {len(tested)} tests (Holm): were none better, one would pass {LEVEL} with a chance of "
            f"at most {LEVEL:.0%}. The ranks were given without these examples; taking another row for its score here "
            "would be choosing on the test."
        )
    for row in rows:
        if row.summary.pass_at:
            shares = ", ".join(f"pass@{k} {percent(score)}" for k, score in row.summary.pass_at.items())
            lines.append(f"{row.role}, {row.summary.samples} answers to each example: {shares}.")
    if all(row.summary.accuracy is not None and row.summary.accuracy.value == 0 for row in rows):
        high = share_interval(0, judged).high
        zero = f"not one of the {judged} answers is right under any instruction"
        lines.append(f"{zero}: the true share may still be up to {high:.1%}, and instructions cannot be told apart.")
    elif judged < SMALL_TEST:
        half = share_interval(judged // 2, 2 * (judged // 2))
        width = f"about {50 * (half.high - half.low):.0f} points either way" if judged > 1 else "nothing"
        lines.append(f"{judged} examples tell little: a share near one half is known to {width}.")
    for row in rows:
        label, share = row.summary.majority or ("", 0.0)
        if share >= NEARLY_ALWAYS:
            lines.append(f"under {row.role} the answer is {label} in {share:.1%} of cases, whatever is asked.")
    total = sum(row.summary.n * row.summary.samples for row in rows)
    if num_cut := sum(row.summary.num_cut for row in rows):
        way_out = "raise it where that comes before the result"
        lines.append(f"{num_cut} of the {total} answers were cut off at task_model.max_tokens: {way_out}.")
    if any(row.summary.failed for row in rows):
        lines.append("failed examples have no verdict: they count neither as right nor as wrong, nor in p.")
    if task.kind == "classification" and len(task.labels) > LABELS_IN_TABLE:
        lines += [f"recall under {row.role}: {_recall(row.summary, named=True)}." for row in rows]
    return lines


def _table(task: Task, rows: Sequence[ReportRow]) -> list[str]:
    """A line a row, and what the columns are."""
    accuracy, samples = "exact match" if task.kind == "open_question" else "accuracy", rows[0].summary.samples
    legend = ["scores in percent, with 95% intervals"]
    columns: dict[str, list[str]] = {
        "": [row.role for row in rows],
        "n": [str(row.summary.n) for row in rows],
        "failed": [str(row.summary.failed) for row in rows],
        f"{accuracy}, mean of {samples}" if samples > 1 else accuracy: [percent(row.summary.accuracy) for row in rows],
    }
    if task.kind == "open_question":
        columns["F1"] = [percent(row.summary.f1) for row in rows]
    if task.kind == "classification":
        if samples == 1:
            columns["macro-F1"] = [percent(row.summary.macro_f1) for row in rows]
        if len(task.labels) <= LABELS_IN_TABLE:
            columns["recall"] = [_recall(row.summary) for row in rows]
            legend.append(f"recall: {' / '.join(task.labels)}")
        columns["majority"] = [_majority(row.summary) for row in rows]
        legend.append("majority: the label answered most often, and how often")
    columns["format"] = [_one_decimal(row.summary.format_compliance) for row in rows]
    legend.append("format: answers of the form asked for")
    if samples > 1:
        legend.append("the intervals are of examples, whose answers are alike")
    if rows[1:]:
        columns["p"] = [p_shown(row.against.get("initial")) for row in rows]
        columns["won/lost"] = [won_lost(row.against.get("initial")) for row in rows]
        test = "McNemar's exact test" if samples == 1 else "permutation test of the examples' means"
        corrected = ", corrected for their number by Holm" if rows[2:] else ""
        legend.append(f"p, won/lost: right answers paired with the initial instruction's, {test}{corrected}")
    if task.kind == "open_question" and rows[1:]:
        columns["p (F1)"] = [p_shown(row.f1_against.get("initial")) for row in rows]
        legend.append("p (F1): the same for token F1, permutation test")
    if any("default" in row.against for row in rows):
        columns["p default"] = [p_shown(row.against.get("default")) for row in rows]
        legend.append("p default: right answers paired with those of the task's default instruction")
    lines = table_lines([tuple(columns), *zip(*columns.values(), strict=True)])
    return [*lines, "", "; ".join(legend) + "."]


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


def p_shown(test: PairedTest | None) -> str:
    """A p-value as it counts: corrected where several were tested."""
    if test is None:
        return ""
    return "<0.0001" if _p_of(test) < 1e-4 else f"{_p_of(test):.4f}"


def _p_of(test: PairedTest) -> float:
    return test.p_value if test.adjusted is None else test.adjusted


def won_lost(test: PairedTest | None) -> str:
    """Wins and losses of a test."""
    return "" if test is None else f"{test.wins}/{test.losses}"

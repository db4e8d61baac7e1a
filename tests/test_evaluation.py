"""Scores of an instruction from its verdicts, and what the report says of them."""

import dataclasses
import json

import pytest

from prewrite.evaluation.prompts import Candidate
from prewrite.evaluation.report import Report, findings, make_rows
from prewrite.evaluation.summary import compare, compare_f1, summarise
from prewrite.tasks import TASKS, get_task
from prewrite.tasks.base import Task
from prewrite.types import Evaluation, Verdict

SST2 = get_task("sst2")


def labelled(pairs: list[tuple[str, str | None]], *, failed: int = 0, task: Task = SST2) -> Evaluation:
    verdicts = [
        Verdict(str(i), target, given, correct=target == given, well_formed=given is not None)
        for i, (target, given) in enumerate(pairs)
    ]
    verdicts += [Verdict(f"f{i}", pairs[0][0], None, correct=None, well_formed=False) for i in range(failed)]
    return Evaluation("An instruction.", task.name, tuple(verdicts))


def solved(right: list[bool | None], task_name: str = "aime24") -> Evaluation:
    verdicts = (Verdict(str(i), "1", "1" if r else "2", r, well_formed=True) for i, r in enumerate(right))
    return Evaluation("Solve it.", task_name, tuple(verdicts))


def report(task: Task, **evaluations: Evaluation) -> Report:
    by_role = {role.replace("_", " "): Candidate(role, "mean reward", 0.5, 2) for role in evaluations}
    rows = make_rows(task, by_role, list(evaluations.values()))
    n = rows[0].summary.n
    return Report(task, f"{task.name}_test", n, "free_text", {"ranking": "by dev score"}, (), rows)


def test_scores_of_a_classification_by_hand() -> None:
    # 4 positives: 3 found, 1 without a label; 2 negatives: 1 found, 1 called positive; 1 failed call
    pairs = [("positive", "positive")] * 3 + [("positive", None), ("negative", "negative"), ("negative", "positive")]
    summary = summarise(SST2, labelled(pairs, failed=1))
    assert (summary.n, summary.failed) == (7, 1)
    assert summary.accuracy is not None
    assert summary.accuracy.value == pytest.approx(4 / 6)
    assert summary.recall == {"negative": 1 / 2, "positive": 3 / 4}
    # F1 positive 2 * 3 / (4 + 4) = 3/4, negative 2 * 1 / (2 + 1) = 2/3
    assert summary.macro_f1 is not None
    assert summary.macro_f1.value == pytest.approx((3 / 4 + 2 / 3) / 2)
    assert summary.macro_f1.interval.low < summary.macro_f1.value < summary.macro_f1.interval.high
    assert summary.majority == ("positive", 4 / 6)
    assert summary.format_compliance == pytest.approx(5 / 6)


def test_no_label_can_be_the_majority_and_a_missing_class_has_no_recall() -> None:
    summary = summarise(SST2, labelled([("positive", None), ("positive", "maybe"), ("positive", "positive")]))
    assert summary.majority == ("no label", 2 / 3)
    assert summary.recall == {"negative": None, "positive": 1 / 3}


def test_without_a_verdict_there_is_no_score() -> None:
    summary = summarise(get_task("aime24"), solved([None, None]))
    assert (summary.n, summary.failed, summary.accuracy, summary.macro_f1) == (2, 2, None, None)


def test_open_questions_have_exact_match_and_f1() -> None:
    task = get_task("nq_open")
    verdicts = tuple(
        Verdict(str(i), ("a",), "a", correct=f1 == 1, well_formed=True, f1=f1) for i, f1 in enumerate([1.0, 0.5, 0.0])
    )
    first = Evaluation("x", task.name, verdicts)
    summary = summarise(task, first)
    assert summary.accuracy is not None
    assert summary.f1 is not None
    assert (summary.accuracy.value, summary.f1.value) == (pytest.approx(1 / 3), pytest.approx(0.5))
    assert summary.macro_f1 is None
    second = Evaluation("y", task.name, tuple(dataclasses.replace(v, correct=False, f1=0.0) for v in verdicts))
    assert (compare([first], [second]).wins, compare_f1([first], [second]).wins) == (1, 2)
    assert compare_f1([first], [second]).p_value == pytest.approx(0.5)  # 2 of the 4 sign patterns


def test_a_pair_has_the_same_examples() -> None:
    first, second = solved([True, False]), solved([True, False])
    with pytest.raises(AssertionError, match="same examples"):
        compare([first], [dataclasses.replace(second, verdicts=second.verdicts[::-1])])


def test_nothing_right_is_told_honestly() -> None:
    text = report(get_task("aime24"), initial=solved([False] * 30), rank_1=solved([False] * 30)).text()
    assert "0.0 [0.0, 11.6]" in text
    assert "no instruction differs from the initial one" in text
    assert "the true share may still be up to 11.6%" in text
    assert "macro-F1" not in text
    assert "recall" not in text
    assert "majority" not in text


def test_findings_name_the_better_and_the_worse() -> None:
    initial = solved([True] * 10 + [False] * 10)
    lines = findings(
        SST2, report(get_task("math-500"), initial=initial, rank_1=solved([True] * 20), rank_2=initial).rows
    )
    assert any(line.startswith("better than the initial instruction") and "rank 1." in line for line in lines)
    assert not any(line.startswith("worse") for line in lines)
    assert any("corrected for 2 tests (Holm)" in line for line in lines)
    # 6 wins of 6: p = 2 / 2^6 = 0.031, which is no proof among two
    six = solved([True] * 16 + [False] * 4)
    alone, two = (
        report(get_task("math-500"), initial=initial, **ranks)
        for ranks in ({"rank_1": six}, {"rank_1": six, "rank_2": initial})
    )
    assert any(line.startswith("better") for line in findings(SST2, alone.rows))
    assert not any(line.startswith("better") for line in findings(SST2, two.rows))
    assert "0.0625" in two.text()
    lines = findings(SST2, report(get_task("math-500"), initial=initial, rank_1=solved([False] * 20)).rows)
    assert any(line.startswith("worse than the initial instruction") for line in lines)


def test_one_label_always_is_told() -> None:
    pairs = [("positive", "negative"), ("negative", "negative")] * 20
    lines = findings(SST2, report(SST2, initial=labelled(pairs)).rows)
    assert any("under initial the answer is negative in 100.0%" in line for line in lines)


@pytest.mark.parametrize("task", TASKS.values(), ids=lambda task: task.name)
def test_every_task_fits_in_120_columns(task: Task) -> None:
    f1 = 0.5 if task.kind == "open_question" else None
    verdicts = tuple(
        Verdict(str(i), label, label, correct=i % 3 > 0, well_formed=True, f1=f1)
        for i in range(1200)
        for label in [(task.labels or ("1",))[-1]]
    )
    wrong = tuple(dataclasses.replace(verdict, correct=False) for verdict in verdicts)
    evaluations = {"initial": wrong, "default": wrong, "rank_1": verdicts, "rank_10": verdicts}
    made = report(task, **{role: Evaluation(f"{role} " * 40, task.name, v) for role, v in evaluations.items()})
    assert max(map(len, made.text().split("\n"))) <= 120
    rows = [line for line in made.text().split("\n") if line.startswith("rank 1 ")]
    assert len(rows) == 1, "a table row was wrapped"
    assert "<0.0001" in rows[0]


def test_answers_that_max_tokens_cut_off_are_told() -> None:
    whole = labelled([("positive", "positive"), ("negative", None)])
    cut = dataclasses.replace(whole, num_cut=2)
    assert "cut off" not in report(SST2, initial=whole).text()
    assert "2 of the 4 answers were cut off at task_model.max_tokens" in report(SST2, initial=whole, rank_1=cut).text()


def test_json_holds_the_verdicts() -> None:
    made = report(SST2, initial=labelled([("positive", "positive"), ("negative", None)]))
    read = json.loads(json.dumps(made.as_json(), allow_nan=False))
    assert read["rows"][0]["verdicts"][1] == {
        "example_id": "1",
        "target": "negative",
        "prediction": None,
        "correct": False,
        "well_formed": False,
        "f1": None,
        "share": None,
        "target_logprob": None,
    }
    assert read["rows"][0]["summary"]["accuracy"]["value"] == 0.5
    assert read["is_limited"] is False

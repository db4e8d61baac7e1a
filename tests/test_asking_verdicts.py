"""From answers to verdicts, by the task's kind."""

from dataclasses import replace

from prewrite.asking import MINI_BATCH
from prewrite.asking.verdicts import grade
from prewrite.config import CustomTaskSettings
from prewrite.tasks import get_task
from prewrite.tasks.own import task_from_settings
from prewrite.types import Answer, Example, InstructionRow


def verdicts_of(name, *golds_and_replies):
    task = get_task(name)
    examples = [Example(str(i), dict.fromkeys(task.fields, "?"), gold) for i, (gold, _) in enumerate(golds_and_replies)]
    answers = [
        Answer(None, error="timed out") if reply is None else Answer(reply, finish_reason="stop")
        for _, reply in golds_and_replies
    ]
    return grade(task, examples, answers)


def test_labels():
    verdicts = verdicts_of(
        "ag_news",
        ("Sci/Tech", "Sci/Tech"),
        ("Business", "<think>World? Sports?</think>It is Business."),
        ("World", "Sports"),
        ("World", "World or Sports"),
        ("World", None),
        ("World", "<think>World"),
    )
    assert [v.prediction for v in verdicts] == ["Sci/Tech", "Business", "Sports", None, None, None]
    assert [v.correct for v in verdicts] == [True, True, False, False, None, False]
    assert [v.well_formed for v in verdicts] == [True, True, True, False, False, False]
    assert [v.example_id for v in verdicts] == list("012345")


def test_math():
    verdicts = verdicts_of(
        "gsm8k",
        ("18", "so <<9*2=18>> it is \\boxed{18}"),
        ("18", "\\boxed{18} no, \\boxed{19}"),
        ("1002", "<think>\\boxed{1}</think>The answer is 1,002."),
        ("5", "I cannot tell."),
        ("5", None),
    )
    assert [v.correct for v in verdicts] == [True, False, True, False, None]
    assert [v.well_formed for v in verdicts] == [True, True, True, False, False]
    assert verdicts[1].prediction == "19"


def test_open_questions():
    verdicts = verdicts_of(
        "nq_open",
        (("14 December 1972 UTC", "December 1972"), "December, 1972"),
        (("Paris",), "It is in Paris"),
        (("Paris",), "Paris\nis the capital"),
        (("Paris",), None),
        (("Paris",), "  "),
    )
    assert [v.correct for v in verdicts] == [True, False, False, None, False]
    # "It is in Paris": 4 tokens, 1 in common with 1: 2 x 1 / (4 + 1)
    assert [v.f1 for v in verdicts] == [1.0, 0.4, 0.5, None, 0.0]
    assert [v.well_formed for v in verdicts] == [True, True, False, False, False]


def test_nothing_to_grade():
    assert grade(get_task("gsm8k"), [], []) == []


def test_golds_given_from_python_are_themselves():
    own = task_from_settings(CustomTaskSettings(
        name="own", kind="classification", fields={"text": "Text"}, target="label", train_file="a.jsonl",
        test_file="b.jsonl", default_instruction="Say it.", labels=["0", "1"],
    ))  # fmt: skip
    reply = [Answer("1")]
    for task in (own, replace(own, kind="open_question"), replace(own, kind="math")):
        (verdict,) = grade(task, [Example("a", {"text": "x"}, 1)], reply)  # type: ignore[arg-type]  # an int gold
        assert verdict.correct
    city = Example("a", {"text": "x"}, "New York")
    (verdict,) = grade(replace(own, kind="open_question"), [city], [Answer("new york")])
    assert verdict.correct


def test_a_mini_batch_is_a_run_of_the_pool_and_nothing_where_there_is_none():
    row, pool = InstructionRow("Say.", "sst2"), [Example(str(number), {"text": "t"}, "positive") for number in range(9)]
    drawn = [[int(example.id) for example in MINI_BATCH.draw(row, pool, 4, f"1/{draw}/0")] for draw in range(60)]
    assert all(own == [(own[0] + step) % 9 for step in range(4)] for own in drawn)
    assert {own[0] for own in drawn} == set(range(9)), "from any place, over the end too"
    assert len(MINI_BATCH.draw(row, pool, 20, "1/0/0")) == 9
    assert MINI_BATCH.draw(row, [], 4, "1/0/0") == [], (
        "rewards of the text alone beside rows that are asked by themselves"
    )

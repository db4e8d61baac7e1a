"""Neighbours of the public cases: the kind of a case counts, not the case."""

import json
from pathlib import Path

import pytest

from prewrite.grading import extract_math_answer, find_label, grade_math, is_correct_math, nq_exact_match, nq_f1
from prewrite.grading.expressions.words import number_in_words

PAIRS_FILE = Path(__file__).with_name("test_grading_pairs.jsonl")
"""Golds and answers in a box, with the verdict decided by hand."""


def test_pairs_of_golds_and_answers():
    pairs = [json.loads(line) for line in PAIRS_FILE.read_text(encoding="utf-8").splitlines()]
    verdicts = grade_math([(f"So it is $\\boxed{{{pair['answer']}}}$.", pair["gold"]) for pair in pairs], budget_s=120)
    assert [pair for pair, verdict in zip(pairs, verdicts, strict=True) if verdict is not pair["equal"]] == []


@pytest.mark.parametrize(
    ("completion", "answer"),
    [
        (r"\boxed{1} then \boxed{2}", "2"),
        (r"\boxed{\boxed{5}}", "5"),
        (r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
        (r"\boxed{7} and \boxed{} is the notation", "7"),
        (r"\boxed{7} but now \boxed{8", None),
        (r"\boxed 5$", "5"),
        (r"use \boxed notation: \boxed{3}", "3"),
        (r"\fbox{C}", "C"),
        (r"\boxed{42}</think> so \boxed{43}", "43"),
        (r"<think>\boxed{42}</think> That is all.", None),
        (r"<think>\boxed{42}", None),
        (r"<think>\boxed{1}</think><answer>\boxed{2}</answer>", "2"),
        ("Final answer: **73**", "73"),
        ("The answer is $\\frac{1}{2}$.", r"\frac{1}{2}"),
        ("Answer:\n\n42", "42"),
        ("#### 1,234", "1,234"),
        ("48 + 24 = <<48+24=72>>72 clips in 2 months.", "72"),
        ("The answer is 12 because 3 * 4 = 12", "12"),
        ("The answer is 36, which is 3 dozen.", "36"),
        ("The answer is not 12 but 13", "13"),
        ("answer: 7 (because 3 + 4 = 7)", "7"),
        ("The final answer is 1 million dollars.", "1 million dollars"),
        ("He earns 5 thousand dollars.", "5 thousand dollars"),
        ("... #### -5", "-5"),
        (r"\boxed{12}\boxed{}", "12"),
        (r"\boxed{12}}", "12"),
        ("She has 5 left.", "5"),
        ("I tried 42 ways.\nNone works.", None),
        ("42", "42"),
        ("", None),
    ],
)
def test_where_the_answer_stands(completion, answer):
    assert extract_math_answer(completion) == answer


@pytest.mark.parametrize("gold", ["", "  ", None, "forty two, see above", "see the attached solution", "\\frac{1}{"])
def test_an_unreadable_gold_gives_no_verdict(gold):
    assert is_correct_math(r"\boxed{42}", gold) is None


@pytest.mark.parametrize(
    ("gold", "completion", "expected"),
    [
        ("natalia sold 24 clips.\n#### 72", r"\boxed{72}", True),
        (r"so $x=8$ and the sum is \boxed{2}", r"\boxed{8}", False),
        ("D", "Here $\\boxed{E = mc^2}$.\n\nAnswer: D", True),
        ("D", "Here $\\boxed{C}$.\n\nAnswer: D", False),
        ("1,2", r"\boxed{1} or \boxed{2}", True),
        ("1,3", r"\boxed{1} or \boxed{2}", False),
        (42, r"\boxed{42}", True),
    ],
)
def test_golds_and_statements(gold, completion, expected):
    assert is_correct_math(completion, gold) is expected


SENTIMENT = ["negative", "positive"]
TOPICS = ["World", "Sports", "Business", "Sci/Tech"]


@pytest.mark.parametrize(
    ("text", "labels", "expected"),
    [
        ("Positive. There are negative words.", SENTIMENT, "positive"),
        ("The review is negative at first but positive", SENTIMENT, None),
        ("isn't positive", SENTIMENT, "negative"),
        ("It isn’t positive", SENTIMENT, "negative"),
        ("positive, not negative", SENTIMENT, "positive"),
        ("neither positive nor negative", SENTIMENT, None),
        ("Some negative words.\nAnswer: positive", SENTIMENT, "positive"),
        ("non-negative", SENTIMENT, None),
        ("\\boxed{positive}", SENTIMENT, "positive"),
        ("ＰＯＳＩＴＩＶＥ", SENTIMENT, "positive"),
        ("", SENTIMENT, None),
        ("Sci / Tech", TOPICS, "Sci/Tech"),
        ("Science", TOPICS, None),
        ("Worldwide", TOPICS, None),
        ("not entailment", ["entailment", "not_entailment"], "not_entailment"),
        ("not entailment", ["entailment", "contradiction", "neutral"], None),
        ("Yes, there is no limit.", ["no", "yes"], "yes"),
        ("Yes. No.", ["no", "yes"], None),
        ("Choice 2", ["choice1", "choice2"], "choice2"),
        ("choice12", ["choice1", "choice2"], None),
        ("1.5", ["1", "2"], None),
        ("2) 1 man fell", ["1", "2"], "2"),
        ("a man fell", ["A", "B"], None),
        ("_positive_", SENTIMENT, "positive"),
        ('{"label": "positive"}', SENTIMENT, "positive"),
        ("I don't think it is positive", SENTIMENT, "negative"),
        ("It is far from positive", SENTIMENT, "negative"),
        ("not very negative", SENTIMENT, "positive"),
        ("Not negative, but positive.", SENTIMENT, "positive"),
        ("There are no positive words", SENTIMENT, None),
        ("I cannot say whether it is positive", SENTIMENT, None),
        ("positive/negative", SENTIMENT, None),
        ("positive-ish", SENTIMENT, None),
        ("<answer>positive</answer> negative", SENTIMENT, "positive"),
        ("Not Sports", TOPICS, None),
        ("Sci-Tech", TOPICS, "Sci/Tech"),
        ("1. World", TOPICS, "World"),
        ("not no", ["no", "yes"], "yes"),
        ("No\nYes", ["no", "yes"], "yes"),
        ("yesterday", ["no", "yes"], None),
        ("choice_1", ["choice1", "choice2"], "choice1"),
        ("choice-2", ["choice1", "choice2"], "choice2"),
        ("A bird sat there", ["A", "B"], None),
        ("A is right.", ["A", "B"], "A"),
        ("I think A is right.", ["A", "B"], "A"),
        ("The answer is B", ["A", "B"], "B"),
    ],
)
def test_labels_in_free_text(text, labels, expected):
    assert find_label(text, labels) == expected


def test_open_questions():
    assert nq_exact_match("<think>Rome?</think> The  Paris!", ["paris"]) == 1.0
    assert nq_exact_match("à la carte", ["à la carte"]) == 1.0
    assert nq_exact_match("1914–1918", ["1914-1918"]) == 1.0
    assert nq_exact_match("theatre", ["atre"]) == 0.0
    assert nq_f1("a b", ["b", "b c d"]) == pytest.approx(1.0)
    assert nq_f1("x b", ["b c d"]) == pytest.approx(2 * 1 / (2 + 3))
    assert nq_exact_match("4 July 1776", ["July 4, 1776"]) == 0.0
    assert nq_f1("4 July 1776", ["July 4, 1776"]) == 1.0
    assert nq_exact_match("N.Y.C.", ["New York City", "NYC"]) == 1.0
    assert nq_exact_match("twenty", ["20"]) == 0.0
    assert nq_f1("b b", ["b"]) == pytest.approx(2 * 1 / (2 + 1))


@pytest.mark.parametrize(
    ("words", "value"),
    [
        ("zero", 0),
        ("twenty-four", 24),
        ("one hundred and five", 105),
        ("one thousand five", 1005),
        ("two million three hundred thousand", 2_300_000),
        ("million", 1_000_000),
        ("one two", None),
        ("twenty ten", None),
        ("five thousand million", None),
        ("zero five", None),
        ("five apples", None),
        ("and", None),
        ("", None),
    ],
)
def test_numbers_in_words(words, value):
    assert number_in_words(words) == value

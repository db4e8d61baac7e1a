"""The golds of every mathematical data file equal themselves, their solutions and other notations, not others."""

import json
import os
import random
import re
from fractions import Fraction
from pathlib import Path

import pytest
import sympy
from hypothesis import given, settings
from hypothesis import strategies as st

from prewrite.grading import grade_math, is_correct_math

FOLDER = Path(os.environ.get("PREWRITE_DATA") or Path(__file__).parents[2] / "shared" / "data")
needs_data = pytest.mark.skipif(
    not FOLDER.is_dir(), reason=f"no data files at {FOLDER}; set PREWRITE_DATA to the folder that has them"
)
COMPETITION = ["math_train", "math_12k_rest4500", "math500_test", "aime_1983_2023_train", "aime2024_test"]
WITHOUT_SOLUTIONS = ["aime2025_I_test", "aime2025_II_test"]
SCHOOL = ["gsm8k_train", "gsm8k_test"]
BUDGET_S = 300

SOLUTIONS_WITHOUT_THE_ANSWER = {
    "2023-I-13": "no box; the page ends in a copyright notice",
    "2023-II-6": "no box; the page ends in the probability 17/18, not in m + n",
}
"""AIME rows whose own solution nowhere states its answer as one."""
GSM8K_SOLUTIONS_ENDING_ELSEWHERE = 87
"""At most so many of 8,792 GSM8K solutions (without their `####` line) end on another number ("because 22 > 21")."""
EQUAL_IN_ANOTHER_NOTATION = {
    frozenset((r"810^\circ", "810")),
    frozenset(("10000", r"10,\!000")),
}
"""The random pairs of different texts that mean the same."""


def rows(*names):
    return [json.loads(line) for name in names for line in (FOLDER / f"{name}.jsonl").read_text("utf-8").splitlines()]


@needs_data
def test_every_gold_is_equal_to_itself_in_a_box():
    golds = {row["answer"] for row in rows(*COMPETITION, *WITHOUT_SOLUTIONS, *SCHOOL)}
    pairs = [(rf"Thus $\boxed{{{gold}}}$.", gold) for gold in golds]
    spaced = [(rf"$$\boxed{{ {gold} }}$$", gold + " ") for gold in golds]
    assert wrong(pairs + spaced) == []


def wrong(pairs, expected=True):
    verdicts = grade_math(pairs, BUDGET_S)
    return [pair for pair, verdict in zip(pairs, verdicts, strict=True) if verdict is not expected]


@needs_data
def test_every_solution_is_right():
    answered = [
        (row["solution"], row["answer"])
        for row in rows(*COMPETITION)
        if row.get("id") not in SOLUTIONS_WITHOUT_THE_ANSWER
    ]
    marked = [(f"{row['solution']}\n#### {row['answer']}", row["answer"]) for row in rows(*SCHOOL)]
    assert wrong(answered + marked) == []
    assert len(wrong([(row["solution"], row["answer"]) for row in rows(*SCHOOL)])) <= GSM8K_SOLUTIONS_ENDING_ELSEWHERE


@needs_data
@pytest.mark.slow
def test_random_pairs_of_different_golds_do_not_match():
    golds = sorted({row["answer"] for row in rows(*COMPETITION, *WITHOUT_SOLUTIONS, *SCHOOL)})
    draw = random.Random(0)
    pairs = [tuple(draw.sample(golds, 2)) for _ in range(20_000)]
    matches = wrong([(rf"\boxed{{{answer}}}", gold) for answer, gold in pairs], expected=False)
    found = {frozenset((completion.removeprefix(r"\boxed{")[:-1], gold)) for completion, gold in matches}
    assert found == EQUAL_IN_ANOTHER_NOTATION


@needs_data
@pytest.mark.slow
def test_golds_rewritten_by_sympy_are_right():
    """Read by latex2sympy and written by sympy.latex: neither is this project's parser."""
    from latex2sympy2_extended import latex2sympy

    formula = re.compile(
        r"(?!-?\d+$)(?:[-+\d.()^{a-z\s/]|\}(?!\s*\d)|\\(?:[td]?frac|sqrt)(?=\{)|\\(?:pi|left|right)(?![a-z]))+"
    )
    golds = sorted({row["answer"] for row in rows("math_train") if formula.fullmatch(row["answer"])})
    rewritten = []
    for gold in random.Random(1).sample(golds, 160):
        value = latex2sympy(gold).doit()
        forms = {sympy.latex(rewrite(value)) for rewrite in REWRITES} - {gold}
        rewritten.extend((rf"\boxed{{{form}}}", gold) for form in forms)
    assert len(rewritten) >= 500
    assert wrong(rewritten) == []


REWRITES = (
    sympy.expand,
    sympy.factor,
    sympy.together,
    sympy.radsimp,
    lambda value: sympy.Mul(-1, -value, evaluate=False),
    lambda value: sympy.Mul(sympy.Rational(1, 2), 2 * value, evaluate=False),
    lambda value: sympy.Add(value, 1, -1, evaluate=False),
)

INTEGERS = st.integers(-(10**12), 10**12)
FRACTIONS = st.builds(Fraction, st.integers(-9_999, 9_999), st.integers(2, 999))


def notations(number: Fraction, scale: int):
    top, bottom, sign = abs(number.numerator), number.denominator, "-" if number < 0 else ""
    yield rf"{sign}\frac{{{top}}}{{{bottom}}}"
    yield rf"{sign}\dfrac{{{top * scale}}}{{{bottom * scale}}}"
    yield rf"\frac{{{sign}{top}}}{{{bottom}}}"
    yield f"{sign}{top}/{bottom}"
    yield f"−{top}/{bottom}" if sign else f"{top} / {bottom}"
    yield rf"x = {sign}\frac{{{top}}}{{{bottom}}}\text{{ dollars}}"
    if top > bottom > 1:
        yield rf"{sign}{top // bottom}\frac{{{top % bottom}}}{{{bottom}}}"
        yield f"{sign}{top // bottom} {top % bottom}/{bottom}"
    if bottom == 1:
        yield f"{sign}{top:,}"
        yield f"{sign}{top:,}".replace(",", "{,}")
        yield f"{sign}00{top}"
        yield f"{sign}{top}.0"
        yield rf"\${sign}{top}"


@settings(max_examples=60, deadline=None)
@given(st.one_of(INTEGERS.map(Fraction), FRACTIONS), st.integers(2, 9))
def test_a_number_is_equal_to_itself_in_every_notation_and_never_to_its_successor(number, scale):
    golds = list(notations(number, scale))
    successors = list(notations(number + 1, scale))
    answers = [rf"\boxed{{{text}}}" for text in golds]
    assert wrong([(answer, gold) for answer in answers for gold in golds]) == []
    assert wrong([(answer, gold) for answer in answers for gold in successors], expected=False) == []


@settings(max_examples=100, deadline=None)
@given(INTEGERS)
def test_decimal_digits_are_exact(number):
    assert is_correct_math(rf"\boxed{{{number / 100:.2f}}}", f"{number / 100:.2f}") is True
    assert is_correct_math(rf"\boxed{{{number}.01}}", f"{number}.02") is False


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(-99, 99), min_size=2, max_size=5, unique=True), st.randoms())
def test_order_counts_in_tuples_only(numbers, draw):
    shuffled = draw.sample(numbers, len(numbers))
    text, other = ", ".join(map(str, numbers)), ", ".join(map(str, shuffled))
    assert is_correct_math(rf"\boxed{{\{{{other}\}}}}", rf"\{{{text}\}}") is True
    assert is_correct_math(rf"\boxed{{{other}}}", text) is True
    assert is_correct_math(rf"\boxed{{({other})}}", f"({text})") is (numbers == shuffled)
    assert is_correct_math(rf"\boxed{{{other}, 100}}", text) is False

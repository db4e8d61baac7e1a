"""Whether two single values are the same answer.

Decisions where graders differ:
- units, degree and percent signs may be left out; two known units that differ are two answers. A percent sign on one
  side alone may also mean a hundredth (28% = 28 = 0.28, but 50 ≠ 0.5), a degree sign π/180 where the other side has π;
- a base subscript may be left out; where both have it, digits and base must be the same;
- fractions need not be reduced; `2\\frac{2}{3}` is a mixed number; 2:4 is the ratio 1:2;
- decimals are exact, but stand for a value without a finite decimal form (1/3, √2) if they round it to six
  significant digits or more.
"""

from fractions import Fraction

from mpmath import mp

from prewrite.grading.arithmetic import as_mp, is_real
from prewrite.grading.evaluate import evaluate, same_value
from prewrite.grading.tree import Node, symbols_of
from prewrite.grading.units import units_conflict

_ROUNDED_DIGITS = 6


def same_scalar(gold: Node, answer: Node) -> bool:
    if units_conflict(_unit(gold), _unit(answer)):
        return False
    if "base" in (gold[0], answer[0]):
        return _same_in_base(gold, answer)
    gold, answer = (node[1] if node[0] == "unit" else node for node in (gold, answer))
    if "ratio" in (gold[0], answer[0]):
        return _same_ratio(gold, answer)
    if gold[0] == answer[0] and gold[0] in ("percent", "degree"):
        return _same_number(gold[1], answer[1])
    return any(_same_number(one, other) for one in _readings(gold, answer) for other in _readings(answer, gold))


def _unit(node: Node) -> str:
    return node[2] if node[0] == "unit" else node[0] if node[0] in ("percent", "degree") else ""


def _readings(node: Node, other: Node) -> tuple[Node, ...]:
    if node[0] == "percent" or (node[0] == "degree" and _mentions_pi(other)):
        return node[1], node
    return (node[1],) if node[0] == "degree" else (node,)


def _mentions_pi(node: object) -> bool:
    return node == ("const", "pi") or (isinstance(node, tuple) and any(map(_mentions_pi, node)))


def _same_in_base(gold: Node, answer: Node) -> bool:
    if gold[0] == answer[0]:
        return gold[1].lstrip("0") == answer[1].lstrip("0") and gold[2] == answer[2]
    return gold[0] == "base" and answer[0] == "num" and gold[1].isdigit() and Fraction(gold[1]) == answer[1]


def _same_ratio(gold: Node, answer: Node) -> bool:
    if gold[0] != answer[0]:
        ratio, other = (gold, answer) if gold[0] == "ratio" else (answer, gold)
        return len(ratio[1]) == 2 and _same_number(("mul", (ratio[1][0], ("inv", ratio[1][1]))), other)
    gold_parts, parts = gold[1], answer[1]
    if any(part[0] == "unit" for part in (*gold_parts, *parts)):
        return len(gold_parts) == len(parts) and all(map(same_scalar, gold_parts, parts))
    return len(gold_parts) == len(parts) and all(
        _same_number(("mul", (gold_part, parts[0])), ("mul", (part, gold_parts[0])))
        for gold_part, part in zip(gold_parts, parts, strict=True)
    )


def _same_number(gold: Node, answer: Node) -> bool:
    return same_value(gold, answer) or _rounds(gold, answer) or _rounds(answer, gold)


def _rounds(decimal: Node, exact: Node) -> bool:
    if decimal[0] != "num" or not decimal[2] or symbols_of(exact) or (exact[0] == "num" and exact[2]):
        return False
    digits = len(str(abs(int(decimal[1] * 10 ** decimal[2]))))
    value = evaluate(exact, {})
    if digits < _ROUNDED_DIGITS or not is_real(value) or (isinstance(value, Fraction) and _is_finite_decimal(value)):
        return False
    half_a_digit = mp.mpf(10) ** -decimal[2] / 2
    return bool(mp.fabs(as_mp(decimal[1]) - as_mp(value).real) <= half_a_digit)


def _is_finite_decimal(value: Fraction) -> bool:
    denominator = value.denominator
    for prime in (2, 5):
        while denominator % prime == 0:
            denominator //= prime
    return denominator == 1

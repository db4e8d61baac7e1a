"""Whether two single values are the same answer.

Decisions where graders differ:
- units, degree and percent signs may be left out; two known units that differ are two answers, but a quantity in parts
  ("1 hour 15 minutes") equals one of the same value in another unit of its kind. A percent sign on one
  side alone may also mean a hundredth (28% = 28 = 0.28, but 50 ≠ 0.5), a degree sign π/180 where the other side has π
  or an inverse trigonometric function;
- a base subscript may be left out; where both have it, digits and base must be the same;
- fractions need not be reduced; `2\\frac{2}{3}` is a mixed number; 2:4 is the ratio 1:2, but what may be a time of
  day (10:20) is neither a ratio of other numbers nor a fraction;
- decimals are exact, but stand for a value without a finite decimal form (1/3, √2) that they round to 6 digits or more.
"""

from fractions import Fraction

from mpmath import mp

from prewrite.grading.expressions.arithmetic import as_mp, is_real
from prewrite.grading.expressions.tree import Node, number, symbols_of
from prewrite.grading.expressions.values import same_value, value_at
from prewrite.grading.expressions.words import DOZEN, KNOWN_UNITS, size, units_conflict

_ROUNDED_DIGITS = 6


def same_scalar(gold: Node, answer: Node) -> bool:
    """Whether two trees that are single values mean the same."""
    as_unit = gold if gold[0] != "num" else ("unit",)  # 5 m for 5, but 5 is no answer to 5m
    gold, answer = _with_symbol_as_unit(gold, answer), _with_symbol_as_unit(answer, as_unit)
    if "parts" in (gold[0], answer[0]):
        return _same_quantity(gold, answer)
    if units_conflict(_unit(gold), _unit(answer)):
        return False
    if "base" in (gold[0], answer[0]):
        return _same_in_base(gold, answer)
    if answer[0] == "unit" and not _unit(gold) and answer[2].split()[0].lower() == "dozen":
        answer = ("mul", (answer[1], number(str(DOZEN))))
    gold, answer = (node[1] if node[0] == "unit" else node for node in (gold, answer))
    if "ratio" in (gold[0], answer[0]):
        return _same_ratio(gold, answer)
    if gold[0] == answer[0] and gold[0] in ("percent", "degree"):
        return _same_number(gold[1], answer[1])
    return any(_same_number(one, other) for one in _readings(gold, answer) for other in _readings(answer, gold))


def _same_quantity(gold: Node, answer: Node) -> bool:
    """Of two, one or both in parts ("1 hour 15 minutes"); one without a unit has that of the first or last."""
    if "num" in (gold[0], answer[0]):
        parts, plain = (gold, answer) if answer[0] == "num" else (answer, gold)
        return any(_same_number(("mul", (plain, number(str(ratio)))), parts[1]) for ratio in (1, parts[3]))
    sizes = size(gold[2], answer[2]) if {gold[0], answer[0]} <= {"parts", "unit"} else None
    if sizes is None:
        return False
    gold_size, its_size = (number(str(factor)) for factor in sizes)
    return _same_number(("mul", (gold[1], gold_size)), ("mul", (answer[1], its_size)))


def _unit(node: Node) -> str:
    return node[2] if node[0] == "unit" else node[0] if node[0] in ("percent", "degree") else ""


def _with_symbol_as_unit(node: Node, other: Node) -> Node:
    """`10 m^2` beside an answer that names its unit: what looks like a symbol is one too."""
    if other[0] not in ("unit", "parts") or node[0] != "mul":
        return node
    value = tuple(factor for factor in node[1] if not symbols_of(factor))
    words = [_unit_word(factor) for factor in node[1][len(value) :]]
    return ("unit", ("mul", value), " ".join(map(str, words))) if value and words and None not in words else node


def _unit_word(node: Node) -> str | None:
    """`m^2`, or `per s` for the inverse."""
    if node[0] == "sym":
        return node[1] if node[1] in KNOWN_UNITS else None
    inner = _unit_word(node[1]) if node[0] in ("pow", "inv") else None
    if inner is None or node[0] == "inv":
        return inner and f"per {inner}"
    return f"{inner}^{node[2][1]}" if node[2][0] == "num" else None


def _readings(node: Node, other: Node) -> tuple[Node, ...]:
    if node[0] == "percent" or (node[0] == "degree" and _is_in_radians(other)):
        return node[1], node
    return (node[1],) if node[0] == "degree" else (node,)


def _is_in_radians(node: object) -> bool:
    """Whether a value is made with pi or an inverse trigonometric function."""
    named = ("const", "pi"), ("call", "arcsin"), ("call", "arccos"), ("call", "arctan")
    return isinstance(node, tuple) and (node[:2] in named or any(map(_is_in_radians, node)))


def _same_in_base(gold: Node, answer: Node) -> bool:
    if gold[0] == answer[0]:
        return gold[1].lstrip("0") == answer[1].lstrip("0") and gold[2] == answer[2]
    if answer[0] == "base" and answer[2] == 10 and answer[1].isdigit():
        return _same_number(gold, number(answer[1]))
    return gold[0] == "base" and _as_digits(answer) == gold[1].lstrip("0")


def _as_digits(node: Node) -> str | None:
    """The digits that a value without a base spells ("204", "2A")."""
    if node[0] == "num" and node[1].denominator == 1:
        return str(node[1]).lstrip("0")
    if node[0] == "sym":
        return node[1].upper()
    return "".join(_as_digits(factor) or "?" for factor in node[1]) if node[0] == "mul" else None


def _same_ratio(gold: Node, answer: Node) -> bool:
    if gold[0] != answer[0]:
        ratio, other = (gold, answer) if gold[0] == "ratio" else (answer, gold)
        return len(ratio[1]) == 2 and _same_number(("mul", (ratio[1][0], ("inv", ratio[1][1]))), other)
    gold_parts, parts = gold[1], answer[1]
    if len(gold_parts) != len(parts):
        return False
    if any(part[0] == "unit" for part in (*gold_parts, *parts)):
        return all(map(same_scalar, gold_parts, parts))
    crossed = [("mul", (part, parts[0])) for part in gold_parts], [("mul", (part, gold_parts[0])) for part in parts]
    return all(map(_same_number, *crossed))


def _same_number(gold: Node, answer: Node) -> bool:
    return same_value(gold, answer) or _rounds(gold, answer) or _rounds(answer, gold)


def _rounds(decimal: Node, exact: Node) -> bool:
    if decimal[0] != "num" or not decimal[2] or symbols_of(exact) or (exact[0] == "num" and exact[2]):
        return False
    digits = len(str(abs(int(decimal[1] * 10 ** decimal[2]))))
    value = value_at(exact, {})
    # A fraction has a finite decimal form where it divides a power of ten.
    is_finite = isinstance(value, Fraction) and not pow(10, value.denominator.bit_length(), value.denominator)
    if digits < _ROUNDED_DIGITS or not is_real(value) or is_finite:
        return False
    half_a_digit = mp.mpf(10) ** -decimal[2] / 2
    return bool(mp.fabs(as_mp(decimal[1]) - as_mp(value).real) <= half_a_digit)

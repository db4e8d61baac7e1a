"""The value of a tree: an exact Fraction where it is rational, else a number of `DIGITS` digits (mpmath).

Two expressions are equal if their values agree at fixed sample points; with 60 digits a wrong agreement does not happen
by chance, and no simplifier has to find a path from one form to the other.
"""

import math
import operator
import random
from collections.abc import Callable, Mapping
from fractions import Fraction

from mpmath import mp

from prewrite.grading.expressions import arithmetic
from prewrite.grading.expressions.arithmetic import AGREEING_DIGITS, Undefined, Value, as_mp, checked, close, is_real
from prewrite.grading.expressions.tree import Node, Unreadable, symbols_of

_ZERO_CHECK_DIGITS = 400
_ENOUGH_REAL_POINTS = 3
TEN = Fraction(10)


def value_at(node: Node, point: Mapping[str, Fraction], log_base: Fraction | None = TEN) -> Value:
    """The value of a scalar tree with its symbols set to `point`. log_base: of `\\log` without a base, None is e."""
    if (rule := _RULES.get(node[0])) is None:
        raise Unreadable(f"{node[0]} has no value")
    try:
        return checked(rule(node, lambda child: value_at(child, point, log_base), point, log_base))
    except (ArithmeticError, ValueError) as error:
        raise Undefined(str(error)) from None


def same_value(one: Node, other: Node) -> bool:
    """Whether two scalar trees are the same function of their symbols.

    Symbols are real; values are compared where both are real, so √(1/n) = 1/√n (they differ only where both are
    imaginary) but √(x²) ≠ x. `\\log` without a base may mean base 10 or e, but the same on both sides.
    """
    bases = (TEN, None) if _has_bare_log(one) or _has_bare_log(other) else (TEN,)
    return any(_same_at_all_points(one, other, base) for base in bases)


def _same_at_all_points(one: Node, other: Node, log_base: Fraction | None) -> bool:
    names = sorted(symbols_of(one) | symbols_of(other))
    if not names:
        return agree(one, other, {}, log_base)
    real_points = complex_agreements = complex_points = 0
    for point in sample_points(names):
        try:
            a, b = value_at(one, point, log_base), value_at(other, point, log_base)
        except Undefined:
            continue
        same = close(a, b) or (_may_be_zero(a, b) and agree(one, other, point, log_base))
        if is_real(a) and is_real(b):
            if not same:
                return False
            real_points += 1
        else:
            complex_points += 1
            complex_agreements += same
    return real_points >= _ENOUGH_REAL_POINTS or 0 < complex_points == complex_agreements


def sample_points(names: list[str]) -> list[dict[str, Fraction]]:
    """16 fixed points: small positive ones, then both signs, then far ones."""
    draw = random.Random(7)
    ranges = [(1, 40)] * 6 + [(-40, 40)] * 6 + [(-2000, 2000)] * 4
    return [{name: Fraction(draw.randint(low, high) * 2 + 1, 14) for name in names} for low, high in ranges]


def agree(one: Node, other: Node, point: Mapping[str, Fraction], log_base: Fraction | None = TEN) -> bool:
    """Equality at one point. Where one side may be an exact zero, more digits decide whether the other is zero too."""
    a, b = value_at(one, point, log_base), value_at(other, point, log_base)
    if close(a, b):
        return True
    if not _may_be_zero(a, b):
        return False
    with mp.workdps(_ZERO_CHECK_DIGITS):
        difference = mp.fabs(as_mp(value_at(one, point, log_base)) - as_mp(value_at(other, point, log_base)))
        return bool(difference < mp.mpf(10) ** (-_ZERO_CHECK_DIGITS // 2))


def _may_be_zero(a: Value, b: Value) -> bool:
    if isinstance(a, Fraction) and isinstance(b, Fraction):
        return False
    a, b = as_mp(a), as_mp(b)
    return bool(min(mp.fabs(a), mp.fabs(b)) < mp.mpf(10) ** -AGREEING_DIGITS) and not mp.isinf(a + b)


def _has_bare_log(node: object) -> bool:
    return isinstance(node, tuple) and (node[:2] == ("log", None) or any(map(_has_bare_log, node)))


_RULES: dict[str, Callable] = {
    "num": lambda node, value_of, point, base: node[1],
    "sym": lambda node, value_of, point, base: point[node[1]],
    "const": lambda node, value_of, point, base: arithmetic.constant(node[1]),
    "add": lambda node, value_of, point, base: arithmetic.combined(operator.add, map(value_of, node[1])),
    "mul": lambda node, value_of, point, base: arithmetic.combined(operator.mul, map(value_of, node[1])),
    "neg": lambda node, value_of, point, base: -value_of(node[1]),
    "inv": lambda node, value_of, point, base: arithmetic.invert(value_of(node[1])),
    "pow": lambda node, value_of, point, base: arithmetic.power(value_of(node[1]), value_of(node[2])),
    "root": lambda node, value_of, point, base: arithmetic.power(
        value_of(node[2]), arithmetic.invert(value_of(node[1]))
    ),
    "binom": lambda node, value_of, point, base: arithmetic.of_naturals(math.comb, *map(value_of, node[1:])),
    "abs": lambda node, value_of, point, base: abs(value_of(node[1])),
    "floor": lambda node, value_of, point, base: arithmetic.rounded(math.floor, value_of(node[1])),
    "ceil": lambda node, value_of, point, base: arithmetic.rounded(math.ceil, value_of(node[1])),
    "factorial": lambda node, value_of, point, base: arithmetic.of_naturals(math.factorial, value_of(node[1])),
    "degree": lambda node, value_of, point, base: as_mp(value_of(node[1])) * mp.pi / 180,
    "percent": lambda node, value_of, point, base: value_of(node[1]) / 100,
    "det": lambda node, value_of, point, base: arithmetic.determinant(node[1], value_of),
    "unit": lambda node, value_of, point, base: value_of(node[1]),
    "call": lambda node, value_of, point, base: arithmetic.call(node[1], node[2], value_of),
    "log": lambda node, value_of, point, base: arithmetic.log(
        value_of(node[2]), value_of(node[1]) if node[1] else base
    ),
}

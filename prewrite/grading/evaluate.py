"""The value of a tree: an exact Fraction where it is rational, else a number of `DIGITS` digits (mpmath).

Two expressions are equal if their values agree at fixed sample points; with 60 digits a wrong agreement does not happen
by chance, and no simplifier has to find a path from one form to the other. Everything that could grow without bound
(powers, factorials, exponentials) is measured before it is computed.
"""

import math
import random
from collections.abc import Callable, Mapping
from fractions import Fraction

from mpmath import mp

from prewrite.grading.parser import Node, Unreadable, symbols_of

DIGITS = 60
MAX_BITS = 200_000
MAX_FACTORIAL = 3_000
MAX_LOG_MAGNITUDE = 100_000
_AGREEING_DIGITS = 35
_ZERO_CHECK_DIGITS = 400
_NUMBER_OF_POINTS = 16
_ENOUGH_REAL_POINTS = 3

mp.dps = DIGITS
Value = Fraction | mp.mpf | mp.mpc  # type: ignore[valid-type]


class Undefined(Unreadable):
    """The expression has no finite value here (0/0, log 0, tan 90°)."""


class TooLarge(Unreadable):
    """The value cannot be computed within the limits."""


def evaluate(node: Node, point: Mapping[str, Fraction], log_base: int | None = 10) -> Value:
    """The value of a scalar tree with its symbols set to `point`. log_base: of `\\log` without a base, None is e."""
    rule = _RULES.get(node[0])
    if rule is None:
        raise Unreadable(f"{node[0]} has no value")
    try:
        return _checked(rule(node, lambda child: evaluate(child, point, log_base), point, log_base))
    except (ArithmeticError, ValueError) as error:
        raise Undefined(str(error)) from None


def same_value(one: Node, other: Node) -> bool:
    """Whether two scalar trees are the same function of their symbols.

    Symbols are real; values are compared where both are real, so √(1/n) = 1/√n (they differ only where both are
    imaginary) but √(x²) ≠ x. `\\log` without a base may mean base 10 or e, but the same on both sides.
    """
    bases = (10, None) if _has_bare_log(one) or _has_bare_log(other) else (10,)
    return any(_same_at_all_points(one, other, base) for base in bases)


def _same_at_all_points(one: Node, other: Node, log_base: int | None) -> bool:
    names = sorted(symbols_of(one) | symbols_of(other))
    if not names:
        return agree(one, other, {}, log_base)
    real_points = complex_agreements = complex_points = 0
    for point in sample_points(names):
        try:
            a, b = evaluate(one, point, log_base), evaluate(other, point, log_base)
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
    """Fixed points: small positive ones, then both signs, then far ones."""
    draw = random.Random(7)
    ranges = [(1, 40)] * 6 + [(-40, 40)] * 6 + [(-2000, 2000)] * 4
    assert len(ranges) == _NUMBER_OF_POINTS
    return [{name: Fraction(draw.randint(low, high) * 2 + 1, 14) for name in names} for low, high in ranges]


def agree(one: Node, other: Node, point: Mapping[str, Fraction], log_base: int | None = 10) -> bool:
    """Equality at one point. Where one side may be an exact zero, more digits decide whether the other is zero too."""
    a, b = evaluate(one, point, log_base), evaluate(other, point, log_base)
    if close(a, b):
        return True
    if not _may_be_zero(a, b):
        return False
    with mp.workdps(_ZERO_CHECK_DIGITS):
        difference = mp.fabs(as_mp(evaluate(one, point, log_base)) - as_mp(evaluate(other, point, log_base)))
        return bool(difference < mp.mpf(10) ** (-_ZERO_CHECK_DIGITS // 2))


def close(a: Value, b: Value) -> bool:
    if isinstance(a, Fraction) and isinstance(b, Fraction):
        return a == b
    a, b = as_mp(a), as_mp(b)
    if mp.isinf(a) or mp.isinf(b):
        return bool(a == b)
    return bool(mp.fabs(a - b) <= mp.mpf(10) ** -_AGREEING_DIGITS * max(mp.fabs(a), mp.fabs(b)))


def _may_be_zero(a: Value, b: Value) -> bool:
    if isinstance(a, Fraction) and isinstance(b, Fraction):
        return False
    return bool(min(mp.fabs(as_mp(a)), mp.fabs(as_mp(b))) < mp.mpf(10) ** -_AGREEING_DIGITS) and not mp.isinf(
        as_mp(a) + as_mp(b)
    )


def as_mp(value: Value):
    return mp.mpf(value.numerator) / value.denominator if isinstance(value, Fraction) else value


def is_real(value: Value) -> bool:
    if isinstance(value, mp.mpc):
        return bool(mp.fabs(value.imag) <= mp.mpf(10) ** -_AGREEING_DIGITS * mp.fabs(value))
    return True


def _has_bare_log(node: object) -> bool:
    return isinstance(node, tuple) and (node[:2] == ("log", None) or any(map(_has_bare_log, node)))


def _checked(value: Value) -> Value:
    if isinstance(value, Fraction):
        if value.numerator.bit_length() + value.denominator.bit_length() > MAX_BITS:
            raise TooLarge("number")
        return value
    if mp.isnan(value):
        raise Undefined("nan")
    if isinstance(value, mp.mpc) and value.imag == 0:
        return value.real
    return value


def _add(values: list[Value]) -> Value:
    total = values[0]
    for value in values[1:]:
        exact = isinstance(total, Fraction) and isinstance(value, Fraction)
        total = _checked(total + value if exact else as_mp(total) + as_mp(value))
    return total


def _multiply(values: list[Value]) -> Value:
    product = values[0]
    for value in values[1:]:
        if isinstance(product, Fraction) and isinstance(value, Fraction):
            product = _checked(product * value)
        else:
            product = _checked(as_mp(product) * as_mp(value))
    return product


def _invert(value: Value) -> Value:
    if value == 0 or (not isinstance(value, Fraction) and mp.fabs(value) < mp.mpf(10) ** -(DIGITS - 10)):
        raise Undefined("division by zero")
    return 1 / value if isinstance(value, Fraction) else 1 / as_mp(value)


def _power(base: Value, exponent: Value) -> Value:
    if base == 0:
        if not is_real(exponent) or as_mp(exponent).real <= 0:
            raise Undefined("power of zero")
        return Fraction(0)
    if isinstance(exponent, Fraction) and isinstance(base, Fraction):
        if exponent.denominator == 1:
            bits = max(abs(base.numerator), base.denominator).bit_length()
            if abs(exponent) * (bits if abs(base) != 1 else 0) > MAX_BITS:
                raise TooLarge("power")
            return base ** int(exponent) if abs(base) != 1 else base ** int(exponent % 2)
        if exponent.denominator % 2 == 1 and base < 0:
            return _multiply([Fraction(-1 if exponent.numerator % 2 else 1), _power(-base, exponent)])
        root = _exact_root(base, exponent.denominator)
        if root is not None:
            return _power(root, Fraction(exponent.numerator))
    magnitude = mp.log(mp.fabs(as_mp(base)))
    if mp.fabs(as_mp(exponent) * magnitude) > MAX_LOG_MAGNITUDE:
        raise TooLarge("power")
    return mp.power(as_mp(base), as_mp(exponent))


def _exact_root(value: Fraction, degree: int) -> Fraction | None:
    if value < 0 or degree > MAX_BITS:
        return None
    numerator, denominator = _integer_root(value.numerator, degree), _integer_root(value.denominator, degree)
    return None if numerator is None or denominator is None else Fraction(numerator, denominator)


def _integer_root(value: int, degree: int) -> int | None:
    if degree == 2:
        root = math.isqrt(value)
    elif value < 2:
        root = value
    else:
        guess = int(mp.nint(mp.root(value, degree))) if value.bit_length() < 3 * DIGITS else 0
        root = guess
    return root if root**degree == value else None


def _factorial(value: Value) -> Value:
    return Fraction(math.factorial(_natural(value, MAX_FACTORIAL)))


def _binomial(n: Value, k: Value) -> Value:
    return Fraction(math.comb(_natural(n, MAX_FACTORIAL), _natural(k, MAX_FACTORIAL)))


def _natural(value: Value, limit: int) -> int:
    if not isinstance(value, Fraction) or value.denominator != 1 or value < 0:
        raise Undefined("not a natural number")
    if value > limit:
        raise TooLarge("factorial")
    return int(value)


def _rounded(round_to_integer: Callable, value: Value) -> Value:
    if isinstance(value, Fraction):
        return Fraction(round_to_integer(value))
    if not is_real(value) or mp.fabs(value) > mp.mpf(10) ** (DIGITS // 2):
        raise Undefined("floor")
    nearest = mp.nint(value.real)
    if mp.fabs(value.real - nearest) < mp.mpf(10) ** -_AGREEING_DIGITS:
        return Fraction(int(nearest))
    return Fraction(int(mp.floor(value.real) if round_to_integer is math.floor else mp.ceil(value.real)))


def _log(value: Value, base: Value | None) -> Value:
    if value == 0:
        raise Undefined("log 0")
    if base is None:
        return mp.log(as_mp(value))
    if base in (0, 1):
        raise Undefined("log base")
    if isinstance(value, Fraction) and isinstance(base, Fraction) and value > 0 and base > 0:
        estimate = mp.nint(mp.log(as_mp(value)) / mp.log(as_mp(base)))
        if abs(estimate) < MAX_BITS // 64 and _power(base, Fraction(int(estimate))) == value:
            return Fraction(int(estimate))
    return mp.log(as_mp(value)) / mp.log(as_mp(base))


def _exponential(value):
    if mp.fabs(value) > MAX_LOG_MAGNITUDE:
        raise TooLarge("exp")
    return mp.exp(value)


def _guarded(function: Callable) -> Callable:
    def apply(value):
        if mp.fabs(value) > MAX_LOG_MAGNITUDE:
            raise TooLarge("function argument")
        try:
            result = function(value)
        except (ZeroDivisionError, ValueError) as error:
            raise Undefined(str(error)) from None
        if not mp.isinf(result) and mp.fabs(result) > mp.mpf(10) ** (DIGITS - 10):
            raise Undefined("pole")
        return result

    return apply


_FUNCTIONS = {
    "sin": mp.sin, "cos": mp.cos, "tan": mp.tan, "cot": mp.cot, "sec": mp.sec, "csc": mp.csc, "arcsin": mp.asin,
    "arccos": mp.acos, "arctan": mp.atan, "sinh": mp.sinh, "cosh": mp.cosh, "tanh": mp.tanh, "coth": mp.coth,
}  # fmt: skip


def _call(name: str, argument: Node, value_of: Callable) -> Value:
    if name in ("max", "min", "gcd", "lcm"):
        values = [value_of(item) for item in (argument[2] if argument[0] == "tuple" else (argument,))]
        if name in ("gcd", "lcm"):
            naturals = [_natural(value, 10**50) for value in values]
            return Fraction(math.gcd(*naturals) if name == "gcd" else math.lcm(*naturals))
        if not all(map(is_real, values)):
            raise Undefined(name)
        return (max if name == "max" else min)(values, key=lambda value: as_mp(value).real)
    value = value_of(argument)
    if name == "ln":
        return _log(value, None)
    if value == 0 and name in ("sin", "tan", "arcsin", "arctan", "sinh", "tanh"):
        return Fraction(0)
    return (_exponential if name == "exp" else _guarded(_FUNCTIONS[name]))(as_mp(value))


def _constant(name: str) -> Value:
    if name == "inf":
        return mp.inf
    values = {"pi": lambda: +mp.pi, "e": lambda: +mp.e, "i": lambda: mp.mpc(0, 1)}
    if name not in values:
        raise Unreadable(name)
    return values[name]()


def _absolute(value: Value) -> Value:
    return abs(value) if isinstance(value, Fraction) else mp.fabs(value)


def _determinant(rows: tuple[tuple[Node, ...], ...], value_of: Callable) -> Value:
    size = len(rows)
    if size > 4 or any(len(row) != size for row in rows):
        raise Unreadable("determinant")
    if size == 1:
        return value_of(rows[0][0])
    minors = (tuple(row[:column] + row[column + 1 :] for row in rows[1:]) for column in range(size))
    return _add([
        _multiply([Fraction((-1) ** column), value_of(rows[0][column]), _determinant(minor, value_of)])
        for column, minor in enumerate(minors)
    ])  # fmt: skip


_RULES: dict[str, Callable] = {
    "num": lambda node, value_of, point, base: node[1],
    "sym": lambda node, value_of, point, base: point[node[1]],
    "const": lambda node, value_of, point, base: _constant(node[1]),
    "add": lambda node, value_of, point, base: _add([value_of(term) for term in node[1]]),
    "mul": lambda node, value_of, point, base: _multiply([value_of(factor) for factor in node[1]]),
    "neg": lambda node, value_of, point, base: -value_of(node[1]),
    "inv": lambda node, value_of, point, base: _invert(value_of(node[1])),
    "pow": lambda node, value_of, point, base: _power(value_of(node[1]), value_of(node[2])),
    "root": lambda node, value_of, point, base: _power(value_of(node[2]), _invert(value_of(node[1]))),
    "binom": lambda node, value_of, point, base: _binomial(value_of(node[1]), value_of(node[2])),
    "abs": lambda node, value_of, point, base: _absolute(value_of(node[1])),
    "floor": lambda node, value_of, point, base: _rounded(math.floor, value_of(node[1])),
    "ceil": lambda node, value_of, point, base: _rounded(math.ceil, value_of(node[1])),
    "factorial": lambda node, value_of, point, base: _factorial(value_of(node[1])),
    "degree": lambda node, value_of, point, base: as_mp(value_of(node[1])) * mp.pi / 180,
    "percent": lambda node, value_of, point, base: value_of(node[1]) / 100,
    "det": lambda node, value_of, point, base: _determinant(node[1], value_of),
    "unit": lambda node, value_of, point, base: value_of(node[1]),
    "call": lambda node, value_of, point, base: _call(node[1], node[2], value_of),
    "log": lambda node, value_of, point, base: _log(
        value_of(node[2]), value_of(node[1]) if node[1] else None if base is None else Fraction(base)
    ),
}

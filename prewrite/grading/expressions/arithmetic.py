"""Exact arithmetic with Fractions, and with numbers of `DIGITS` digits (mpmath) where a value is not rational.

Everything that could grow without bound (powers, factorials, exponentials) is measured before it is computed.
"""

import math
import operator
from collections.abc import Callable, Iterable
from fractions import Fraction
from functools import reduce

from mpmath import mp

from prewrite.grading.expressions.tree import Node, Unreadable

DIGITS = 60
MAX_BITS = 200_000
MAX_FACTORIAL = 3_000
MAX_LOG_MAGNITUDE = 100_000
AGREEING_DIGITS = 35

mp.dps = DIGITS
Value = Fraction | mp.mpf | mp.mpc  # type: ignore[valid-type]  # mpmath makes its types at run time


class Undefined(Unreadable):
    """The expression has no finite value here (0/0, log 0, tan 90°)."""


class TooLarge(Unreadable):
    """The value cannot be computed within the limits."""


def close(a: Value, b: Value) -> bool:
    """Equal where both are exact, else in their first `AGREEING_DIGITS` digits."""
    if isinstance(a, Fraction) and isinstance(b, Fraction):
        return a == b
    a, b = as_mp(a), as_mp(b)
    if mp.isinf(a) or mp.isinf(b):
        return bool(a == b)
    return bool(mp.fabs(a - b) <= mp.mpf(10) ** -AGREEING_DIGITS * max(mp.fabs(a), mp.fabs(b)))


def as_mp(value: Value):
    """The value as a number of `DIGITS` digits."""
    return mp.mpf(value.numerator) / value.denominator if isinstance(value, Fraction) else value


def is_real(value: Value) -> bool:
    """Whether the imaginary part is nothing but rounding."""
    if isinstance(value, mp.mpc):
        return bool(mp.fabs(value.imag) <= mp.mpf(10) ** -AGREEING_DIGITS * mp.fabs(value))
    return True


def checked(value: Value) -> Value:
    """The value, real where it can be. Raises TooLarge above `MAX_BITS`, Undefined for nan."""
    if isinstance(value, Fraction):
        if value.numerator.bit_length() + value.denominator.bit_length() > MAX_BITS:
            raise TooLarge("number")
        return value
    if mp.isnan(value):
        raise Undefined("nan")
    return value.real if isinstance(value, mp.mpc) and value.imag == 0 else value


def combined(operation: Callable, values: Iterable[Value]) -> Value:
    """The sum (operator.add) or the product (operator.mul), exact where all values are."""

    def of_two(one: Value, other: Value) -> Value:
        exact = isinstance(one, Fraction) and isinstance(other, Fraction)
        return checked(operation(one, other) if exact else operation(as_mp(one), as_mp(other)))

    return reduce(of_two, values)


def invert(value: Value) -> Value:
    """1 / value. Raises Undefined for zero."""
    if value == 0 or (not isinstance(value, Fraction) and mp.fabs(value) < mp.mpf(10) ** -(DIGITS - 10)):
        raise Undefined("division by zero")
    return 1 / value if isinstance(value, Fraction) else 1 / as_mp(value)


def power(base: Value, exponent: Value) -> Value:
    """base ^ exponent; the real root where the base is negative and the exponent's denominator odd."""
    if base == 0:
        if is_real(exponent) and as_mp(exponent).real > 0:
            return Fraction(0)
        raise Undefined("power of zero")
    if isinstance(exponent, Fraction) and isinstance(base, Fraction):
        if exponent.denominator == 1:
            if abs(base) == 1:
                return base ** int(exponent % 2)
            if abs(exponent) * max(abs(base.numerator), base.denominator).bit_length() > MAX_BITS:
                raise TooLarge("power")
            return base ** int(exponent)
        if exponent.denominator % 2 == 1 and base < 0:
            return combined(operator.mul, [Fraction(-1 if exponent.numerator % 2 else 1), power(-base, exponent)])
        if (root := _exact_root(base, exponent.denominator)) is not None:
            return power(root, Fraction(exponent.numerator))
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
    else:
        root = int(mp.nint(mp.root(value, degree))) if value.bit_length() < 3 * DIGITS else 0
    return root if root**degree == value else None


def of_naturals(function: Callable[..., int], *values: Value) -> Value:
    """The integer that a function (math.factorial, math.comb) makes of natural numbers up to `MAX_FACTORIAL`."""
    return Fraction(function(*(_natural(value, MAX_FACTORIAL) for value in values)))


def _natural(value: Value, limit: int) -> int:
    if not isinstance(value, Fraction) or value.denominator != 1 or value < 0:
        raise Undefined("not a natural number")
    if value > limit:
        raise TooLarge("factorial")
    return int(value)


def rounded(round_to_integer: Callable, value: Value) -> Value:
    """math.floor or math.ceil of a real value."""
    if isinstance(value, Fraction):
        return Fraction(round_to_integer(value))
    if not is_real(value) or mp.fabs(value) > mp.mpf(10) ** (DIGITS // 2):
        raise Undefined("floor")
    nearest = mp.nint(value.real)
    if mp.fabs(value.real - nearest) < mp.mpf(10) ** -AGREEING_DIGITS:
        return Fraction(int(nearest))
    return Fraction(int(mp.floor(value.real) if round_to_integer is math.floor else mp.ceil(value.real)))


def log(value: Value, base: Value | None) -> Value:
    """The logarithm to a base (None: natural), exact where it is an integer."""
    if value == 0:
        raise Undefined("log 0")
    if base is None:
        return mp.log(as_mp(value))
    if base in (0, 1):
        raise Undefined("log base")
    if isinstance(value, Fraction) and isinstance(base, Fraction) and value > 0 and base > 0:
        estimate = mp.nint(mp.log(as_mp(value)) / mp.log(as_mp(base)))
        if abs(estimate) < MAX_BITS // 64 and power(base, Fraction(int(estimate))) == value:
            return Fraction(int(estimate))
    return mp.log(as_mp(value)) / mp.log(as_mp(base))


_FUNCTIONS = {
    "sin": mp.sin, "cos": mp.cos, "tan": mp.tan, "cot": mp.cot, "sec": mp.sec, "csc": mp.csc, "arcsin": mp.asin,
    "arccos": mp.acos, "arctan": mp.atan, "sinh": mp.sinh, "cosh": mp.cosh, "tanh": mp.tanh, "coth": mp.coth,
}  # fmt: skip


def call(name: str, argument: Node, value_of: Callable) -> Value:
    """The value of a function of `tokens.FUNCTIONS`; value_of gives the argument's."""
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
        return log(value, None)
    if value == 0 and name in ("sin", "tan", "arcsin", "arctan", "sinh", "tanh"):
        return Fraction(0)
    if mp.fabs(as_mp(value)) > MAX_LOG_MAGNITUDE:
        raise TooLarge("function argument")
    if name == "exp":
        return mp.exp(as_mp(value))
    try:
        result = _FUNCTIONS[name](as_mp(value))
    except (ZeroDivisionError, ValueError) as error:
        raise Undefined(str(error)) from None
    if not mp.isinf(result) and mp.fabs(result) > mp.mpf(10) ** (DIGITS - 10):
        raise Undefined("pole")
    return result


def constant(name: str) -> Value:
    """The value of a constant node's name. Raises Unreadable for one that is no number (a set)."""
    values = {"inf": mp.inf, "pi": +mp.pi, "e": +mp.e, "i": mp.mpc(0, 1)}
    if name not in values:
        raise Unreadable(name)
    return values[name]


def determinant(rows: tuple[tuple[Node, ...], ...], value_of: Callable) -> Value:
    """The determinant of up to 4 x 4 cells, by minors."""
    size = len(rows)
    if size > 4 or any(len(row) != size for row in rows):
        raise Unreadable("determinant")
    if size == 1:
        return value_of(rows[0][0])
    terms = []
    for column, cell in enumerate(rows[0]):
        minor = determinant(tuple(row[:column] + row[column + 1 :] for row in rows[1:]), value_of)
        terms.append(combined(operator.mul, [Fraction((-1) ** column), value_of(cell), minor]))
    return combined(operator.add, terms)

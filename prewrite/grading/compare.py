"""Whether two trees are the same answer.

Decisions where graders differ:
- order counts in tuples and matrices, not in lists and sets; a list without brackets may stand for either;
- `x = 5` is 5, also as a gold; `x = 5` and `y = 5` differ; equations are equal up to a constant factor;
- `x < 3` is the same answer as `(-\\infty, 3)`, whichever side writes which;
- units, degree and percent signs may be left out; two known units that differ are two answers. A percent sign on one
  side alone may also mean a hundredth (28% = 28 = 0.28, but 50 ≠ 0.5); a degree sign is π/180 where the other side has π;
- a base subscript may be left out; where both have it, digits and base must be the same;
- fractions need not be reduced; `2\\frac{2}{3}` is a mixed number; 2:4 is the ratio 1:2;
- decimals are exact, but stand for a value without a finite decimal form (1/3, √2) if they round it to six
  significant digits or more;
- words are compared by letters.
"""

from collections.abc import Iterator
from fractions import Fraction
from itertools import product

from mpmath import mp

from prewrite.grading.evaluate import Undefined, as_mp, close, evaluate, is_real, same_value, sample_points
from prewrite.grading.parser import Node, Unreadable, number, symbols_of
from prewrite.grading.units import units_conflict

_MAX_SIGN_CHOICES = 3
_ENOUGH_POINTS = 4
_ROUNDED_DIGITS = 6
_FLIPPED = {"<": ">", ">": "<", "<=": ">=", ">=": "<="}
_INFINITY: Node = ("const", "inf")
_REAL_LINE: Node = ("tuple", "(", (("neg", _INFINITY), _INFINITY), ")")
_NO_VALUE: Node = ("set", ())
MEANINGS: dict[str, Node] = {
    **{
        word: number(str(value))
        for value, word in enumerate(
            "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
            "seventeen eighteen nineteen twenty".split()
        )
    },
    **dict.fromkeys(("all real numbers", "all reals", "real numbers"), _REAL_LINE),
    **dict.fromkeys(("empty set", "no solution", "no solutions", "no real solutions"), _NO_VALUE),
}
_PERCENT_WORDS = ("percent", "percentage", "pct", "per cent")
_DEGREE_WORDS = ("degree", "degrees", "deg")
_COLLECTIONS = ("list", "set", "tuple", "union", "matrix")


def same_answer(gold: Node, answer: Node) -> bool:
    """Whether the tree of an answer means the same as the tree of the gold.

    Raises Unreadable where a part has no value that could be compared.
    """
    gold, answer = _simplified(gold), _simplified(answer)
    if gold == answer:
        return True
    if "rel" in (gold[0], answer[0]):
        return _same_relation(gold, answer)
    if _sign_choices(gold) or _sign_choices(answer):
        return any(_same_items(one, other, distinct=True) for one, other in product(_signed(gold), _signed(answer)))
    if "text" in (gold[0], answer[0]):
        return _words(gold) == _words(answer) is not None
    if gold[0] in _COLLECTIONS or answer[0] in _COLLECTIONS:
        return _same_collection(gold, answer)
    return _same_scalar(gold, answer)


def _simplified(node: Node) -> Node:
    if node[0] == "rel" and node[1] == ("in",):
        return _simplified(node[2][1])
    if node[0] == "text":
        return MEANINGS.get(node[1], node)
    if node == ("const", "R"):
        return _REAL_LINE
    if node == ("const", "emptyset"):
        return _NO_VALUE
    if node[0] == "unit":
        inner = _simplified(node[1])
        words = node[2].strip(". ").lower()
        if words in _PERCENT_WORDS or words in _DEGREE_WORDS:
            return ("percent" if words in _PERCENT_WORDS else "degree", inner)
        return inner if inner[0] in _COLLECTIONS else ("unit", inner, node[2])
    if node[0] == "neg" and node[1][0] in ("percent", "degree"):
        return (node[1][0], ("neg", node[1][1]))
    if node[0] in ("neg", "mul"):
        return _scaled_matrix(node)
    return node


def _scaled_matrix(node: Node) -> Node:
    factors = node[1] if node[0] == "mul" else (number("-1"), node[1])
    matrices = [factor for factor in factors if factor[0] == "matrix"]
    if len(matrices) != 1:
        return node
    scale = tuple(factor for factor in factors if factor[0] != "matrix")
    return ("matrix", tuple(tuple(("mul", (*scale, cell)) for cell in row) for row in matrices[0][1]))


def _words(node: Node) -> str | None:
    if node[0] == "text":
        return node[1].strip("()") if len(node[1]) <= 3 else node[1]
    if node[0] in ("sym", "const"):
        return node[1].casefold()
    if node[0] == "mul" and all(factor[0] in ("sym", "const") for factor in node[1]):
        return "".join(factor[1] for factor in node[1]).casefold()
    return None


# Plus-minus


def _sign_choices(node: object) -> int:
    if not isinstance(node, tuple):
        return 0
    return (node[:1] == ("pm",)) + sum(map(_sign_choices, node))


def _signed(node: Node) -> Iterator[tuple[Node, ...]]:
    """The readings of ± : all signs at once (±1 ± √2 is two values), then each sign by itself (four values)."""
    count = _sign_choices(node)
    if count > _MAX_SIGN_CHOICES:
        raise Unreadable("too many sign choices")
    items = node[1] if node[0] in ("list", "set") else (node,)
    yield tuple(_with_signs(item, iter([plus] * count)) for item in items for plus in (True, False))
    if count > 1:
        choices = list(product((True, False), repeat=count))
        yield tuple(_with_signs(item, iter(signs)) for item in items for signs in choices)


def _with_signs(node, signs: Iterator[bool]):
    if not isinstance(node, tuple):
        return node
    if node[:1] == ("pm",):
        plus = next(signs)
        inner = _with_signs(node[1], signs)
        return inner if plus else ("neg", inner)
    return tuple(_with_signs(child, signs) for child in node)


# Equations and inequalities


def _same_relation(gold: Node, answer: Node) -> bool:
    if gold[0] != "rel" or answer[0] != "rel":
        relation, other = (gold, answer) if gold[0] == "rel" else (answer, gold)
        if set(relation[1]) != {"="}:
            solutions = _solutions(relation)
            return solutions is not None and same_answer(solutions[1], other)
        left, right = relation[2][0], relation[2][-1]
        names_the_answer = _is_name(left) if relation is gold else _is_quantity(left) or _same_sides(relation)
        return names_the_answer and (same_answer(right, other) if relation is gold else same_answer(other, right))
    if set(gold[1]) == set(answer[1]) == {"="}:
        return _same_equation(gold, answer)
    gold_solutions, solutions = _solutions(gold), _solutions(answer)
    if gold_solutions and solutions:
        return gold_solutions[0] == solutions[0] and same_answer(gold_solutions[1], solutions[1])
    if len(gold[1]) != 1 or len(answer[1]) != 1:
        return _same_chain(gold, answer)
    gold_sign, gold_difference = _as_less(gold)
    sign, difference = _as_less(answer)
    factor = _constant_factor(gold_difference, difference)
    return gold_sign == sign and factor is not None and (factor > 0 or sign == "!=")


def _same_equation(gold: Node, answer: Node) -> bool:
    gold_left, gold_right, left, right = gold[2][0], gold[2][-1], answer[2][0], answer[2][-1]
    if gold_left == left:
        return same_answer(gold_right, right)
    if _is_name(gold_left) and not symbols_of(left) and left[0] != "text" and _same_sides(answer):
        return same_answer(gold_right, right)
    if any(side[0] in (*_COLLECTIONS, "text") or _sign_choices(side) for side in (gold_left, gold_right, left, right)):
        return False
    return _constant_factor(_difference(gold_left, gold_right), _difference(left, right)) is not None


def _same_chain(gold: Node, answer: Node) -> bool:
    if len(gold[1]) != len(answer[1]):
        return False
    turned = ("rel", tuple(_FLIPPED.get(sign, sign) for sign in reversed(answer[1])), answer[2][::-1])
    return any(
        gold[1] == other[1] and all(map(same_answer, gold[2], other[2])) for other in (answer, turned)
    )  # fmt: skip


def _same_sides(relation: Node) -> bool:
    """Whether an equation holds identically, as in `3 \\cdot 4 = 12`."""
    return all(same_answer(relation[2][-1], side) for side in relation[2][:-1])


def _is_name(node: Node) -> bool:
    """`x`, `x_1`, `f(x)`, `f^{-1}(x)`, `\\text{Area}`."""
    if node[0] == "mul":
        return node[1][0][0] in ("sym", "pow") and all(map(_is_name_part, node[1]))
    if node[0] == "tuple":
        return all(item[0] == "sym" for item in node[2])
    return node[0] in ("sym", "text") or node in (("const", "e"), ("const", "i"))


def _is_name_part(node: Node) -> bool:
    if node[0] == "pow":
        return node[1][0] == "sym" and node[2] in (("neg", number("1")), number("-1"))
    return node[0] in ("sym", "num") or (node[0] == "tuple" and all(item[0] == "sym" for item in node[2]))


def _is_quantity(node: Node) -> bool:
    """What a sentence may set equal to its answer: a name, or an expression without coefficients (`m + n`, `\\sin A`)."""
    if _is_name(node):
        return True
    if node[0] in ("add", "mul", "list", "set"):
        return all(map(_is_quantity, node[1]))
    if node[0] == "tuple":
        return all(map(_is_quantity, node[2]))
    if node[0] == "call":
        return bool(symbols_of(node))
    return node[0] in ("neg", "inv", "pow", "abs", "degree") and _is_quantity(node[1])


def _solutions(relation: Node) -> tuple[Node, Node] | None:
    """(name, interval or union) of an inequality in one bare symbol, as in `x \\ge 3`, `-1 < x < 2`, `x \\ne 3`."""
    signs, sides = relation[1], relation[2]
    names = [side for side in sides if side[0] == "sym"]
    if len(names) != 1 or sum(bool(symbols_of(side)) for side in sides) != 1:
        return None
    if len(sides) == 2 and signs[0] in (*_FLIPPED, "!="):
        sign, bound = (signs[0], sides[1]) if sides[0] == names[0] else (_FLIPPED.get(signs[0], "!="), sides[0])
        below = ("tuple", "(", (("neg", _INFINITY), bound), "]" if sign == "<=" else ")")
        above = ("tuple", "[" if sign == ">=" else "(", (bound, _INFINITY), ")")
        return names[0], ("union", (below, above)) if sign == "!=" else below if sign in ("<", "<=") else above
    if len(sides) == 3 and sides[1] == names[0]:
        if set(signs) <= {">", ">="}:
            signs, sides = tuple(_FLIPPED[sign] for sign in reversed(signs)), sides[::-1]
        if set(signs) <= {"<", "<="}:
            opening, closing = "[" if signs[0] == "<=" else "(", "]" if signs[1] == "<=" else ")"
            return names[0], ("tuple", opening, (sides[0], sides[2]), closing)
    return None


def _difference(left: Node, right: Node) -> Node:
    return ("add", (left, ("neg", right)))


def _as_less(relation: Node) -> tuple[str, Node]:
    sign, (left, right) = relation[1][0], relation[2]
    if sign in (">", ">="):
        return _FLIPPED[sign], _difference(right, left)
    return sign, _difference(left, right)


def _constant_factor(one: Node, other: Node):
    """c with one = c · other at every sample point, or None. Both must depend on the same symbols."""
    names = sorted(symbols_of(one))
    if not names or set(names) != symbols_of(other):
        return None
    factors = []
    for point in sample_points(names):
        try:
            a, b = as_mp(evaluate(one, point)), as_mp(evaluate(other, point))
        except Undefined:
            continue
        if a == 0 or b == 0:
            if a != b:
                return None
            continue
        if is_real(a) and is_real(b):
            factors.append(a.real / b.real)
    constant = len(factors) >= _ENOUGH_POINTS and all(close(factors[0], factor) for factor in factors)
    return factors[0] if constant else None


# Collections


def _same_collection(gold: Node, answer: Node) -> bool:
    kinds = {gold[0], answer[0]}
    if kinds == {"matrix"}:
        shapes_match = [len(row) for row in gold[1]] == [len(row) for row in answer[1]]
        return shapes_match and all(
            _same_ordered(gold_row, row) for gold_row, row in zip(gold[1], answer[1], strict=True)
        )  # fmt: skip
    if "tuple" in kinds and "union" not in kinds:
        return _same_tuple(gold, answer)
    if "matrix" in kinds:
        return False
    if "union" in kinds:
        return _same_items(_parts(gold), _parts(answer))
    gold_items, items = (node[1] if node[0] in ("list", "set") else (node,) for node in (gold, answer))
    if all(item[0] == "text" and len(item[1]) > 1 for item in (*gold_items, *items)):
        return _same_ordered(gold_items, items)
    return _same_items(gold_items, items, distinct="set" in kinds)


def _same_tuple(gold: Node, answer: Node) -> bool:
    if gold[0] == answer[0]:
        is_pair = len(gold[2]) == 2
        brackets_differ = (gold[1], gold[3]) != (answer[1], answer[3])
        return not (is_pair and brackets_differ) and _same_ordered(gold[2], answer[2])
    pair, other = (gold, answer) if gold[0] == "tuple" else (answer, gold)
    if other[0] == "matrix":
        ordered = tuple(row[0] for row in other[1]) if all(len(row) == 1 for row in other[1]) else ()
    elif other[0] == "list" and (pair[1], pair[3]) == ("(", ")"):
        ordered = other[1]
    else:
        return False
    return _same_ordered(pair[2], ordered) if pair is gold else _same_ordered(ordered, pair[2])


def _parts(node: Node) -> tuple[Node, ...]:
    """The intervals of a union, also where inequalities joined by "or" describe it."""
    items = node[1] if node[0] in ("union", "list") else (node,)
    parts = []
    for item in items:
        solutions = _solutions(item) if item[0] == "rel" else None
        part = solutions[1] if solutions else _simplified(item)
        parts.extend(part[1] if part[0] == "union" else (part,))
    return tuple(parts)


def _same_ordered(gold_items: tuple[Node, ...], items: tuple[Node, ...]) -> bool:
    return len(gold_items) == len(items) and all(map(same_answer, gold_items, items))


def _same_items(gold_items: tuple[Node, ...], items: tuple[Node, ...], distinct: bool = False) -> bool:
    if distinct:
        gold_items, items = _distinct(gold_items), _distinct(items)
    if len(gold_items) != len(items):
        return False
    unmatched = list(items)
    for gold_item in gold_items:
        match = next((index for index, item in enumerate(unmatched) if same_answer(gold_item, item)), None)
        if match is None:
            return False
        unmatched.pop(match)
    return True


def _distinct(items: tuple[Node, ...]) -> tuple[Node, ...]:
    kept: list[Node] = []
    for item in items:
        if not any(same_answer(other, item) for other in kept):
            kept.append(item)
    return tuple(kept)


# Single values


def _same_scalar(gold: Node, answer: Node) -> bool:
    if units_conflict(_unit(gold), _unit(answer)):
        return False
    if "base" in (gold[0], answer[0]):
        return _same_in_base(gold, answer)
    gold, answer = (_simplified(node[1]) if node[0] == "unit" else node for node in (gold, answer))
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
        return _same_ordered(gold_parts, parts)
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

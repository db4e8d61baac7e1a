"""What equations and inequalities say: a name's value, a set of numbers, a multiple of one another."""

from itertools import pairwise

from prewrite.grading.expressions.arithmetic import Undefined, as_mp, close, is_real
from prewrite.grading.expressions.tree import Node, number, symbols_of
from prewrite.grading.expressions.values import sample_points, value_at

FLIPPED = {"<": ">", ">": "<", "<=": ">=", ">=": "<="}
INFINITY: Node = ("const", "inf")
_ENOUGH_POINTS = 4


def is_name(node: Node) -> bool:
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


def is_quantity(node: Node) -> bool:
    """What a sentence may set equal to its answer: a name, or symbols without coefficients (`m + n`, `\\sin A`)."""
    if is_name(node):
        return True
    if node[0] in ("add", "mul", "list", "set"):
        return all(map(is_quantity, node[1]))
    if node[0] == "tuple":
        return all(map(is_quantity, node[2]))
    if node[0] == "call":
        return bool(symbols_of(node))
    return node[0] in ("neg", "inv", "pow", "abs", "degree") and is_quantity(node[1])


def solution_set(relation: Node) -> tuple[Node, Node] | None:
    """(name, interval or union) of an inequality in one bare symbol, as in `x \\ge 3`, `-1 < x < 2`, `x \\ne 3`."""
    signs, sides = relation[1], relation[2]
    if len(sides) == 2 and "abs" in (sides[0][0], sides[1][0]):
        sign, (side, bound) = signs[0], sides
        if side[0] != "abs":
            sign, side, bound = FLIPPED.get(sign, "!="), bound, side
        return _solution_set_of_absolute_value(sign, side, bound)
    names = [side for side in sides if side[0] == "sym"]
    if len(names) != 1 or sum(bool(symbols_of(side)) for side in sides) != 1:
        return None
    if len(sides) == 2 and signs[0] in (*FLIPPED, "!="):
        sign, bound = (signs[0], sides[1]) if sides[0] == names[0] else (FLIPPED.get(signs[0], "!="), sides[0])
        below = ("tuple", "(", (("neg", INFINITY), bound), "]" if sign == "<=" else ")")
        above = ("tuple", "[" if sign == ">=" else "(", (bound, INFINITY), ")")
        return names[0], ("union", (below, above)) if sign == "!=" else below if sign in ("<", "<=") else above
    if len(sides) == 3 and sides[1] == names[0]:
        if set(signs) <= {">", ">="}:
            signs, sides = tuple(FLIPPED[sign] for sign in reversed(signs)), sides[::-1]
        if set(signs) <= {"<", "<="}:
            opening, closing = "[" if signs[0] == "<=" else "(", "]" if signs[1] == "<=" else ")"
            return names[0], ("tuple", opening, (sides[0], sides[2]), closing)
    return None


def joint_solutions(items: tuple[Node, ...]) -> Node | None:
    """What two bounds given apart leave (`x > 4, x < 7`), or several points left out (`x \\ne 1, x \\ne 2`)."""
    solutions = [solution_set(item) if item[0] == "rel" else None for item in items]
    sets = [solution[1] for solution in solutions if solution and solutions[0] and solution[0] == solutions[0][0]]
    if len(sets) < len(items):
        return None
    if all(item[1] == ("!=",) for item in items):
        points = sorted((union[1][0][2][1] for union in sets), key=lambda point: as_mp(value_at(point, {})).real)
        ends = (("neg", INFINITY), *points, INFINITY)
        return ("union", tuple(("tuple", "(", pair, ")") for pair in pairwise(ends)))
    rays = sorted(sets, key=lambda ray: ray[2][-1] == INFINITY) if {part[0] for part in sets} == {"tuple"} else []
    if len(rays) != 2 or rays[0][2][0] != ("neg", INFINITY) or rays[1][2][1] != INFINITY:
        return None
    low, high = rays[1][2][0], rays[0][2][1]
    is_interval = high != INFINITY and as_mp(value_at(low, {})).real < as_mp(value_at(high, {})).real
    return ("tuple", rays[1][1], (low, high), rays[0][3]) if is_interval else None


def _solution_set_of_absolute_value(sign: str, side: Node, bound: Node) -> tuple[Node, Node] | None:
    """(name, interval or union) of `|x| < 2`, `|x| \\ge 2`."""
    if side[0] != "abs" or side[1][0] != "sym" or symbols_of(bound):
        return None
    if sign in ("<", "<="):
        return solution_set(("rel", (sign, sign), (("neg", bound), side[1], bound)))
    if sign not in (">", ">="):
        return None
    below = ("tuple", "(", (("neg", INFINITY), ("neg", bound)), "]" if sign == ">=" else ")")
    above = ("tuple", "[" if sign == ">=" else "(", (bound, INFINITY), ")")
    return side[1], ("union", (below, above))


def difference(left: Node, right: Node) -> Node:
    """left - right."""
    return ("add", (left, ("neg", right)))


def as_less(relation: Node) -> tuple[str, Node]:
    """(sign, d) of an inequality written as `d < 0` or `d <= 0`; other signs stay."""
    sign, (left, right) = relation[1][0], relation[2]
    return (FLIPPED[sign], difference(right, left)) if sign in (">", ">=") else (sign, difference(left, right))


def constant_factor(one: Node, other: Node):
    """c with one = c · other at every sample point, or None. Both must depend on the same symbols."""
    names = sorted(symbols_of(one))
    if not names or set(names) != symbols_of(other):
        return None
    factors = []
    for point in sample_points(names):
        try:
            a, b = as_mp(value_at(one, point)), as_mp(value_at(other, point))
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

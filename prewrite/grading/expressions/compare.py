"""Whether two trees are the same answer.

Decisions where graders differ:
- order counts in tuples and matrices, not in lists and sets; a list without brackets may stand for either;
- `x = 5` is 5, also as a gold; `x = 5` and `y = 5` differ; equations are equal up to a constant factor;
- `x < 3` is the same answer as `(-\\infty, 3)`, whichever side writes which;
- words are compared by letters;
- for single values see `scalars`.
"""

from collections.abc import Iterator
from functools import reduce
from itertools import product

from prewrite.grading.expressions import relations
from prewrite.grading.expressions.scalars import same_scalar
from prewrite.grading.expressions.tree import Node, Unreadable, number, symbols_of
from prewrite.grading.expressions.words import number_in_words

_MAX_SIGN_CHOICES = 3
_REAL_LINE: Node = ("tuple", "(", (("neg", relations.INFINITY), relations.INFINITY), ")")
_NO_VALUE: Node = ("set", ())
_MEANINGS: dict[str, Node] = {
    **dict.fromkeys(("all real numbers", "all reals", "real numbers"), _REAL_LINE),
    **dict.fromkeys(("dne", "does not exist", "doesnt exist"), ("text", "does not exist")),
    **{"infinity": relations.INFINITY, "negative infinity": ("neg", relations.INFINITY)},
    **dict.fromkeys(("empty set", "no solution", "no solutions", "no real solutions"), _NO_VALUE),
}
_SIGN_WORDS = {
    **dict.fromkeys(("percent", "percentage", "pct", "per cent"), "percent"),
    **dict.fromkeys(("degree", "degrees", "deg"), "degree"),
}
_COLLECTIONS = ("list", "set", "tuple", "union", "matrix")


def same_answer(gold: Node, answer: Node) -> bool:
    """Whether the tree of an answer means the same as the tree of the gold.

    Raises Unreadable where a part has no value that could be compared.
    """
    gold, answer = _simplified(gold), _simplified(answer)
    if gold == answer:
        return True
    if "clock" in (gold[0], answer[0]):
        return _same_time(gold, answer)
    if "rel" in (gold[0], answer[0]):
        return _same_relation(gold, answer)
    if _sign_choices(gold) or _sign_choices(answer):
        return any(_same_items(one, other, distinct=True) for one, other in product(_signed(gold), _signed(answer)))
    if "text" in (gold[0], answer[0]):
        return _words(gold) == _words(answer) is not None
    if gold[0] in _COLLECTIONS or answer[0] in _COLLECTIONS:
        return _same_collection(gold, answer)
    return same_scalar(gold, answer)


def meaning(words: str) -> Node | None:
    """The value or the set that the words of an answer (`notation.canonical_words`) stand for, if they do."""
    value = number_in_words(words)
    return _MEANINGS.get(words) if value is None else number(str(value))


def _simplified(node: Node) -> Node:
    if node[0] == "rel" and node[1] == ("in",):
        return _simplified(node[2][1])
    if node[0] == "text":
        return meaning(node[1]) or node
    if node == ("const", "R"):
        return _REAL_LINE
    if node == ("const", "emptyset"):
        return _NO_VALUE
    if node[0] == "unit":
        inner = _simplified(node[1])
        if sign := _SIGN_WORDS.get(node[2].strip(". ").lower()):
            return (sign, inner)
        return inner if inner[0] in _COLLECTIONS else ("unit", inner, node[2])
    if node[0] == "neg" and node[1][0] in ("percent", "degree"):
        return (node[1][0], ("neg", node[1][1]))
    if node[0] == "list":
        return relations.joint_solutions(node[1]) or node
    return _matrix(node)


def _matrix(node: Node) -> Node:
    """Sums, products and multiples of matrices worked out; any other node as it is."""
    if node[0] not in ("neg", "mul", "add"):
        return node
    parts = [_matrix(part) for part in (node[1] if node[0] != "neg" else (number("-1"), node[1]))]
    has_matrix = any(part[0] == "matrix" for part in parts)
    return reduce(_matrix_sum if node[0] == "add" else _matrix_product, parts) if has_matrix else node


def _matrix_sum(one: Node, other: Node) -> Node:
    if one[0] != "matrix" or other[0] != "matrix" or [*map(len, one[1])] != [*map(len, other[1])]:
        raise Unreadable("a sum of a matrix and something else")
    rows = zip(one[1], other[1], strict=True)
    return ("matrix", tuple(tuple(("add", cells) for cells in zip(*pair, strict=True)) for pair in rows))


def _matrix_product(one: Node, other: Node) -> Node:
    if "matrix" not in (one[0], other[0]):
        return ("mul", (one, other))
    if one[0] != "matrix" or other[0] != "matrix":
        scale, (kind, rows) = (one, other) if other[0] == "matrix" else (other, one)
        return (kind, tuple(tuple(("mul", (scale, cell)) for cell in row) for row in rows))
    if any(len(row) != len(other[1]) for row in one[1]) or len({*map(len, other[1])}) > 1:
        raise Unreadable("a product of matrices that do not fit")
    columns = [*zip(*other[1], strict=True)]
    pairs = ((tuple(zip(row, column, strict=True)) for column in columns) for row in one[1])
    return ("matrix", tuple(tuple(("add", tuple(("mul", pair) for pair in cell)) for cell in row) for row in pairs))


def _words(node: Node) -> str | None:
    if node[0] == "text":
        return node[1].strip("()") if len(node[1]) <= 3 else node[1]
    if node[0] in ("sym", "const"):
        return node[1].casefold()
    if node[0] == "mul" and all(factor[0] in ("sym", "const") for factor in node[1]):
        return "".join(factor[1] for factor in node[1]).casefold()
    return None


def _same_time(gold: Node, answer: Node) -> bool:
    """Of times of day; the half of the day may be left out, and the minutes of a full hour with it ("3" for 3 p.m.)."""
    if gold[0] != "clock" or answer[0] != "clock":
        time, other = (gold, answer) if gold[0] == "clock" else (answer, gold)
        return other == number(str(time[1])) and time[2:4] == (0, 0)
    times = [(hour % 12 + 12 * (half == "p") if half else hour, *rest) for _, hour, *rest, half in (gold, answer)]
    return times[0] == times[1] or (gold[1:4] == answer[1:4] and "" in (gold[4], answer[4]))


def _sign_choices(node: object) -> int:
    return (node[:1] == ("pm",)) + sum(map(_sign_choices, node)) if isinstance(node, tuple) else 0


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


def _same_relation(gold: Node, answer: Node) -> bool:
    if gold[0] != "rel" or answer[0] != "rel":
        relation, other = (gold, answer) if gold[0] == "rel" else (answer, gold)
        if set(relation[1]) != {"="}:
            solutions = relations.solution_set(relation)
            return solutions is not None and same_answer(solutions[1], other)
        left, right = relation[2][0], relation[2][-1]
        if relation is gold:
            return relations.is_name(left) and same_answer(right, other)
        return (relations.is_quantity(left) or _same_sides(relation)) and same_answer(other, right)
    if set(gold[1]) == set(answer[1]) == {"="}:
        return _same_equation(gold, answer)
    gold_solutions, solutions = relations.solution_set(gold), relations.solution_set(answer)
    if gold_solutions and solutions:
        return gold_solutions[0] == solutions[0] and same_answer(gold_solutions[1], solutions[1])
    if len(gold[1]) != 1 or len(answer[1]) != 1:
        return _same_chain(gold, answer)
    (gold_sign, gold_side), (sign, side) = relations.as_less(gold), relations.as_less(answer)
    factor = relations.constant_factor(gold_side, side)
    return gold_sign == sign and factor is not None and (factor > 0 or sign == "!=")


def _same_equation(gold: Node, answer: Node) -> bool:
    gold_left, gold_right, left, right = gold[2][0], gold[2][-1], answer[2][0], answer[2][-1]
    if gold_left == left:
        return same_answer(gold_right, right)
    if relations.is_name(gold_left) and not symbols_of(left) and left[0] != "text" and _same_sides(answer):
        return same_answer(gold_right, right)
    if any(side[0] in (*_COLLECTIONS, "text") or _sign_choices(side) for side in (gold_left, gold_right, left, right)):
        return False
    gold_side, side = relations.difference(gold_left, gold_right), relations.difference(left, right)
    return relations.constant_factor(gold_side, side) is not None


def _same_chain(gold: Node, answer: Node) -> bool:
    if len(gold[1]) != len(answer[1]):
        return False
    turned = ("rel", tuple(relations.FLIPPED.get(sign, sign) for sign in reversed(answer[1])), answer[2][::-1])
    return any(gold[1] == other[1] and all(map(same_answer, gold[2], other[2])) for other in (answer, turned))


def _same_sides(relation: Node) -> bool:
    """Whether an equation holds identically, as in `3 \\cdot 4 = 12`."""
    return all(same_answer(relation[2][-1], side) for side in relation[2][:-1])


def _same_collection(gold: Node, answer: Node) -> bool:
    kinds = {gold[0], answer[0]}
    if kinds == {"matrix"}:
        sizes, given = ([len(row) for row in node[1]] for node in (gold, answer))
        return sizes == given and all(map(_same_ordered, gold[1], answer[1]))
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
        if all(item[0] == "tuple" for item in pair[2]):
            rows = ("matrix", tuple(item[2] for item in pair[2]))
            return _same_collection(*((rows, other) if pair is gold else (other, rows)))
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
        solutions = relations.solution_set(item) if item[0] == "rel" else None
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
    kept: tuple[Node, ...] = ()
    for item in items:
        if not any(same_answer(other, item) for other in kept):
            kept += (item,)
    return kept

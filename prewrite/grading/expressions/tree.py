"""The tree of an answer. A node is a tuple whose first entry names it:

("num", Fraction, decimals)    decimals: digits after the point as written, 0 for an integer
("sym", name)  ("const", "pi" | "e" | "i" | "inf" | "emptyset" | "R" ...)  ("text", words)
("add", terms)  ("mul", factors)  ("neg" | "inv" | "pm", a)  ("pow", a, b)  ("root", degree, a)
("call", name, arguments)  ("log", base or None, a)  ("binom", n, k)
("abs" | "floor" | "ceil" | "factorial" | "degree" | "percent", a)
("base", digits, base)  ("unit", a, words)  ("matrix", rows)  ("det", rows)  ("ratio", parts)
("parts", a, words, ratio) a quantity in parts, in the last one's unit; how many of it make the first one
("clock", hour, minute, second, "a" | "p" | "")
("list", items)  ("set", items)  ("tuple", opening, items, closing)  ("union", parts)  ("rel", signs, sides)
"""

from fractions import Fraction
from typing import Any

MAX_EXPONENT_DIGITS = 4

Node = tuple[Any, ...]


class Unreadable(Exception):
    """The answer is not in the notation that the parser knows, or has no value that could be compared."""


def number(literal: str) -> Node:
    """The node of a decimal literal, as "0.50" or "1e3"."""
    mantissa, _, exponent = literal.lower().partition("e")
    if len(exponent) > MAX_EXPONENT_DIGITS:
        raise Unreadable("exponent too large")
    return ("num", Fraction(literal), len(mantissa.partition(".")[2]))


def symbols_of(node: object) -> set[str]:
    """The names of the symbols in a tree."""
    if not isinstance(node, tuple) or not node:
        return set()
    return {node[1]} if node[0] == "sym" else set().union(*map(symbols_of, node))


def negated(node: Node) -> Node:
    """The node of the opposite value; a number stays a number."""
    return ("num", -node[1], node[2]) if node[0] == "num" else ("neg", node)


def is_natural(node: Node) -> bool:
    """Whether the node is a positive integer as written."""
    return node[0] == "num" and node[1].denominator == 1 and node[1] > 0

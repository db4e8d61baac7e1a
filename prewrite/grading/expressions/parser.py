"""From a normalised answer to a tree: a small recursive-descent parser for the notation of final answers.

It reads the whole answer or raises `Unreadable`: a parser that drops a tail it does not know ("4\\sqrt(2)" → 4) makes
wrong answers right. `tree` lists the nodes.
"""

import re
from fractions import Fraction

from prewrite.grading.expressions.expression import Expressions
from prewrite.grading.expressions.notation import canonical_words, without_text_commands
from prewrite.grading.expressions.tree import Node, Unreadable, number, symbols_of
from prewrite.grading.expressions.words import KNOWN_UNITS, OTHER_VALUE, number_in_words, scaled, size

MAX_LENGTH = 2_000

_RELATIONS = {"=": "=", "<": "<", ">": ">", r"\le": "<=", r"\ge": ">=", r"\ne": "!=", r"\approx": "=", r"\in": "in"}
_LETTERED_NUMBER = re.compile(
    r"(?=[A-Z]*\d)([0-9A-Z]*[A-Z][0-9A-Z]*)\s*_\s*\{?\s*(?:(1[1-9]|2\d|3[0-6])|\\text\{([a-z]+)\})\s*\}?"
)
_CLOCK = re.compile(
    r"(\d{1,2})(?=.*[:mM])(?:\s*:\s*([0-5]\d)(?:\s*:\s*([0-5]\d))?)?\s*(?:([aApP])\.?\s?[mM]\.?)?(?: o'clock)?"
)
_THOUSANDS = re.compile(r"(?<![\d.,])\d{1,3}(?:,\d{3})+(?![\d,])")
_SPACED_THOUSANDS = re.compile(r"(?<![\d.,])\d{1,3}(?: \d{3})+(?![\d/]| ?\d(?!\d*/\d))")


def parse(answer: str, thousands_commas: bool = True) -> Node:
    """The tree of an answer that `notation.normalise` wrote.

    thousands_commas: read "7,425,000" as one number (a comma with white space after it always separates items).
    Raises Unreadable, also for what is longer than MAX_LENGTH or nested deeper than expression.MAX_DEPTH.
    """
    if not answer or len(answer) > MAX_LENGTH:
        raise Unreadable("empty or too long")
    if thousands_commas:
        answer = _THOUSANDS.sub(lambda match: match.group().replace(",", ""), answer)
    answer = _SPACED_THOUSANDS.sub(lambda match: match.group().replace(" ", ""), answer)
    if clock := _CLOCK.fullmatch(without_text_commands(answer).strip()):
        return ("clock", int(clock[1]), int(clock[2] or 0), int(clock[3] or 0), (clock[4] or "").lower())
    if lettered := _LETTERED_NUMBER.fullmatch(answer):
        return ("base", lettered[1], int(lettered[2] or number_in_words(lettered[3]) or 0))
    return _Answers(answer).parse_all()


class _Answers(Expressions):
    """The parser's upper half: lists, relations, unions, units, words."""

    def parse_all(self) -> Node:
        while self.accept("=", r"\approx"):
            pass
        node = self.items()
        if self.kind() != "end":
            raise Unreadable("unknown notation")
        return node

    def items(self) -> Node:
        items = [self.relation()]
        while self.separator() and self.kind() != "end":
            items.append(self.relation())
        return items[0] if len(items) == 1 else ("list", tuple(items))

    def separator(self) -> bool:
        start = self.position
        while self.accept(",", ";") or self.kind() == "conjunction":
            self.position += self.kind() == "conjunction"
        return self.position > start

    def relation(self) -> Node:
        sides, signs = [self.side()], []
        while self.peek() in _RELATIONS:
            only_rounds = self.peek() == r"\approx" and not symbols_of(sides[-1]) and sides[-1][0] != "text"
            sign, side = _RELATIONS[self.take()], self.side()
            if not only_rounds:  # of 1/3 ≈ 0.33 the first is the answer
                signs.append(sign)
                sides.append(side)
        return ("rel", tuple(signs), tuple(sides)) if signs else sides[0]

    def side(self) -> Node:
        parts = [self.nested(self.quantity)]
        joint = self.peek()
        while joint in (r"\cup", ":") and self.accept(joint):
            parts.append(self.nested(self.quantity))
        return parts[0] if len(parts) == 1 else ("union" if joint == r"\cup" else "ratio", tuple(parts))

    def quantity(self) -> Node:
        if self.kind() == "text":
            return self.words()
        node, unit = self.measured()
        start, ratio = self.position, Fraction(1)
        while unit:
            self.separator()
            part, smaller = self.measured() if self.kind() == "number" else (node, "")
            sizes = size(unit, smaller) if smaller else None
            if sizes is None or sizes[0] <= sizes[1]:
                self.position = start
                break
            node = ("add", (("mul", (node, number(str(Fraction(*sizes))))), part))
            unit, start, ratio = smaller, self.position, ratio * Fraction(*sizes)
        return ("parts", node, unit, ratio) if ratio != 1 else ("unit", node, unit) if unit else node

    def measured(self) -> tuple[Node, str]:
        node = self.expression()
        factor, unit = scaled(self.unit())
        if factor != 1:
            node = ("mul", (node, number(str(factor))))
        if unit.split(" ")[0].removesuffix("s") in OTHER_VALUE:
            raise Unreadable("a word that changes the value")
        return node, unit

    def words(self) -> Node:
        first = self.take()
        if self.peek() == "_":
            return self.base_number(first)
        words = [first]
        while self.kind() in ("text", "letter", "number") or (self.peek() and self.peek() in "-'.!?%"):
            words.append(self.take())
        return ("text", canonical_words(" ".join(words)))

    def unit(self) -> str:
        words = []
        while self.kind() == "text" or (words and self.peek() in ("^", "/", r"\cdot")):
            word = self.take()
            if word == "^":
                braced = self.accept("{")
                word = "^" + ("-" if self.accept("-") else "") + self.take()
                if braced:
                    self.expect("}")
            elif word in ("/", r"\cdot"):
                if self.kind() != "text" and self.peek() not in KNOWN_UNITS:
                    raise Unreadable("half a unit")
                words.append(word)
                word = self.take()
            words.append(word)
        return " ".join(words)

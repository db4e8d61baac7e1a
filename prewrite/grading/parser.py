"""From a normalised answer to a tree: a small recursive-descent parser for the notation of final answers.

It reads the whole answer or raises `Unreadable`: a parser that drops a tail it does not know ("4\\sqrt(2)" → 4) makes
wrong answers right. A node is a tuple whose first entry names it:

    ("num", Fraction, decimals)    decimals: digits after the point as written, 0 for an integer
    ("sym", name)  ("const", "pi" | "e" | "i" | "inf" | "emptyset" | "R" ...)  ("text", words)
    ("add", terms)  ("mul", factors)  ("neg" | "inv" | "pm", a)  ("pow", a, b)  ("root", degree, a)
    ("call", name, arguments)  ("log", base or None, a)  ("binom", n, k)
    ("abs" | "floor" | "ceil" | "factorial" | "degree" | "percent", a)
    ("base", digits, base)  ("unit", a, words)  ("matrix", rows)  ("det", rows)  ("ratio", parts)
    ("list", items)  ("set", items)  ("tuple", opening, items, closing)  ("union", parts)  ("rel", signs, sides)
"""

import re
from fractions import Fraction

from prewrite.grading.notation import canonical_words
from prewrite.grading.units import KNOWN_UNITS

MAX_LENGTH = 2_000
MAX_DEPTH = 60
MAX_POSTFIXES = 3
MAX_EXPONENT_DIGITS = 4

Node = tuple


class Unreadable(Exception):
    """The answer is not in the notation that the parser knows."""


FUNCTIONS = frozenset(
    "sin cos tan cot sec csc arcsin arccos arctan sinh cosh tanh coth ln exp max min gcd lcm".split()
)  # fmt: skip
_INVERSE = {"sin": "arcsin", "cos": "arccos", "tan": "arctan"}
_GREEK = frozenset(
    "alpha beta gamma delta epsilon varepsilon zeta eta theta vartheta iota kappa lambda mu nu xi rho sigma tau upsilon "
    "phi varphi chi psi omega Gamma Delta Theta Lambda Xi Pi Sigma Phi Psi Omega ell hbar angle triangle".split()
)  # fmt: skip
_RELATIONS = {"=": "=", "<": "<", ">": ">", r"\le": "<=", r"\ge": ">=", r"\ne": "!=", r"\approx": "=", r"\in": "in"}
_WORD_COMMANDS = FUNCTIONS | {"log", "sqrt", "pi", "theta", "alpha", "beta", "infty"}
_SPELLED = {"asin": "arcsin", "acos": "arccos", "atan": "arctan"}
_CONJUNCTIONS = {"and", "or"}
WORDS_IN_FORMULAS = _WORD_COMMANDS | set(_SPELLED) | _CONJUNCTIONS | set(KNOWN_UNITS)
_SHORT_WORDS = {"yes", "no", "odd", "even", "all", "none", "dne", "am", "pm", "nan"}
_PRODUCT_WORD_LENGTH = 3
_CONSTANTS = {r"\pi": "pi", r"\infty": "inf", r"\emptyset": "emptyset"}
_DELIMITED = {r"\lfloor": (r"\rfloor", "floor"), r"\lceil": (r"\rceil", "ceil")}
_MATRICES = {"matrix", "pmatrix", "bmatrix", "Bmatrix", "smallmatrix", "array"}

_TOKEN = re.compile(
    r"(?P<space>\s+)|(?P<number>(?:\d+(?:\.\d+)?|\.\d+)(?:[eE][+-]?\d+(?![\d.a-zA-Z{]))?)|(?P<text>\\text\{[^{}]*\})"
    r"|(?P<command>\\(?:[a-zA-Z]+|.))|(?P<word>[a-zA-Z]+)|(?P<sign>.)",
    re.DOTALL,
)
_LETTER_LIST = re.compile(r"\(?[A-Z]\)?(?:\s*(?:,|&|and|or)\s*\(?[A-Z]\)?)+")
_LETTERED_NUMBER = re.compile(r"(?=[A-Z]*\d)([0-9A-Z]*[A-Z][0-9A-Z]*)\s*_\s*\{?\s*(1[1-9]|2\d|3[0-6])\s*\}?")
_THOUSANDS = re.compile(r"(?<![\d.,])\d{1,3}(?:,\d{3})+(?![\d,])")
_SPACED_THOUSANDS = re.compile(r"(?<![\d.,])\d{1,3}(?: \d{3})+(?![\d/]| ?\d)")


def parse(answer: str, thousands_commas: bool = True) -> Node:
    """The tree of an answer that `notation.normalise` wrote.

    thousands_commas: read "7,425,000" as one number (a comma with white space after it always separates items).
    Raises Unreadable, also for what is longer than MAX_LENGTH or nested deeper than MAX_DEPTH.
    """
    if not answer or len(answer) > MAX_LENGTH:
        raise Unreadable("empty or too long")
    if thousands_commas:
        answer = _THOUSANDS.sub(lambda match: match.group().replace(",", ""), answer)
    answer = _SPACED_THOUSANDS.sub(lambda match: match.group().replace(" ", ""), answer)
    if lettered := _LETTERED_NUMBER.fullmatch(answer):
        return ("base", lettered[1], int(lettered[2]))
    return _Parser(answer).parse_all()


def number(literal: str) -> Node:
    mantissa, _, exponent = literal.lower().partition("e")
    if len(exponent) > MAX_EXPONENT_DIGITS:
        raise Unreadable("exponent too large")
    return ("num", Fraction(literal), len(mantissa.partition(".")[2]))


def symbols_of(node: object) -> set[str]:
    """The names of the symbols in a tree."""
    if not isinstance(node, tuple) or not node:
        return set()
    return {node[1]} if node[0] == "sym" else set().union(*map(symbols_of, node))


class _Parser:
    def __init__(self, answer: str) -> None:
        self.tokens: list[tuple[str, str, bool]] = []  # kind, token, follows white space
        self.position = 0
        self.depth = 0
        self.open_bars = 0
        spaced = False
        for match in _TOKEN.finditer(answer):
            if match.lastgroup == "space":
                spaced = True
                continue
            for kind, token in self._split(match.lastgroup or "", match.group()):
                self.tokens.append((kind, token, spaced))
                spaced = False

    def _split(self, kind: str, token: str) -> list[tuple[str, str]]:
        if kind == "text":
            content = token[len(r"\text{") : -1].strip()
            if content.strip(" ,;") in _CONJUNCTIONS:
                return [("conjunction", content)]
            if _LETTER_LIST.fullmatch(content):
                letters = re.findall(r"[A-Z](?![a-z])", content)
                return [part for letter in letters for part in (("sign", ","), ("text", letter))][1:]
            return [("text", content)]
        if kind != "word":
            return [(kind, token)]
        spelled = _SPELLED.get(token, token)
        if spelled in _WORD_COMMANDS:
            return [("command", "\\" + spelled)]
        if token in _CONJUNCTIONS:
            return [("conjunction", token)]
        after_operand = bool(self.tokens) and (self.tokens[-1][0] in ("number", "text") or self.tokens[-1][1] in ")}")
        is_unit = after_operand and len(token) > 1 and token.lower() in KNOWN_UNITS
        is_name = len(token) > _PRODUCT_WORD_LENGTH or (len(token) == _PRODUCT_WORD_LENGTH and token.isupper())
        if is_unit or is_name or token.lower() in _SHORT_WORDS:
            return [("text", token)]
        return [("letter", letter) for letter in token]

    def peek(self, ahead: int = 0) -> str:
        index = self.position + ahead
        return self.tokens[index][1] if index < len(self.tokens) and self.tokens[index][0] != "text" else ""

    def kind(self, ahead: int = 0) -> str:
        index = self.position + ahead
        return self.tokens[index][0] if index < len(self.tokens) else "end"

    def take(self) -> str:
        if self.position >= len(self.tokens):
            raise Unreadable("ends too early")
        self.position += 1
        return self.tokens[self.position - 1][1]

    def accept(self, *wanted: str) -> bool:
        found = self.peek() in wanted
        self.position += found
        return found

    def expect(self, wanted: str) -> None:
        if not self.accept(wanted):
            raise Unreadable(f"expected {wanted}")

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
            signs.append(_RELATIONS[self.take()])
            sides.append(self.side())
        return ("rel", tuple(signs), tuple(sides)) if signs else sides[0]

    def side(self) -> Node:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise Unreadable("nested too deeply")
        parts = [self.quantity()]
        joint = self.peek()
        while joint in (r"\cup", ":") and self.accept(joint):
            parts.append(self.quantity())
        self.depth -= 1
        return parts[0] if len(parts) == 1 else ("union" if joint == r"\cup" else "ratio", tuple(parts))

    def quantity(self) -> Node:
        if self.kind() == "text":
            return self.words()
        node = self.expression()
        unit = self.unit()
        return ("unit", node, unit) if unit else node

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
            elif word in ("/", r"\cdot") and self.kind() != "text":
                raise Unreadable("half a unit")
            words.append(word)
        return " ".join(words)

    def expression(self) -> Node:
        terms = [self.signed_term()]
        while self.peek() in ("+", "-", r"\pm", r"\mp"):
            terms.append(self.signed_term())
        return terms[0] if len(terms) == 1 else ("add", tuple(terms))

    def signed_term(self) -> Node:
        signs = []
        while self.peek() in ("+", "-", r"\pm", r"\mp"):
            signs.append(self.take())
            if len(signs) > MAX_POSTFIXES:
                raise Unreadable("too many signs")
        node = self.term()
        for sign in reversed(signs):
            if sign in (r"\pm", r"\mp"):
                node = ("pm", node)
            if sign in ("-", r"\mp"):
                node = ("num", -node[1], node[2]) if node[0] == "num" else ("neg", node)
        return node

    def term(self) -> Node:
        factors = [self.factor()]
        while True:
            if self.accept(r"\cdot", r"\times"):
                factors.append(self.signed_factor())
            elif self.accept("/"):
                factors.append(("inv", self.signed_factor()))
            elif self.starts_factor():
                factors.append(self.factor())
            else:
                return factors[0] if len(factors) == 1 else ("mul", tuple(factors))

    def signed_factor(self) -> Node:
        if self.accept("-"):
            return ("neg", self.factor())
        self.accept("+")
        return self.factor()

    def starts_factor(self) -> bool:
        token, kind = self.peek(), self.kind()
        if kind == "number":
            return self.tokens[self.position - 1][0] != "number"
        if token == "|":
            return self.open_bars == 0
        return kind == "letter" or token in ("(", "[", "{", r"\{") or (kind == "command" and self.is_atom(token))

    def is_atom(self, command: str) -> bool:
        name = command[1:]
        return (
            name in FUNCTIONS or name in _GREEK or command in _CONSTANTS or command in _DELIMITED
            or name in ("frac", "sqrt", "binom", "log", "begin", "mathbb", "langle", "operatorname")
        )  # fmt: skip

    def factor(self) -> Node:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise Unreadable("nested too deeply")
        node, postfixes = self.atom(), 0
        while self.peek() in ("^", "!", r"\degree", r"\%", "%"):
            postfixes += 1
            if postfixes > MAX_POSTFIXES:
                raise Unreadable("too many postfixes")
            sign = self.take()
            if sign == "^":
                node = ("pow", node, self.exponent())
            elif sign == "!" and node[0] == "factorial":
                raise Unreadable("double factorial")
            else:
                node = ({"!": "factorial", r"\degree": "degree"}.get(sign, "percent"), node)
        self.depth -= 1
        return node

    def exponent(self) -> Node:
        negative = self.accept("-")
        node = self.atom()
        if self.peek() == "^":
            self.take()
            node = ("pow", node, self.nested(self.exponent))
        return ("neg", node) if negative else node

    def nested(self, rule):
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise Unreadable("nested too deeply")
        node = rule()
        self.depth -= 1
        return node

    def atom(self) -> Node:
        kind, token = self.kind(), self.take()
        if kind == "number":
            return self.after_number(token)
        if kind == "letter":
            return self.symbol(token)
        if token in ("(", "["):
            return self.group(token)
        if token == "{":
            return self.until("}", self.items)
        if token == r"\{":
            node = self.until(r"\}", self.items)
            return ("set", node[1] if node[0] == "list" else (node,))
        if token == r"\langle":
            node = self.until(r"\rangle", self.items)
            return ("tuple", "(", node[1] if node[0] == "list" else (node,), ")")
        if token == "|":
            self.open_bars += 1
            node = self.until("|", self.side)
            self.open_bars -= 1
            return ("abs", node)
        if kind == "command":
            return self.command(token)
        raise Unreadable("no value")

    def until(self, closing: str, rule) -> Node:
        node = rule()
        self.expect(closing)
        return node

    def group(self, opening: str) -> Node:
        bars, self.open_bars = self.open_bars, 0
        node = self.items()
        self.open_bars = bars
        closing = self.take()
        if closing not in (")", "]"):
            raise Unreadable("unclosed bracket")
        if node[0] == "list":
            return ("tuple", opening, node[1], closing)
        if opening + closing not in ("()", "[]"):
            raise Unreadable("half-open bracket around one value")
        return node

    def after_number(self, literal: str) -> Node:
        node = number(literal)
        if self.peek() == "_":
            return self.base_number(literal)
        if node[2] or "e" in literal.lower():
            return node
        if self.peek() == r"\frac":
            start = self.position
            self.take()
            numerator, denominator = self.argument(), self.argument()
            if _is_natural(numerator) and _is_natural(denominator) and numerator[1] < denominator[1]:
                return ("num", node[1] + Fraction(numerator[1], denominator[1]), 0)
            self.position = start
        mixed = self.kind() == self.kind(2) == "number" and self.peek(1) == "/"
        if mixed and "." not in self.peek() + self.peek(2) and 0 < int(self.peek()) < int(self.peek(2)):
            numerator, _, denominator = self.take(), self.take(), self.take()
            return ("num", node[1] + Fraction(int(numerator), int(denominator)), 0)
        return node

    def base_number(self, digits: str) -> Node:
        self.expect("_")
        base = self.argument()
        if not _is_natural(base) or not re.fullmatch(r"[0-9A-Za-z.]+", digits):
            raise Unreadable("base")
        return ("base", digits.upper(), int(base[1]))

    def argument(self) -> Node:
        """What a TeX command takes: a braced group, else one digit, letter or command."""
        if self.accept("{"):
            return self.until("}", self.items)
        if self.kind() == "number":
            _, token, spaced = self.tokens[self.position]
            if not token.isdigit():
                return number(self.take())
            self.tokens[self.position : self.position + 1] = [
                ("number", token[0], spaced), *([("number", token[1:], False)] if token[1:] else [])
            ]  # fmt: skip
            return number(self.take())
        if self.accept("-"):
            return ("neg", self.argument())
        return self.nested(self.atom)

    def symbol(self, letter: str) -> Node:
        if letter in ("e", "i") and self.peek() != "_":
            return ("const", letter)
        name = letter
        while self.peek() in ("_", "'"):
            if self.accept("'"):
                name += "'"
                continue
            self.take()
            if not self.accept("{"):
                name += "_" + self.take()
                continue
            name += "_"
            while not self.accept("}"):
                name += self.take()
        return ("sym", name)

    def command(self, token: str) -> Node:
        name = token[1:]
        if token in _CONSTANTS:
            return ("const", _CONSTANTS[token])
        if name in _GREEK:
            return self.symbol(name)
        if name == "frac":
            return ("mul", (self.argument(), ("inv", self.argument())))
        if name == "binom":
            return ("binom", self.argument(), self.argument())
        if name == "sqrt":
            degree = self.until("]", self.expression) if self.accept("[") else number("2")
            return ("root", degree, number(self.take()) if self.kind() == "number" else self.argument())
        if name == "mathbb":
            return ("const", self.until("}", self.take) if self.accept("{") else self.take())
        if token in _DELIMITED:
            closing, kind = _DELIMITED[token]
            return (kind, self.until(closing, self.side))
        if name == "log":
            base = self.argument() if self.accept("_") else None
            return self.applied(lambda argument: ("log", base, argument))
        if name in FUNCTIONS:
            return self.function(name)
        if name == "begin":
            return self.matrix()
        raise Unreadable(token)

    def function(self, name: str) -> Node:
        power = None
        if self.accept("^"):
            power = self.argument() if self.peek() == "{" else self.exponent()
            if power in (("num", Fraction(-1), 0), ("neg", number("1"))) and name in _INVERSE:
                name, power = _INVERSE[name], None
        node = self.applied(lambda argument: ("call", name, argument))
        return node if power is None else ("pow", node, power)

    def applied(self, build) -> Node:
        """A function's argument: one bracket, else the factors up to the next sign or function (`\\sin 2x \\cos x`)."""
        if self.peek() in ("(", "{", "|", "["):
            return build(self.nested(self.atom))
        factors = [self.factor()]
        while self.starts_factor() and self.peek() not in ("(", "[") and self.peek()[1:] not in FUNCTIONS | {"log"}:
            factors.append(self.factor())
        while self.peek() == "/" and self.kind(1) in ("number", "letter"):
            self.take()
            factors.append(("inv", self.factor()))
        return build(factors[0] if len(factors) == 1 else ("mul", tuple(factors)))

    def matrix(self) -> Node:
        name = self.environment_name()
        if name == "array":
            self.environment_name()
        rows, cells = [], [self.side()]
        while not self.accept(r"\end"):
            if self.accept("&"):
                cells.append(self.side())
            else:
                self.expect("\\\\")
                rows.append(tuple(cells))
                if self.accept(r"\end"):
                    cells = []
                    break
                cells = [self.side()]
        if cells:
            rows.append(tuple(cells))
        if self.environment_name() != name or name not in _MATRICES | {"vmatrix"}:
            raise Unreadable("environment")
        return ("det" if name == "vmatrix" else "matrix", tuple(rows))

    def environment_name(self) -> str:
        self.expect("{")
        name = ""
        while not self.accept("}"):
            name += self.take()
        return name


def _is_natural(node: Node) -> bool:
    return node[0] == "num" and node[1].denominator == 1 and node[1] > 0

"""The parser's lower half: sums, products, powers, functions, matrices."""

import re
from collections.abc import Callable
from fractions import Fraction

from prewrite.grading.expressions.tokens import FUNCTIONS, Tokens
from prewrite.grading.expressions.tree import Node, Unreadable, is_natural, negated, number
from prewrite.grading.expressions.words import number_in_words

MAX_DEPTH = 60
MAX_POSTFIXES = 3

_INVERSE = {"sin": "arcsin", "cos": "arccos", "tan": "arctan"}
_GREEK = frozenset(
    ("alpha", "beta", "gamma", "delta", "epsilon", "varepsilon", "zeta", "eta", "theta", "vartheta", "iota", "kappa",
     "lambda", "mu", "nu", "xi", "rho", "sigma", "tau", "upsilon", "phi", "varphi", "chi", "psi", "omega", "Gamma",
     "Delta", "Theta", "Lambda", "Xi", "Pi", "Sigma", "Phi", "Psi", "Omega", "ell", "hbar", "angle", "triangle")
)  # fmt: skip
_CONSTANTS = {r"\pi": "pi", r"\infty": "inf", r"\emptyset": "emptyset"}
_DELIMITED = {r"\lfloor": (r"\rfloor", "floor"), r"\lceil": (r"\rceil", "ceil")}
_MATRICES = {"matrix", "pmatrix", "bmatrix", "Bmatrix", "smallmatrix", "array"}


class Expressions(Tokens):
    """Reads one value; what a bracket or a matrix cell may hold besides (lists, relations) is the subclass's."""

    def __init__(self, answer: str) -> None:
        super().__init__(answer)
        self.depth = 0
        self.open_bars = 0

    def items(self) -> Node:
        raise NotImplementedError  # the subclass reads them

    def side(self) -> Node:
        raise NotImplementedError  # the subclass reads them

    def nested(self, rule: Callable[[], Node]) -> Node:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise Unreadable("nested too deeply")
        node = rule()
        self.depth -= 1
        return node

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
                node = negated(node)
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
        node, postfixes = self.nested(self.atom), 0
        while self.peek() in ("^", "!", r"\degree", r"\%", "%"):
            postfixes += 1
            if postfixes > MAX_POSTFIXES:
                raise Unreadable("too many postfixes")
            sign = self.take()
            if sign == "^":
                node = ("pow", node, self.nested(self.exponent))
            elif sign == "!" and node[0] == "factorial":
                raise Unreadable("double factorial")
            else:
                node = ({"!": "factorial", r"\degree": "degree"}.get(sign, "percent"), node)
        return node

    def exponent(self) -> Node:
        negative = self.accept("-")
        node = self.atom()
        if self.peek() == "^":
            self.take()
            node = ("pow", node, self.nested(self.exponent))
        return ("neg", node) if negative else node

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

    def until(self, closing: str, rule: Callable) -> Node:
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
            if is_natural(numerator) and is_natural(denominator) and numerator[1] < denominator[1]:
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
        if base[0] == "text":  # 21_{\text{five}}
            base = number(str(number_in_words(base[1]) or 0))
        if not is_natural(base) or not re.fullmatch(r"[0-9A-Za-z.]+", digits):
            raise Unreadable("base")
        return ("base", digits.upper(), int(base[1]))

    def argument(self) -> Node:
        """What a TeX command takes: a braced group, else one digit, letter or command."""
        if self.accept("{"):
            return self.until("}", self.items)
        if self.kind() == "number":
            _, token, spaced = self.tokens[self.position]
            if token.isdigit() and token[1:]:
                digits = [("number", token[0], spaced), ("number", token[1:], False)]
                self.tokens[self.position : self.position + 1] = digits
            return number(self.take())
        return ("neg", self.argument()) if self.accept("-") else self.nested(self.atom)

    def symbol(self, letter: str) -> Node:
        if letter in ("e", "i") and self.peek() != "_":
            return ("const", letter)
        name = letter
        while self.peek() in ("_", "'"):
            if self.accept("'"):
                name += "'"
                continue
            self.take()
            name += "_" + (self.up_to_brace() if self.accept("{") else self.take())
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

    def applied(self, build: Callable[[Node], Node]) -> Node:
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
        rows = [[self.side()]]
        while not self.accept(r"\end"):
            if self.accept("&"):
                rows[-1].append(self.side())
                continue
            self.expect("\\\\")
            if self.accept(r"\end"):
                break
            rows.append([self.side()])
        if self.environment_name() != name or name not in _MATRICES | {"vmatrix"}:
            raise Unreadable("environment")
        return ("det" if name == "vmatrix" else "matrix", tuple(map(tuple, rows)))

    def environment_name(self) -> str:
        self.expect("{")
        return self.up_to_brace()

    def up_to_brace(self) -> str:
        name = ""
        while not self.accept("}"):
            name += self.take()
        return name

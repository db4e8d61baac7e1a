"""What an answer is made of: numbers, letters, TeX commands, words."""

import re

from prewrite.grading.expressions.tree import Unreadable
from prewrite.grading.expressions.words import KNOWN_UNITS, METRIC_SYMBOLS, known_unit

FUNCTIONS = frozenset(
    ("sin", "cos", "tan", "cot", "sec", "csc", "arcsin", "arccos", "arctan", "sinh", "cosh", "tanh", "coth", "ln",
     "exp", "max", "min", "gcd", "lcm")
)  # fmt: skip
_WORD_COMMANDS = FUNCTIONS | {"log", "sqrt", "pi", "theta", "alpha", "beta", "infty"}
_SPELLED = {"asin": "arcsin", "acos": "arccos", "atan": "arctan"}
_CONJUNCTIONS = {"and", "or"}
_RATIO_WORD = "to"
WORDS_IN_FORMULAS = _WORD_COMMANDS | set(_SPELLED) | _CONJUNCTIONS | set(KNOWN_UNITS)
_SHORT_WORDS = {"yes", "no", "odd", "even", "all", "none", "dne", "am", "pm", "nan"}
_PRODUCT_WORD_LENGTH = 3
"""So many letters in a row may be a product of symbols; more, or three capitals, are a word."""

_TOKEN = re.compile(
    r"(?s)(?P<space>\s+)|(?P<number>(?:\d+(?:\.\d+)?|\.\d+)(?:[eE][+-]?\d+(?![\d.a-zA-Z{]))?)|(?P<text>\\text\{[^{}]*\})"
    r"|(?P<command>\\(?:[a-zA-Z]+|.))|(?P<word>[a-zA-Z]+)|(?P<sign>.)"
)
_COUNTED = re.compile(r"(\d+(?:\.\d+)?)\s+([a-zA-Z][^\d]*)")
_LETTER_LIST = re.compile(r"\(?[A-Z]\)?(?:\s*(?:,|&|and|or)\s*\(?[A-Z]\)?)+")


class Tokens:
    """The tokens of an answer, each a number, letter, command, text, conjunction or sign, and a position among them."""

    def __init__(self, answer: str) -> None:
        self.tokens: list[tuple[str, str, bool]] = []  # kind, token, follows white space
        self.position = 0
        spaced = False
        for match in _TOKEN.finditer(answer):
            if match.lastgroup == "space":
                spaced = True
                continue
            for kind, token in self._split(match.lastgroup or "", match.group(), spaced):
                self.tokens.append((kind, token, spaced))
                spaced = False

    def _split(self, kind: str, token: str, spaced: bool) -> list[tuple[str, str]]:
        if kind == "text":
            content = token[len(r"\text{") : -1].strip()
            if content.strip(" ,;") in _CONJUNCTIONS:
                return [("conjunction", content)]
            if content.endswith(" and"):
                return [("text", content.removesuffix(" and")), ("conjunction", "and")]
            if _LETTER_LIST.fullmatch(content):
                letters = re.findall(r"[A-Z](?![a-z])", content)
                return [part for letter in letters for part in (("sign", ","), ("text", letter))][1:]
            if counted := _COUNTED.fullmatch(content):
                return [("number", counted[1]), ("text", counted[2])]
            return [("sign", ":")] if content == _RATIO_WORD else [("text", content)]
        if kind != "word":
            return [(kind, token)]
        spelled = _SPELLED.get(token, token)
        if spelled in _WORD_COMMANDS:
            return [("command", "\\" + spelled)]
        if token == _RATIO_WORD:
            return [("sign", ":")]
        if token in _CONJUNCTIONS:
            return [("conjunction", token)]
        last = [kind for kind, _, _ in self.tokens[-2:]]
        per_unit = last[:1] == ["text"] and self.tokens[-1][1] == "/"
        after_operand = per_unit or last[-1:] in (["number"], ["text"]) or (last and self.tokens[-1][1] in ")}")
        stands_apart = spaced or per_unit or token not in METRIC_SYMBOLS
        is_unit = after_operand and len(token) > 1 and known_unit(token) is not None and stands_apart
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

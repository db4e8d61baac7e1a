"""One spelling for one meaning: Unicode and LaTeX variants of an answer become plain LaTeX that the parser reads."""

import json
import re
import unicodedata
from pathlib import Path

from prewrite.grading.expressions.words import spelled_parts

_SUPERSCRIPT = {ord(c): p for c, p in zip("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁽⁾ⁿⁱˣ", "0123456789+-()nix", strict=True)}
_SUBSCRIPT = {ord(c): p for c, p in zip("₀₁₂₃₄₅₆₇₈₉₊₋ₙ", "0123456789+-n", strict=True)}
_SUPERSCRIPT_RUN = re.compile("[" + "".join(map(chr, _SUPERSCRIPT)) + "]+")
_SUBSCRIPT_RUN = re.compile("[" + "".join(map(chr, _SUBSCRIPT)) + "]+")

_TABLES = json.loads(Path(__file__).with_name("notation.json").read_text(encoding="utf-8"))
_CHARACTERS = {character: plain for plain, given in _TABLES["characters"].items() for character in given}
_SYNONYMS = {command: plain for plain, commands in _TABLES["synonyms"].items() for command in commands.split()}
_TRANSLATION = str.maketrans(_CHARACTERS)

_INVISIBLE_COMMAND = re.compile(
    r"\\(?:left|right|displaystyle|textstyle|limits|nolimits|boldsymbol|mathstrut|strut|phantom\{[^{}]*\}|phantom|"
    r"[bB]igg?[lrm]?|rm|bf|it|tiny|small|normalsize|large|Large|LARGE|huge|Huge|(?:text)?color\{[^{}]*\})(?![a-zA-Z])"
)
_CURRENCIES = {"$": "dollars", "€": "euros", "£": "sterling", "¥": "yen", "₹": "rupees"}
_MONEY = re.compile(
    r"\s*(-?)\s*(?:[A-Z]{0,2}\\?(\$)|(?:\\text\{)?([€£¥₹])\}?)\s*(-?(?:\d[\d,]*)?(?:\.\d+)?(?: (?:thousand|million"
    r"|billion|trillion))?)\s*\$?"
    r"|\s*()(?<!\S)(-?\d[\d,]*(?:\.\d+)?)\s?(\\\$|[€£¥₹])\s*"
)
_DECIMAL_COMMA = re.compile(r"^(-?\d{1,3}(?:\.\d{3})*),(\d\d)$")
_ROW_GAP = re.compile(r"\uf8ff\s*\*?\[\s*-?[\d.]+\s*(?:pt|em|ex|mm|cm|in|mu|px)\s*\]")
_NUMBER_GAP = re.compile(r"(?<=\d)(?:\s*\{\s*,\s*\}|,?\\!|\\,|\\;|\\:)\s*(?=\d{3}(?!\d))")
_POINTED_THOUSANDS = re.compile(r"(?<![\d.,'])\d{1,3}(?:(?:\.\d{3}){2,}|(?:'\d{3})+)(?![\d'])")
_SPACE_COMMAND = re.compile(r"\\[,;:!> ]|\\q?quad(?![a-zA-Z])|\\(?:hspace|vspace)\*?\{[^{}]*\}|~|\\$")
_DELIMITER = re.compile(r"\\[()\[\]]|\$|\\\$")
_TEXT_COMMAND = re.compile(
    r"\\(?:text|mbox|hbox|textbf|textit|textrm|textsf|texttt|textnormal|textup|emph|mathrm|mathbf|mathit|mathsf|mathtt|"
    r"operatorname|mathord|bm|bold|boxed|fbox|underline|mathcal|vec|hat)\*?\s*\{([^{}]*)\}"
)
_MATH_IN_TEXT = re.compile(r"[\s\d.,:;/+\-()%\\$]*")
_OVERLINED = re.compile("((?:\\d[\u0304\u0305\u0307])(?:(?:\\d[\u0304\u0305\u0307]?)*\\d[\u0304\u0305\u0307])?)")
_REPEATING = re.compile(
    r"(\d*)\.(\d*)(?:\\(?:overline|bar|overbar|dot|mathring)\s*(?:\{(\d+)\}|(\d))|\((\d+)\)(?!\s*\^))"
)
_DOTTED = re.compile(r"\\dot\s*\{?(\d)\}?(\d{0,12})\\dot\s*\{?(\d)\}?")
_ELLIPSIS = re.compile(
    r"(\d{0,12})\.(\d{0,6}?)(?:(\d)\3{2,20}|(\d{2,6}?)\4{1,20})\s*(?:\\(?:ldots|dots|cdots)(?![a-zA-Z])|\.\.\.)"
)
_COMBINATION = re.compile(
    r"^\s*(?:(?:\{\s*\})?\s*[_^]?\s*\{?\s*(\d{1,4})\s*\}?\s*\{?(?:\\(?:mathrm|text)\{)?\s*([CP])\}?\s*_?\s*\{?\s*(\d{1,4})\s*\}?"
    r"|(C)\s*\(\s*(\d{1,4})\s*,\s*(\d{1,4})\s*\)|(?:\\mathrm\{\s*)?(C)\s*\}?\s*_\s*\{?(\d{1,4})\}?\s*\^\s*\{?(\d{1,4})\}?)\s*$"
)
_COMMAND = re.compile(r"\\[a-zA-Z]+")
_ALIASES = tuple((sign, re.compile(pattern), replacement) for sign, pattern, replacement in (
    ("choose", r"(?:\{|^)([^{}]*)\\choose(?![a-zA-Z])([^{}]*)(?:\}|$)", r"\\binom{\1}{\2}"),
    (r"\over", r"\{([^{}]*)\\over(?![a-zA-Z])([^{}]*)\}", r"{\\frac{\1}{\2}}"),
    ("<", "<=|=<", r"\\le "),
    (">", ">=", r"\\ge "),
    ("!", "!=", r"\\ne "),
    (r"\{", r"\\\{\s*\\\}", r"\\emptyset "),
    (r"\overline", r"\\overline\s*\{\s*([A-Z]{2,})\s*\}", r"\1"),
    ("_", r"(?<![a-zA-Z])[(\[]\s*([0-9A-Z]+)\s*[)\]]\s*_(?=\s*[{\d])", r"\1_"),
    ("_", r"\^\s*\{?(\d+)\}?\s*/\s*_\s*\{?(\d+)\}?", r"\\frac{\1}{\2}"),
    ("{:}", r"\{:\}", ":"),
    ("o", r"(?<=\d)\s*\^\s*(?:o(?![a-zA-Z])|\{\s*o\s*\})", r"\\degree "),
    ("Omega", r"(?<=\d)\s*(?:\\(?:text|mathrm)\{\s*)?([kM]?)\}?\s*\\Omega\s*\}?\s*$", r"\\text{ \1ohm}"),
    ("_", r"_\s*\{?\s*\(\s*(\d+)\s*\)\s*\}?", r"_{\1}"),
    ("base", r"(?<=[\dA-Z])\s*(?:\\text\{\s*)?\(?\s*(?:in )?base[ -](\d+)\s*\)?\s*\}?\s*$", r"_{\1}"),
    ("'", r"^\s*(\d+)\s*'\s*(\d+)\s*(?:''|\")\s*$", r"\1 \\text{ft} \2 \\text{in}"),
    ("mod", r"\(\s*\\?b?mod(?![a-z])\s*([^()]*)\)", r"\\pmod{\1}"),
    ("min", r"(?<=\d)\s*min\.?\s*$", r" \\text{min}"),
    ("`", r"^\s*`([^`]+)`\s*$", r"\1"),
    ("**", r"^\s*\*\*([^*]+)\*\*\s*$", r"\1"),
    ("**", r"\*\*", "^"),
    ("x", r"(?<=\d)\s*x\s*(?=10\s*\^)", r"\\times "),
    ("+", r"\+\s*/\s*-|^\s*\+\s*-", r"\\pm "),
    ("U", r"(?<=[)\]])\s*U\s*(?=[(\[])", r"\\cup "),
    (r"\{", r"^\s*\\\{\s*([a-zA-Z])\s*(?:\\in\s*\\mathbb\s*(?:\{R\}|R)\s*)?[|:]([^,]*\1[^,]*)\\\}\s*$", r"\2"),
    (".", r"\b(sq|cu)\.\s*", r"\1 "),
    ("*", r"\*", r"\\cdot "),
    ("circ", r"\^\s*\{\s*\\circ\s*\}|\^\s*\\circ(?![a-zA-Z])", r"\\degree "),
    ("...", r"\.\.\.", r"\\ldots "),
    ("inf", r"(?<![a-zA-Z\\])(?:positive |\+)?infinity(?![a-zA-Z])|(?<![a-zA-Z\\])inf(?![a-zA-Z])", r"\\infty "),
))  # fmt: skip
"""(what a text must hold for the pattern to be tried, pattern, replacement)"""
_INTERVAL = re.compile(r"(?:^|(?<=\\cup))\s*([\[\]])([^\[\]()]+,[^\[\]()]+)([\[\]])\s*(?=$|\\cup)")
_WORDING = tuple((sign, re.compile(pattern), replacement) for sign, pattern, replacement in (
    (r"\degree", r"\\degree\s*(?:\\text\{\s*)?C(?![a-zA-Z])\}?", r"\\text{ celsius}"),
    (r"\degree", r"\\degree\s*(?:\\text\{\s*)?F(?![a-zA-Z])\}?", r"\\text{ fahrenheit}"),
    ("", r"(?<=\d)\s*(?:\^\s*\{?)?\s*\\text\{\s*(?:st|nd|rd|th)\s*\}(?:\s*\})?|(?<=\d)(?:st|nd|rd|th)\b", ""),
    (r"\text", r"^\s*\\text\{[a-zA-Z ]{3,}(?:\bis|[:=])\}(?=\s*[\\\d(\[-])", ""),
    (r"\text", r"\\frac\s*\{\s*\\text\{([^{}]*)\}\s*\}\s*\{\s*\\text\{([^{}]*)\}\s*\}", r"\\text{\1/\2}"),
))  # fmt: skip
"""Temperatures, ordinal endings, a lead-in ("The answer is"), a unit written as a fraction."""
_SENTENCE_END = " \t\n.,;:\uf8ff"


def normalise(answer: str) -> str:
    """The answer with Unicode signs, spacing, delimiters and synonymous commands written in one way.

    Never drops what carries meaning: a full-width minus stays a minus, `2⁵` becomes `2^{5}` (NFKC would make it 25),
    `3½` becomes `3\\frac{1}{2}` (NFKC would make it 31/2), a thin space between digit groups joins them.
    """
    if money := _MONEY.fullmatch(answer):
        sign, amount, symbol = (
            (money[1], money[4], money[2] or money[3]) if money[4] else (money[5], money[6], money[7])
        )
        amount = _DECIMAL_COMMA.sub(lambda cents: f"{cents[1].replace('.', '')}.{cents[2]}", amount or "")
        answer = rf"{sign}{amount}\text{{ {_CURRENCIES[symbol[-1]]}}}" if amount else answer
    text = _NUMBER_GAP.sub("", _plain_characters(answer))
    text = _POINTED_THOUSANDS.sub(lambda number: re.sub(r"\D", "", number.group()), text)
    text = _INVISIBLE_COMMAND.sub(" ", _DELIMITER.sub(" ", _ROW_GAP.sub("\uf8ff", text.replace("\\\\", "\uf8ff"))))
    text = _SPACE_COMMAND.sub(" ", text)
    text = text.replace("\uf8ff", "\\\\") if r"\begin" in text else re.sub(r"\uf8ff\s?(?=[a-zA-Z])", r"\\", text)
    if "." in text:
        text = _DOTTED.sub(r"\\overline{\1\2\3}", _ELLIPSIS.sub(r"\1.\2\\overline{\3\4}", text))
        text = _REPEATING.sub(_repeating_fraction, text)
    text = spelled_parts(text) or text
    text = _COMBINATION.sub(_combination, text) if "C" in text or "P" in text else text
    text = _replaced(_ALIASES, _COMMAND.sub(lambda command: _SYNONYMS.get(command[0], command[0]), text))
    text = _TEXT_COMMAND.sub(_text_command, _INTERVAL.sub(_interval, text))
    text = _replaced(_WORDING, text)
    text = text.rstrip(_SENTENCE_END).lstrip(" \t\n,;:")
    return re.sub(r"\s+", " ", text)


def _replaced(rules: tuple[tuple[str, re.Pattern[str], str], ...], text: str) -> str:
    for sign, pattern, replacement in rules:
        if sign in text:
            text = pattern.sub(replacement, text)
    return text


def _plain_characters(answer: str) -> str:
    if answer.isascii():
        return answer.replace("\x00", "")
    text = _OVERLINED.sub(
        lambda run: rf"\overline{{{''.join(filter(str.isdigit, run[0]))}}}", unicodedata.normalize("NFC", answer)
    )
    text = _SUPERSCRIPT_RUN.sub(lambda run: "^{" + run.group().translate(_SUPERSCRIPT) + "}", text)
    text = _SUBSCRIPT_RUN.sub(lambda run: "_{" + run.group().translate(_SUBSCRIPT) + "}", text)
    return "".join(map(_plain_character, text.translate(_TRANSLATION)))


def _plain_character(character: str) -> str:
    if character.isascii():
        return character
    compatible = unicodedata.normalize("NFKC", character)
    if "\u2044" in compatible:
        numerator, denominator = compatible.split("\u2044")
        return rf"\frac{{{numerator}}}{{{denominator}}}" if denominator else character
    if (digit := unicodedata.decimal(character, None)) is not None:
        return str(digit)
    if compatible.isspace():
        return " "
    return _CHARACTERS.get(compatible, compatible) if len(compatible) == 1 else character


def _repeating_fraction(match: re.Match[str]) -> str:
    whole, fixed, cycle = match.group(1), match.group(2), match[3] or match[4] or match[5]
    numerator = int((whole or "0") + fixed + cycle) - int((whole or "0") + fixed)
    return rf"{{\frac{{{numerator}}}{{{'9' * len(cycle)}{'0' * len(fixed)}}}}}"


def _combination(match: re.Match[str]) -> str:
    """`{}_{10}C_3`, `^{10}C_3`, `10C3`, `C(10, 3)`, `C_{10}^3`, and P likewise."""
    letter = next(filter(None, (match[2], match[4], match[7])))
    n, k = (int(match[a] or match[b] or match[c]) for a, b, c in ((1, 5, 8), (3, 6, 9)))
    if k > n:
        return match.group()
    return rf"\binom{{{n}}}{{{k}}}" if letter == "C" else rf"\frac{{{n}!}}{{{n - k}!}}"


def _interval(match: re.Match[str]) -> str:
    """`]0,1[` is `(0,1)`."""
    opening, ends, closing = match.groups()
    return f"{'(' if opening == ']' else '['}{ends}{')' if closing == '[' else ']'}"


def _text_command(match: re.Match[str]) -> str:
    content = match.group(1).strip()
    bare = match.group(0).startswith((r"\mathrm", r"\mathbf", r"\mathit", r"\boxed", r"\fbox", r"\vec", r"\bm"))
    if _MATH_IN_TEXT.fullmatch(content) or (bare and len(content) == 1):
        return f" {content} "
    return rf" \text{{{content}}} "


def without_text_commands(text: str) -> str:
    """Normalised LaTeX with the words of `\\text{words}` bare."""
    return re.sub(r"\\text\{([^{}]*)\}", r"\1", text)


def squeezed(text: str) -> str:
    r"""Normalised LaTeX without idle spaces and braces: `\pmod{7}` = `\pmod 7`, but `1 1/2` ≠ `11/2`."""
    return re.sub(r"(?<![\w])\s+|\s+(?!\w)", "", re.sub(r"\{(\w)\}", r" \1", text))


def canonical_words(text: str) -> str:
    """Text for comparison by letters: no text commands, quotes or outer brackets, single spaces, lower case.

    Full stops between letters go too ("p.m." = "PM"), and a leading article.
    """
    text = re.sub(r"(?<=[a-zA-Z])\.|[\"'`$]|(?<=\s)\\ ", "", without_text_commands(text)).casefold()
    text = re.sub(r"\s*([,;:()])\s*", r"\1", re.sub(r"\s+", " ", text)).strip(_SENTENCE_END)
    return re.sub(r"^(?:an?|the) (?=\w)", "", text)

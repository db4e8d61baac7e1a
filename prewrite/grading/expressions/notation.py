"""One spelling for one meaning: Unicode and LaTeX variants of an answer become plain LaTeX that the parser reads."""

import re
import unicodedata

_SUPERSCRIPT = {ord(c): p for c, p in zip("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁽⁾ⁿⁱˣ", "0123456789+-()nix", strict=True)}
_SUBSCRIPT = {ord(c): p for c, p in zip("₀₁₂₃₄₅₆₇₈₉₊₋ₙ", "0123456789+-n", strict=True)}
_SUPERSCRIPT_RUN = re.compile("[" + "".join(map(chr, _SUPERSCRIPT)) + "]+")
_SUBSCRIPT_RUN = re.compile("[" + "".join(map(chr, _SUBSCRIPT)) + "]+")

_CHARACTERS = {
    **dict.fromkeys("‐‑‒–—―−﹣－⁃➖", "-"),
    **dict.fromkeys("\u200b\u200c\u200d\u2060\ufeff\u00ad\u200e\u200f\x00", ""),
    **dict.fromkeys("\u2009\u202f\u2006\u2007\u2008\u200a", r"\,"),
    **dict.fromkeys("×✕✖⨯", r"\times "), **dict.fromkeys("·⋅∙•", r"\cdot "), "÷": "/", "⁄": "/", "∕": "/",
    "±": r"\pm ", "∓": r"\mp ", "√": r"\sqrt ", "∛": r"\sqrt[3]", "∜": r"\sqrt[4]", "∞": r"\infty ",
    "≤": r"\le ", "⩽": r"\le ", "≥": r"\ge ", "⩾": r"\ge ", "≠": r"\ne ", "≈": r"\approx ", "∈": r"\in ",
    "∪": r"\cup ", "∩": r"\cap ", "∅": r"\emptyset ", "⌀": r"\emptyset ", "ℝ": r"\mathbb{R}",
    "ℂ": r"\mathbb{C}", "ℤ": r"\mathbb{Z}", "ℕ": r"\mathbb{N}", "ℚ": r"\mathbb{Q}",
    "°": r"^\circ ", "º": r"^\circ ", "˚": r"^\circ ", "′": "'", "’": "'", "⟨": r"\langle ", "⟩": r"\rangle ",
    "⌊": r"\lfloor ", "⌋": r"\rfloor ", "⌈": r"\lceil ", "⌉": r"\rceil ", "“": '"', "”": '"', "。": ".", "，": ",",
    "∠": r"\angle ", "∶": ":", "∣": "|", "€": "", "£": "", "¥": "", "₹": "",
    "¢": r"\text{ cents}", "…": r"\ldots ",
}  # fmt: skip
_GREEK = (
    "alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa", "lambda", "mu", "nu", "xi",
    "pi", "rho", "sigma", "tau", "upsilon", "phi", "chi", "psi", "omega",
)  # fmt: skip
for _name in _GREEK:
    _CHARACTERS[unicodedata.lookup("GREEK SMALL LETTER " + _name.upper().replace("LAMBDA", "LAMDA"))] = rf"\{_name} "
_TRANSLATION = str.maketrans(_CHARACTERS)

_INVISIBLE_COMMAND = re.compile(
    r"\\(?:left|right|displaystyle|textstyle|limits|nolimits|boldsymbol|mathstrut|strut|phantom\{[^{}]*\}|phantom|"
    r"[bB]igg?[lrm]?|rm|bf|it|tiny|small|normalsize|large|Large|LARGE|huge|Huge|(?:text)?color\{[^{}]*\})(?![a-zA-Z])"
)
_NUMBER_GAP = re.compile(r"(?<=\d)(?:\{,\}|,?\\!|\\,|\\;|\\:)\s*(?=\d{3}(?!\d))")
_SPACE_COMMAND = re.compile(r"\\[,;:!> ]|\\q?quad(?![a-zA-Z])|\\(?:hspace|vspace)\*?\{[^{}]*\}|~|\\$")
_DELIMITER = re.compile(r"\\[()\[\]]|\$|\\\$")
_TEXT_COMMAND = re.compile(
    r"\\(?:text|mbox|hbox|textbf|textit|textrm|textsf|texttt|textnormal|textup|emph|mathrm|mathbf|mathit|mathsf|mathtt|"
    r"operatorname|mathord|bm|bold|boxed|fbox|underline|mathcal|vec|hat)\*?\s*\{([^{}]*)\}"
)
_MATH_IN_TEXT = re.compile(r"[\s\d.,:;/+\-()%\\$]*")
_REPEATING = re.compile(r"(\d*)\.(\d*)\\(?:overline|bar|overbar|dot)\s*(?:\{(\d+)\}|(\d))")
_ELLIPSIS = re.compile(r"(\d{0,12})\.(\d{0,6}?)(\d{1,6}?)\3{2,20}\s*(?:\\(?:ldots|dots|cdots)(?![a-zA-Z])|\.\.\.)")
_ALIASES = (
    (re.compile(r"\\(?:dfrac|tfrac|cfrac)(?![a-zA-Z])"), r"\\frac"),
    (re.compile(r"\\(?:dbinom|tbinom)(?![a-zA-Z])"), r"\\binom"),
    (re.compile(r"\{([^{}]*)\\choose(?![a-zA-Z])([^{}]*)\}"), r"\\binom{\1}{\2}"),
    (re.compile(r"\{([^{}]*)\\over(?![a-zA-Z])([^{}]*)\}"), r"{\\frac{\1}{\2}}"),
    (re.compile(r"\\(?:leq|leqslant)(?![a-zA-Z])|<=|=<"), r"\\le "),
    (re.compile(r"\\(?:geq|geqslant)(?![a-zA-Z])|>="), r"\\ge "),
    (re.compile(r"\\neq(?![a-zA-Z])|!="), r"\\ne "),
    (re.compile(r"\\lt(?![a-zA-Z])"), "<"),
    (re.compile(r"\\gt(?![a-zA-Z])"), ">"),
    (re.compile(r"\\(?:varnothing|O)(?![a-zA-Z])|\\\{\s*\\\}"), r"\\emptyset "),
    (re.compile(r"\\overline\s*\{\s*([A-Z]{2,})\s*\}"), r"\1"),
    (re.compile(r"\\lbrace(?![a-zA-Z])"), r"\\{"),
    (re.compile(r"\\rbrace(?![a-zA-Z])"), r"\\}"),
    (re.compile(r"\\(?:lvert|rvert|vert|mid)(?![a-zA-Z])"), "|"),
    (re.compile(r"\\lbrack(?![a-zA-Z])"), "["),
    (re.compile(r"\\rbrack(?![a-zA-Z])"), "]"),
    (re.compile(r"^\s*(\*\*|`)([^*`]+)\1\s*$"), r"\2"),
    (re.compile(r"\*\*"), "^"),
    (re.compile(r"(?<=\d)\s*x\s*(?=10\s*\^)"), r"\\times "),
    (re.compile(r"\+\s*/\s*-|^\s*\+\s*-"), r"\\pm "),
    (re.compile(r"(?<=[)\]])\s*U\s*(?=[(\[])"), r"\\cup "),
    (re.compile(r"^\s*\\\{\s*([a-zA-Z])\s*(?:\\in\s*\\mathbb\s*(?:\{R\}|R)\s*)?[|:]([^,]*\1[^,]*)\\\}\s*$"), r"\2"),
    (re.compile(r"\b(sq|cu)\.\s*"), r"\1 "),
    (re.compile(r"\\ast(?![a-zA-Z])|\*"), r"\\cdot "),
    (re.compile(r"\\div(?![a-zA-Z])"), "/"),
    (re.compile(r"\\degree(?![a-zA-Z])|\^\s*\{\s*\\circ\s*\}|\^\s*\\circ(?![a-zA-Z])"), r"\\degree "),
    (re.compile(r"\\(?:dots|cdots|ldots|dotsc)(?![a-zA-Z])|\.\.\."), r"\\ldots "),
    (re.compile(r"(?<![a-zA-Z\\])(?:positive |\+)?infinity(?![a-zA-Z])|(?<![a-zA-Z\\])inf(?![a-zA-Z])"), r"\\infty "),
)  # fmt: skip
_INTERVAL = re.compile(r"(?:^|(?<=\\cup))\s*([\[\]])([^\[\]()]+,[^\[\]()]+)([\[\]])\s*(?=$|\\cup)")
_WORDING = (
    (re.compile(r"(?<=\d)\s*(?:\^\s*\{?)?\s*\\text\{\s*(?:st|nd|rd|th)\s*\}(?:\s*\})?|(?<=\d)(?:st|nd|rd|th)\b"), ""),
    (re.compile(r"^\s*\\text\{[a-zA-Z ]{3,}(?:\bis|[:=])\}(?=\s*[\\\d(\[-])"), ""),
    (re.compile(r"\\frac\s*\{\s*\\text\{([^{}]*)\}\s*\}\s*\{\s*\\text\{([^{}]*)\}\s*\}"), r"\\text{\1/\2}"),
)
"""Ordinal endings, a lead-in ("The answer is"), a unit written as a fraction."""
_SENTENCE_END = " \t\n.,;:\uf8ff"


def normalise(answer: str) -> str:
    """The answer with Unicode signs, spacing, delimiters and synonymous commands written in one way.

    Never drops what carries meaning: a full-width minus stays a minus, `2⁵` becomes `2^{5}` (NFKC would make it 25),
    `3½` becomes `3\\frac{1}{2}` (NFKC would make it 31/2), a thin space between digit groups joins them.
    """
    text = _NUMBER_GAP.sub("", _plain_characters(answer))
    text = _INVISIBLE_COMMAND.sub(" ", _DELIMITER.sub(" ", text.replace("\\\\", "\uf8ff")))
    text = _SPACE_COMMAND.sub(" ", text)
    text = text.replace("\uf8ff", "\\\\") if r"\begin" in text else re.sub(r"\uf8ff\s?(?=[a-zA-Z])", r"\\", text)
    text = _REPEATING.sub(_repeating_fraction, _ELLIPSIS.sub(r"\1.\2\\overline{\3}", text))
    for pattern, replacement in _ALIASES:
        text = pattern.sub(replacement, text)
    text = _INTERVAL.sub(_interval, text)
    text = _TEXT_COMMAND.sub(_text_command, text)
    for pattern, replacement in _WORDING:
        text = pattern.sub(replacement, text)
    text = text.rstrip(_SENTENCE_END).lstrip(" \t\n,;:")
    return re.sub(r"\s+", " ", text)


def _plain_characters(answer: str) -> str:
    if answer.isascii():
        return answer.replace("\x00", "")
    text = unicodedata.normalize("NFC", answer)
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
    digit = unicodedata.decimal(character, None)
    if digit is not None:
        return str(digit)
    if compatible.isspace():
        return " "
    return _CHARACTERS.get(compatible, compatible) if len(compatible) == 1 else character


def _repeating_fraction(match: re.Match[str]) -> str:
    whole, fixed, cycle = match.group(1), match.group(2), match.group(3) or match.group(4)
    numerator = int((whole or "0") + fixed + cycle) - int((whole or "0") + fixed)
    return rf"{{\frac{{{numerator}}}{{{'9' * len(cycle)}{'0' * len(fixed)}}}}}"


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

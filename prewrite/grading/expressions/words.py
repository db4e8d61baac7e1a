"""Numbers written in words ("twenty-four"), and the words behind a number: scales ("2.5 million"), units of measure
(their spellings and sizes: `units.json`).

Decisions where graders differ: "5 million" is 5000000 and never 5; a gold in dozens may be answered without the word,
since problems ask how many dozens there are, but "5 dozen" is 60 and not 5. Units are dropped where one side lacks
them, and told apart where both sides name different ones; only quantities in parts ("1 h 15 min") compare by value.
"""

import json
import re
from itertools import pairwise
from pathlib import Path

_ONES = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
)  # fmt: skip
_TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_BELOW_HUNDRED = {word: value for value, word in enumerate(_ONES)}
_BELOW_HUNDRED |= {word: 10 * value for value, word in enumerate(_TENS, start=2)}
_SCALES = {"hundred": 100, "thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
OTHER_VALUE = frozenset(("squared", "cubed", "factorial", "tenth", "hundredth", "thousandth"))
"""Words after which a number is another number: never to be dropped like a unit."""
_ABOVE = {"a": 1, "an": 1} | {word: value for value, word in enumerate(_ONES[1:10], start=1)}
_BELOW = {
    "half": 2, "halve": 2, "third": 3, "quarter": 4, "fourth": 4, "fifth": 5, "sixth": 6, "eighth": 8, "tenth": 10,
}  # fmt: skip
FRACTION_IN_WORDS = rf"\b({'|'.join(_ABOVE)})[ -]({'|'.join(_BELOW)})s?\b"


def fraction_in_words(text: str) -> str | None:
    """ "three quarters" as "3/4"; None for anything else."""
    words = re.fullmatch(f"(?i:{FRACTION_IN_WORDS})", text)
    return f"{_ABOVE[words[1].lower()]}/{_BELOW[words[2].lower()]}" if words else None


def number_in_words(words: str) -> int | None:
    """The natural number below 10^15 that the words spell ("one hundred and five", "two million"), else None."""
    total, group, last_scale, last = 0, 0, 10**15, ""
    for word in re.split(r"[\s-]+", words):
        value = _SCALES.get(word, _BELOW_HUNDRED.get(word))
        if word == "and" and last in _SCALES:
            continue
        if value is None or last == "zero" or (word == "zero" and last):
            return None
        if word in _BELOW_HUNDRED:
            completes_tens = 0 < value < 10 and group % 100 >= 20 and group % 10 == 0
            if group % 100 and not completes_tens:
                return None
            group += value
        elif word == "hundred":
            if group > 99:
                return None
            group = (group or 1) * value
        else:
            if value >= last_scale:
                return None
            total, group, last_scale = total + (group or 1) * value, 0, value
        last = word
    return total + group


def scaled(unit: str) -> tuple[int, str]:
    """(factor, the unit without it) of the words after a number: "million dollars" is (1000000, "dollars")."""
    factor, words = 1, unit.split()
    while words and (scale := _SCALES.get(words[0].lower().removesuffix("s"))):
        factor, words = factor * scale, words[1:]
    return factor, " ".join(words)


_UNITS = json.loads(Path(__file__).with_name("units.json").read_text(encoding="utf-8"))
_SIZES: dict[str, dict[str, int]] = _UNITS["sizes"]  # of the units of one kind, in the smallest of them
_METRIC_FORMS = {
    form: f"{prefix}{symbol}".replace("L", "l").replace("µ", "u")
    for symbol, words in _UNITS["metric"].items() for prefix, spelled in _UNITS["prefixes"].items()
    for form in (prefix + symbol, *(spelled + word + ending for word in words.split() for ending in ("", "s")))
}  # fmt: skip
_FORMS = {
    form: unit for unit, spellings in _UNITS["spellings"].items()
    for word in spellings.split() for form in (word, word + "s")
}  # fmt: skip
KNOWN_UNITS = _METRIC_FORMS | _FORMS | {"ms": "ms", "ns": "ns"}
METRIC_SYMBOLS = {form for form in _METRIC_FORMS.keys() - _FORMS.keys() if len(form) <= 3}
"""Symbols that have their case (mW is not MW) and may also be products of letters."""
_IGNORED = {"unit", "units", "of", "the", "a", "total", ""}
_POWERS = {"square": "^2", "sq": "^2", "cubic": "^3", "cu": "^3"}
_TEMPERATURES = (["celsius"], ["fahrenheit"])
DOZEN = 12


def known_unit(word: str) -> str | None:
    """The one spelling of a unit."""
    return KNOWN_UNITS.get(word) or KNOWN_UNITS.get(word.lower())


def size(unit: str, other: str) -> tuple[int, int] | None:
    """How large two units of one kind are ("hours" and "min": 3600, 60), where parts in them make up one quantity."""
    names = [_known(unit), _known(other)]
    if any(len(name) != 1 for name in names):
        return None
    (one,), (another,) = names
    return next(((kind[one], kind[another]) for kind in _SIZES.values() if one in kind and another in kind), None)


_PART = r"\d+(?:\.\d+)?\s?[a-zA-Z]+\.?"
QUANTITY_IN_PARTS = re.compile(rf"(?<![\w.]){_PART}(?:,?\s?(?:and\s)?{_PART})+")
_LETTERS = re.compile(r"([a-zA-Z]+)\.?")


def spelled_parts(text: str) -> str | None:
    """A quantity in parts ("1 h 15 m") with its units as TeX text, since they are no products of letters; else None."""
    if not QUANTITY_IN_PARTS.fullmatch(text.strip()):
        return None
    words = [word for word in _LETTERS.findall(text) if word != "and"]
    units = ["min" if word == "m" and words[index - 1][0] == "h" else word for index, word in enumerate(words)]
    sizes = [size(*pair) for pair in pairwise(units)]
    if not all(pair and pair[0] > pair[1] for pair in sizes):
        return None
    spelled = iter(units)
    return _LETTERS.sub(lambda word: " " if word[1] == "and" else rf" \text{{{next(spelled)}}} ", text)


def units_conflict(one: str, other: str) -> bool:
    """Whether two units tell two answers apart: "cm" and "m" do, "%" and anything else; "cm" and "apples" do not.

    "" stands for no unit, which conflicts with none.
    """
    if not one or not other:
        return False
    one_known, other_known = _known(one), _known(other)
    if ["percent"] in (one_known, other_known):
        return one_known != other_known
    if ["degree"] in (one_known, other_known) and (one_known in _TEMPERATURES or other_known in _TEMPERATURES):
        return False
    return bool(one_known) and bool(other_known) and one_known != other_known


def _known(unit: str) -> list[str]:
    """The words of a unit in one spelling, sorted; [] where one of them is no known unit."""
    spelled_out = unit.replace(".", "").replace("/", " per ").replace("mph", "mi per h")
    words = [word for word in re.findall(r"[^\W\d_]+|\^-?\d", spelled_out) if word not in _IGNORED]
    canonical = [_POWERS.get(word.lower()) or known_unit(word) or word for word in words]
    if len(canonical) == 2 and canonical[0] == "degree" and canonical[1] in ("celsius", "fahrenheit"):
        return canonical[1:]
    is_unknown = any(word == canonical[i] not in _NAMES and word[0] != "^" for i, word in enumerate(words))
    return [] if is_unknown else sorted(canonical)


_NAMES = set(KNOWN_UNITS.values())

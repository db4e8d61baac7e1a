"""Numbers written in words ("twenty-four"), and the words behind a number: scales ("2.5 million"), units of measure.

Decisions where graders differ: "5 million" is 5000000 and never 5, while a dozen is a unit that may be left out, since
problems ask how many dozens there are. Units are dropped where one side lacks them, and told apart where both sides
name different ones.
"""

import re

_ONES = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
)  # fmt: skip
_TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_BELOW_HUNDRED = {
    **{word: value for value, word in enumerate(_ONES)},
    **{word: 10 * value for value, word in enumerate(_TENS, start=2)},
}
_SCALES = {"hundred": 100, "thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
OTHER_VALUE = frozenset(("squared", "cubed", "factorial", "tenth", "hundredth", "thousandth"))
"""Words after which a number is another number: never to be dropped like a unit."""


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


_SPELLINGS = {
    "cm": "cm centimeter centimetre", "mm": "mm millimeter millimetre", "km": "km kilometer kilometre",
    "m": "m meter metre", "in": "in inch inches", "ft": "ft foot feet", "yd": "yd yard", "mi": "mi mile",
    "s": "s sec second", "min": "min minute", "h": "h hr hour", "day": "day", "week": "week", "month": "month",
    "year": "year yr", "dollar": "dollar usd buck", "cent": "cent", "euro": "euro", "kg": "kg kilogram",
    "g": "g gm gram", "lb": "lb pound", "oz": "oz ounce", "l": "l liter litre", "ml": "ml milliliter", "mph": "mph",
    "degree": "degree deg", "percent": "percent", "am": "am", "pm": "pm",
    "square": "square sq", "cubic": "cubic cu", "per": "per",
}  # fmt: skip
KNOWN_UNITS = {
    form: unit for unit, spellings in _SPELLINGS.items() for word in spellings.split() for form in (word, word + "s")
}
_IGNORED = {"unit", "units", "of", "the", "a", "total", ""}
_POWERS = {"square": "^2", "sq": "^2", "cubic": "^3", "cu": "^3"}


def units_conflict(one: str, other: str) -> bool:
    """Whether two units tell two answers apart: "cm" and "m" do, "%" and anything else; "cm" and "apples" do not.

    "" stands for no unit, which conflicts with none.
    """
    if not one or not other:
        return False
    one_known, other_known = _known(one), _known(other)
    if ["percent"] in (one_known, other_known):
        return one_known != other_known
    return bool(one_known) and bool(other_known) and one_known != other_known


def _known(unit: str) -> list[str]:
    """The words of a unit in one spelling, sorted; [] where one of them is no known unit."""
    spelled_out = unit.lower().replace(".", "").replace("/", " per ").replace("mph", "mi per h")
    words = re.findall(r"[a-z]+|\^-?\d", spelled_out)
    canonical = [_POWERS.get(word) or KNOWN_UNITS.get(word) or word for word in words if word not in _IGNORED]
    if any(word not in _SPELLINGS and not word.startswith("^") for word in canonical):
        return []
    return sorted(canonical)

"""Units of measure: dropped where one side lacks them, and told apart where both sides name different ones."""

import re

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

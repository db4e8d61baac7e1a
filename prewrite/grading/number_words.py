"""Numbers written in words ("twenty-four"), and words that change the number before them ("2.5 million", "5 squared").

Decisions where graders differ: "5 million" is 5000000 and never 5, while a dozen is a unit that may be left out, since
problems ask how many dozens there are.
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

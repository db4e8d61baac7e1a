"""Train rows that are nearly test rows: the same text but for a word, a number, or the words around it."""

import re
from collections import Counter, defaultdict
from collections.abc import Sequence

from prewrite.types import Example

NGRAM = 8  # words; what two texts of one language share by chance is shorter
SHARE = 1 / 3  # of the shorter text's n-grams: one word changed in a text of 20 breaks up to 8 of its 13
COMMON = 8  # test rows, or train rows, with one n-gram, beyond which it is a template's

_WORD = re.compile(r"\w+")


def near_copies(train: Sequence[Example], test: Sequence[Example]) -> list[tuple[Example, Example]]:
    """(train row, test row) for each train row that shares a third of its, or of the test row's, n-grams with that row.

    A text of fewer than NGRAM words has no n-gram and is compared by `overlapping` alone. An n-gram that many rows
    have (a template, a passage asked about often) says nothing and does not count.
    """
    grams_of_test = [_ngrams(example) for example in test]
    holders: dict[int, list[int]] = defaultdict(list)
    for index, grams in enumerate(grams_of_test):
        for gram in grams:
            holders[gram].append(index)
    grams_of_train = [_ngrams(example) for example in train]
    in_train = Counter(gram for grams in grams_of_train for gram in grams if gram in holders)
    found = []
    for example, grams in zip(train, grams_of_train, strict=True):
        telling = (gram for gram in grams if max(in_train[gram], len(holders.get(gram, ()))) <= COMMON)
        shared = Counter(index for gram in telling for index in holders.get(gram, ()))
        share = {index: n / min(len(grams), len(grams_of_test[index])) for index, n in shared.items()}
        nearest = max(share, key=lambda index: (share[index], -index), default=None)
        if nearest is not None and share[nearest] >= SHARE:
            found.append((example, test[nearest]))
    return found


def _ngrams(example: Example) -> set[int]:
    """Hashes of the n-grams, which take a tenth of the memory of their texts."""
    words = _WORD.findall(" ".join(example.fields.values()).casefold())
    return {hash(tuple(words[start : start + NGRAM])) for start in range(len(words) - NGRAM + 1)}

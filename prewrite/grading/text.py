"""Answers that are words: open questions, and macro-F1 over labels."""

import string
import unicodedata
from collections import Counter
from collections.abc import Sequence

from prewrite.grading.reply import answer_part

_ARTICLES = {"a", "an", "the"}


def nq_exact_match(prediction: str | None, golds: str | int | Sequence[str | int]) -> float:
    """1.0 if the prediction equals any gold after SQuAD normalisation, else 0.0 (Natural Questions open).

    golds: one, or several of which any is right. An empty prediction, or None, is never right, also where a gold is
    only an article and normalises to nothing.
    """
    reply = answer_part(prediction)
    return float(bool(reply.strip()) and any(_squad_tokens(reply) == _squad_tokens(gold) for gold in _all(golds)))


def nq_f1(prediction: str | None, golds: str | int | Sequence[str | int]) -> float:
    """The largest token F1 of the prediction with any gold, in [0, 1] (SQuAD: Rajpurkar et al. 2016, section 6.1).

    Where both sides normalise to nothing ("A" and "A") it is 1, as in the code of SQuAD 2.
    """
    reply = answer_part(prediction)
    tokens = _squad_tokens(reply)
    return max((_token_f1(tokens, _squad_tokens(gold)) for gold in _all(golds)), default=0.0) if reply.strip() else 0.0


def _all(golds: str | int | Sequence[str | int]) -> list[str]:
    return [str(gold) for gold in ([golds] if isinstance(golds, str | int) else golds)]


def _token_f1(tokens: list[str], gold_tokens: list[str]) -> float:
    if not tokens or not gold_tokens:
        return float(tokens == gold_tokens)
    common = sum((Counter(tokens) & Counter(gold_tokens)).values())
    return 2 * common / (len(tokens) + len(gold_tokens))


def _squad_tokens(text: str) -> list[str]:
    """Canonical decomposition, lower case, no punctuation (of any script), no articles, split at white space."""
    lowered = unicodedata.normalize("NFD", text).lower()
    kept = (c for c in lowered if c not in string.punctuation and not unicodedata.category(c).startswith("P"))
    return [token for token in "".join(kept).split() if token not in _ARTICLES]


def macro_f1(targets: Sequence[str], predictions: Sequence[str | None], labels: Sequence[str]) -> float:
    """The mean over `labels` of each label's F1 = 2 TP / (2 TP + FP + FN), 0 where that is 0 / 0.

    The label set is fixed: a label that occurs on neither side counts as 0. A prediction outside the set (None, "") is
    wrong: it misses its target's label and is a false positive of none.
    """
    if unknown := set(targets) - set(labels):
        raise ValueError(f"Targets outside the labels {list(labels)}: {sorted(unknown)}")
    pairs = Counter(zip(targets, predictions, strict=True))
    target_counts, prediction_counts = Counter(targets), Counter(predictions)
    occurrences = {label: target_counts[label] + prediction_counts[label] for label in labels}
    return sum(2 * pairs[label, label] / occurrences[label] for label in labels if occurrences[label]) / len(labels)

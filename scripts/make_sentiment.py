"""Writes the embedded data set `sentiment`: short reviews with the label positive or negative.

    python scripts/make_sentiment.py

The sentences are put together by seed from the hand-written clauses of `sentiment_phrases.txt`, so the files come out
the same every time. Each line of phrases is dealt out between train and test, so that the two share no clause and no
verdict. Where a sentence has two sides, the writer's closing verdict is the label.
"""

import json
import random
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

DATA = Path(__file__).resolve().parent.parent / "prewrite" / "tasks" / "data"
PHRASES = Path(__file__).resolve().parent / "sentiment_phrases.txt"
SEED = 7
LABELS = ("positive", "negative")
# How many rows of each kind a domain has for each label.
ROWS = {
    "train": {"plain": 12, "pair": 8, "verdict": 10, "negated": 4, "mixed": 4, "wry": 2},
    "test": {"plain": 6, "pair": 4, "verdict": 5, "negated": 2, "mixed": 2, "wry": 1},
}

# Predicates for any subject: good ones that deny something bad, and the other way round.
NEGATED = {
    "positive": (
        "was not bad at all", "did not disappoint us", "was anything but bad", "was far better than I feared",
        "had no faults that I could see", "gave me no reason to complain", "could not have been better",
        "was never a problem for us",
    ),
    "negative": (
        "was not good at all", "did not please anyone", "was anything but good", "was far worse than I hoped",
        "had nothing good about it", "gave me no reason to smile", "could not have been worse",
        "was never as good as promised",
    ),
}  # fmt: skip
OPENERS = ("Well", "To be honest", "In short", "For me", "Overall", "I must say", "All in all", "This time")
OPENER_SHARE = 0.2


class Domain:
    """The phrases of one domain and one split, by label: (subject, predicate) clauses and whole closing phrases."""

    def __init__(self, block: str, part: int):
        self.name, *lines = block.strip().splitlines()
        self.clauses: dict[str, list[tuple[str, str]]] = {label: [] for label in LABELS}
        self.phrases: dict[tuple[str, str], list[str]] = {}
        subject = ""
        for line in lines:
            marked = re.fullmatch(r"(?P<name>\w* ?)(?P<sign>[+-]) (?P<phrases>.*)", line)
            if marked is None:
                subject = line
                continue
            label = LABELS["+-".index(marked["sign"])]
            dealt = marked["phrases"].split("; ")[part::2]
            if marked["name"]:
                self.phrases[marked["name"].strip(), label] = dealt
            else:
                self.clauses[label] += [(subject, predicate) for predicate in dealt]


def sentence(*parts: str) -> str:
    """The parts, each made a sentence of its own."""
    return " ".join(f"{part[0].upper()}{part[1:]}." for part in parts)


def compose(kind: str, domain: Domain, label: str, part: int, rng: random.Random) -> str:
    """One text of the given kind whose writer is happy (positive) or unhappy (negative)."""
    (subject, predicate), (other, other_predicate) = rng.sample(domain.clauses[label], 2)
    clause = f"the {subject} {predicate}"
    verdict = rng.choice(domain.phrases["verdict", label])
    if kind == "plain":
        return sentence(clause)
    if kind == "pair":
        second = f"the {other} {other_predicate}"
        return rng.choice([sentence(clause, second), sentence(f"{clause}, and {second}")])
    if kind == "verdict":
        return rng.choice([sentence(clause, verdict), sentence(verdict, clause)])
    if kind == "negated":
        denial = f"the {subject} {rng.choice(NEGATED[label][part::2])}"
        return rng.choice([sentence(denial), sentence(denial, verdict)])
    if kind == "mixed":
        concession = rng.choice(domain.phrases["small", LABELS[1 - LABELS.index(label)]])
        return rng.choice(
            [sentence(f"{concession}, but {clause}", verdict), sentence(f"although {concession}, {clause}", verdict)]
        )
    assert kind == "wry", kind
    remark = rng.choice(domain.phrases["wry", label])
    return rng.choice([sentence(remark), sentence(clause, remark)])


def make_split(name: str, part: int, rng: random.Random) -> list[dict[str, str]]:
    """The shuffled rows of one split; part (0 or 1) says which half of every bank is its own."""
    rows, bare_texts = [], set()
    for block in PHRASES.read_text(encoding="utf-8").split("\n\n")[1:]:
        domain = Domain(block, part)
        for label in LABELS:
            for kind, count in ROWS[name].items():
                for _ in range(count):
                    bare = compose(kind, domain, label, part, rng)
                    while bare in bare_texts:
                        bare = compose(kind, domain, label, part, rng)
                    bare_texts.add(bare)
                    rows.append({"text": with_opener(bare, rng), "label": label, "domain": domain.name})
    rng.shuffle(rows)
    return [{"id": f"{name}-{number:04d}", **row} for number, row in enumerate(rows)]


def with_opener(text: str, rng: random.Random) -> str:
    """The text, now and then with a neutral opening word."""
    if rng.random() >= OPENER_SHARE:
        return text
    first = text if text.startswith("I ") else text[0].lower() + text[1:]
    return f"{rng.choice(OPENERS)}, {first}"


def write_jsonl(path: Path, rows: Iterable[dict[str, str]]) -> None:
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")


def main() -> None:
    rng = random.Random(SEED)
    DATA.mkdir(parents=True, exist_ok=True)
    for part, name in enumerate(ROWS):
        rows = make_split(name, part, rng)
        path = DATA / f"sentiment_{name}.jsonl"
        write_jsonl(path, rows)
        print(f"{path}: {len(rows)} rows, {dict(Counter(row['label'] for row in rows))}")


if __name__ == "__main__":
    main()

"""Writes the embedded data set `arithmetic`: one-sentence problems whose answer is a whole number from 1 to 99.

    python scripts/make_arithmetic.py

Names, things and numbers are drawn by seed, so the files come out the same every time; no problem stands in both.
"""

import json
import random
from pathlib import Path

DATA = Path(__file__).resolve().parent.parent / "prewrite" / "tasks" / "data"
SEED = 11
ROWS = {"train": 500, "test": 200}
NAMES = ("Ana", "Ben", "Chloe", "David", "Emma", "Farid", "Grace", "Hugo", "Iris", "Jonas", "Kim", "Lena")
THINGS = ("apples", "books", "coins", "eggs", "cards", "stamps", "shells", "pencils", "marbles", "stickers")
PLUS = (
    "{name} has {a} {things} and gets {b} more. How many {things} does {name} have now?",
    "There are {a} {things} in one box and {b} in another. How many {things} are there in all?",
    "What is {a} + {b}?",
)
MINUS = (
    "{name} has {a} {things} and gives away {b}. How many {things} are left?",
    "A shop had {a} {things} and sold {b} of them. How many {things} are still there?",
    "What is {a} - {b}?",
)
TIMES = (
    "{name} buys {a} bags with {b} {things} in each. How many {things} is that?",
    "What is {a} times {b}?",
)


def problem(rng: random.Random) -> tuple[str, str, int]:
    """A problem, its solution and its answer."""
    kind = rng.choice("++--*")
    words = {"name": rng.choice(NAMES), "things": rng.choice(THINGS)}
    if kind == "*":
        a, b = rng.randint(2, 9), rng.randint(2, 9)
        return rng.choice(TIMES).format(a=a, b=b, **words), f"{a} times {b} is {a * b}", a * b
    a, b = rng.randint(2, 49), rng.randint(2, 49)
    if kind == "+":
        return rng.choice(PLUS).format(a=a, b=b, **words), f"{a} plus {b} is {a + b}", a + b
    a, b = max(a, b) + 1, min(a, b)
    return rng.choice(MINUS).format(a=a, b=b, **words), f"{a} minus {b} is {a - b}", a - b


def main() -> None:
    """Writes arithmetic_train.jsonl and arithmetic_test.jsonl."""
    rng, answers = random.Random(SEED), {}
    while len(answers) < sum(ROWS.values()):
        text, *solved = problem(rng)
        answers.setdefault(text, solved)
    rows = iter(answers.items())
    for split, size in ROWS.items():
        with (DATA / f"arithmetic_{split}.jsonl").open("w", encoding="utf-8", newline="\n") as file:
            for _ in range(size):
                text, (solution, answer) = next(rows)
                file.write(json.dumps({"problem": text, "solution": solution, "answer": str(answer)}) + "\n")


if __name__ == "__main__":
    main()

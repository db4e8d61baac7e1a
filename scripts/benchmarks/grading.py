"""Answers graded a second, and how many verdicts are right, against math-verify alone in the same run.

    python -m scripts.benchmarks.grading --data DIR    # a folder of gsm8k_test.jsonl, aime*.jsonl, math500_test.jsonl

Every gold is graded once against itself in other words (right) and once against another row's gold (wrong where the two
texts differ as numbers). The hostile batch is 48 texts that stop other graders and 16 honest answers.
"""

import argparse
import json
import logging
import os
import random
import re
import sys
import time
from pathlib import Path

from math_verify import parse, verify

from prewrite.grading import grade_math

HOSTILE = [
    "9^{9^{9^9}}", "10^9!", "(10^9)!", r"\dfrac{5^{\left(5^{\left(5^{\left(5^5\right)}\right)} - 4\right)} - 5}{16}",
    r"\sin(\sin(e^{e^{e^{3}}}+3))", "{" * 5_000 + "1" + "}" * 5_000, "(" * 3_000 + "1" + ")" * 3_000, "x" * 100_000,
    r"\boxed{" * 15_000, "1+" * 40_000 + "1", r"\frac{1}{" * 150 + "2" + "}" * 150, r"\binom{10^9}{5\cdot10^8}",
    r"\sum_{k=1}^{10^{9}} \frac{1}{k^2}", r"\prod_{k=1}^{10^8} k", r"(1+\frac{1}{10^{9}})^{10^{9}}", "exit()",
]  # fmt: skip


def golds(folder: Path, *names: str) -> list[str]:
    lines = [line for name in names for line in (folder / f"{name}.jsonl").read_text("utf-8").splitlines()]
    return [json.loads(line)["answer"] for line in lines]


def labelled_pairs(answers: list[str], reword, seed: int = 0) -> list[tuple[str, str, bool]]:
    """(completion, gold, whether it is right), half of them right."""
    draw = random.Random(seed)
    pairs = []
    for gold in answers:
        other = draw.choice(answers)
        pairs.append((completion(reword(gold)), gold, True))
        if essence(other) != essence(gold):
            pairs.append((completion(other), gold, False))
    return pairs


def essence(answer: str) -> str:
    return re.sub(r"\\(?:circ|text\{[^{}]*\})|\W", "", answer)


def completion(answer: str) -> str:
    return f"<think>First 3 + 4 = 7, or \\boxed{{7}}?</think>Step by step, we get $\\boxed{{{answer}}}$."


def reword_number(text: str) -> str:
    return f"{int(text):,}" if text.lstrip("-").isdigit() else text


def reword_formula(text: str) -> str:
    return "{" + text.replace(r"\frac", r"\dfrac").replace("+", " + ") + "}"


def math_verify_alone(pairs: list[tuple[str, str, bool]]) -> list[bool]:
    return [verify(parse(f"${gold}$"), parse(text)) for text, gold, _ in pairs]


def report(name: str, pairs: list[tuple[str, str, bool]], compared: int) -> None:
    grade_math([(completion("x"), "5")])
    started = time.perf_counter()
    verdicts = grade_math([(text, gold) for text, gold, _ in pairs], budget_s=600)
    ours = time.perf_counter() - started
    few = random.Random(0).sample(pairs, min(compared, len(pairs)))
    started = time.perf_counter()
    theirs = math_verify_alone(few)
    seconds = time.perf_counter() - started
    for who, count, elapsed, right in (
        ("prewrite.grading", len(pairs), ours, sum(v is pair[2] for v, pair in zip(verdicts, pairs, strict=True))),
        ("math-verify", len(few), seconds, sum(v is pair[2] for v, pair in zip(theirs, few, strict=True))),
    ):
        print(f"{name:<24} {who:<18} {count:>6} {count / elapsed:>10,.0f} /s  {right / count:>7.2%} right")


def report_hostile() -> None:
    hostile = [f"{text} + {number}" for number in range(3) for text in HOSTILE]
    batch = [(f"\\boxed{{{text}}}", "5") for text in hostile] + [(r"\boxed{\frac{10}{2} + x - x}", "5")] * 16
    started = time.perf_counter()
    verdicts = grade_math(batch)
    honest = verdicts[-16:].count(True)
    print(f"{'hostile batch':<24} {'prewrite.grading':<18} {len(batch):>6} {time.perf_counter() - started:>10.1f} s   "
          f"{honest}/16 honest right, {verdicts[:48].count(True)}/48 hostile accepted")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=os.environ.get("PREWRITE_DATA"), help="default: $PREWRITE_DATA")
    parser.add_argument("--compared", type=int, default=300, help="pairs that math-verify grades (default 300)")
    arguments = parser.parse_args()
    if arguments.data is None or not (Path(arguments.data) / "math500_test.jsonl").exists():
        sys.exit(f"--data {arguments.data}: no math500_test.jsonl there; give the folder with the data files")
    folder = Path(arguments.data)
    logging.disable()
    print(f"{len(os.sched_getaffinity(0))} processors, load {os.getloadavg()[0]:.1f}")
    school = golds(folder, "gsm8k_test", "aime2024_test", "aime2025_I_test", "aime2025_II_test")
    report("GSM8K and AIME", labelled_pairs(school, reword_number), arguments.compared)
    report("MATH-500", labelled_pairs(golds(folder, "math500_test"), reword_formula), arguments.compared)
    report_hostile()


if __name__ == "__main__":
    main()

"""What each meta-instruction's rewrites are worth, from a table of `verdicts.py --meta-instructions`.

PYTHONPATH=. python scripts/benchmarks/meta_table.py docs/runs/.../verdicts-gsm8k.jsonl ...
"""

import json
import sys
from pathlib import Path

import numpy as np

from scripts.benchmarks.asking import mean_of_marks


def main() -> None:
    """Prints a table a file."""
    for name in sys.argv[1:]:
        head, *lines = [json.loads(line) for line in Path(name).read_text(encoding="utf-8").splitlines()]
        means = {line["rewrite"]: 100 * mean_of_marks(line["marks"]) for line in lines}
        fixed = ", ".join(f"{key} {means[key]:.1f}" for key in ("initial", "by_hand") if key in means)
        print(f"{head['task']}, {len(head['examples'])} examples: {fixed}\n")
        print("| | rewrites | mean | sd | best quarter | best | meta-instruction |\n" + "| --- " * 7 + "|")
        for number, text in enumerate(head["meta_instructions"]):
            own = np.sort([mean for key, mean in means.items() if key.startswith(f"{number}/")])[::-1]
            if len(own):
                quarter = own[: max(1, len(own) // 4)].mean()
                print(
                    f"| {number} | {len(own)} | {own.mean():.1f} | {own.std():.1f} | {quarter:.1f} | {own[0]:.1f} | {text} |"
                )
        print()


if __name__ == "__main__":
    main()

"""Makes instruction rows (`data.instructions_file`) of tasks: one a task, or one for each of its subjects or levels.

    python -m scripts.prepare_data --task math-500 --by subject --out rows.jsonl
    python -m scripts.prepare_data --task gsm8k --tags problem --instruction 'Solve it: {problem}' --out rows.jsonl

The instruction is the task's default one, or --instruction. Rewrites of rows with --tags are templates, whose tags the
problem's fields fill (`template_accuracy_math_reward`). Data comes from --local-dir, PREWRITE_DATA or the hub.
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from prewrite.errors import UserError
from prewrite.secrets import ArgumentParser
from prewrite.tasks import get_task
from prewrite.tasks.base import Task
from prewrite.tasks.files import instruction_row
from prewrite.tasks.loading import load_examples
from prewrite.writing import write_whole


def rows_of(
    task: Task, *, instruction: str | None, by: str | None, tags: Sequence[str], local_dir: Path | None
) -> list[dict[str, Any]]:
    """A row, or one for each value that the train examples have in `by` ("subject" or "level"). Raises UserError."""
    if unknown := [tag for tag in tags if tag not in task.fields]:
        raise UserError(f"--tags {unknown[0]}: the columns of {task.name} are {', '.join(task.fields)}")
    row: dict[str, Any] = {
        "instruction": task.default_instruction if instruction is None else instruction,
        "dataset_name": task.name,
    }
    if tags:
        row["tags"] = list(tags)
    if by is None:
        return [row]
    values = {getattr(example, by) for example in load_examples(task, "train", local_dir=local_dir)} - {None}
    if not values:
        raise UserError(f"--by {by}: no train example of {task.name} has one")
    return [row | {by: value} for value in sorted(values)]


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code: 0, or 2 for a fault of the user's."""
    parser = ArgumentParser("python -m scripts.prepare_data", description=str(__doc__).partition("\n")[0])
    parser.add_argument(
        "--task", action="append", required=True, help="repeatable; python -m prewrite.tasks lists them"
    )
    parser.add_argument("--instruction", help="in place of each task's default one")
    parser.add_argument(
        "--by",
        choices=("subject", "level"),
        help="a row for each that the train examples have",
    )
    parser.add_argument("--tags", nargs="+", default=[], help="columns of the task that a template has to name")
    parser.add_argument("--local-dir", type=Path, help="folder with the task's local files")
    parser.add_argument("--out", type=Path, required=True, help="a .jsonl file")
    given = parser.parse_args(arguments)
    about = {"instruction": given.instruction, "by": given.by, "tags": given.tags, "local_dir": given.local_dir}
    try:
        if given.out.suffix != ".jsonl":
            raise UserError(f"--out {given.out}: give a name that ends in .jsonl")
        rows = [row for name in given.task for row in rows_of(get_task(name), **about)]
        for number, row in enumerate(rows, start=1):
            instruction_row(row, f"row {number}")
        write_whole(given.out, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    except OSError as error:
        print(f"prepare_data: {given.out} cannot be written ({error.strerror})", file=sys.stderr)
        return 2
    except UserError as error:
        print(f"prepare_data: {error}", file=sys.stderr)
        return 2
    print(f"{given.out}: {len(rows)} rows")
    return 0


if __name__ == "__main__":
    sys.exit(main())

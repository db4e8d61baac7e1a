"""Lists the rewards, or tries one on a file:  python -m prewrite.rewards [NAME FILE [--set key=value ...]]"""

import contextlib
import inspect
import io
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from prewrite.asking.cleaning import clean_rewrite
from prewrite.errors import UserError
from prewrite.rewards import REWARDS, Reward, score_completions
from prewrite.secrets import ArgumentParser
from prewrite.tasks import get_task
from prewrite.tasks.base import KINDS
from prewrite.tasks.files import is_missing, read_rows
from prewrite.types import Evaluation, Verdict

_SHOWN = 70
_READS = {"f1_classification_reward": ("target",), "f1_nq_open_instruction_prewrite_reward": ("f1",)}


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit codes: 0, and 2 for a fault of the user's, told in one message."""
    parser = ArgumentParser("python -m prewrite.rewards", description=str(__doc__))
    parser.add_argument("name", nargs="?", help="a reward, or your own as package.module:function")
    columns = "JSONL, CSV or parquet: `completion`, `verdicts`, the row's columns"
    parser.add_argument("file", nargs="?", type=Path, help=columns)
    parser.add_argument("--set", action="append", default=[], metavar="key=value", dest="parameters")
    parsed = parser.parse_args(arguments)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        if parsed.name is None:
            print("\n".join(table()))
        elif parsed.file is None:
            raise UserError(f"{parsed.name}: give a file to try it on, with `completion` and the row's columns")
        else:
            print("\n".join(tried(parsed.name, parsed.file, dict(map(_parameter, parsed.parameters)))))
    except UserError as error:
        print(f"python -m prewrite.rewards: {error}", file=sys.stderr)
        return 2
    return 0


def table() -> list[str]:
    """A line a reward: what it scores, its range, arguments and what it needs."""
    rows = [("reward", "of", "range", "needs", "arguments")]
    for reward in REWARDS.values():
        of = " or ".join({"rewrite": "rewrites", "solve": "solutions"}[name] for name in reward.objectives)
        arguments = ", ".join(map(_argument, reward.parameters.values())) or "-"
        rows.append((reward.name, of, "{:g} to {:g}".format(*reward.range), _needs(reward), arguments))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def tried(name: str, path: Path, parameters: Mapping[str, Any]) -> list[str]:
    """A line a row, its score and its completion, and the mean."""
    rows = read_rows(path)
    places = [f"{path}: row {number}" for number in range(1, len(rows) + 1)]
    texts = [_text(row.get("completion"), place) for row, place in zip(rows, places, strict=True)]
    columns = [{key: value for key, value in row.items() if key not in ("completion", "verdicts")} for row in rows]
    reads = _READS.get(name, ())
    given = [_evaluation(row, text, reads, place) for row, text, place in zip(rows, texts, places, strict=True)]
    evaluations = given if any(given) else None
    names = [str(row["dataset_name"]) for row in rows if "dataset_name" in row]
    tasks = [get_task(task) for task in names] if len(names) == len(rows) else ()
    no_examples = [()] * len(rows)
    scores = score_completions(
        name, texts, columns, evaluations=evaluations, tasks=tasks, examples=no_examples, **parameters
    )
    lines = [
        f"{'-' if score is None else format(score, '.4g'):>8}  {' '.join(text.split())[:_SHOWN]}"
        for score, text in zip(scores, texts, strict=True)
    ]
    given = [score for score in scores if score is not None]
    mean = f"mean {sum(given) / len(given):.4g} over {len(given)}" if given else "no score"
    missing = len(scores) - len(given)
    return [*lines, mean + (f"; {missing} without a verdict, or another reward's" if missing else "")]


def _evaluation(row: Mapping[str, Any], text: str, reads: Sequence[str], where: str) -> Evaluation | None:
    """What the column `verdicts` says: a list (in CSV its JSON) of true, false and null (no verdict), or of objects
    with `Verdict`'s fields; None without it. reads: what the reward needs of each beside `correct`."""
    if is_missing(given := row.get("verdicts")) or given == "":
        return None
    if isinstance(given, str):
        with contextlib.suppress(ValueError, RecursionError):  # it is refused below
            given = json.loads(given)
    plain: dict[str, Any] = {"example_id": "", "target": "", "prediction": None, "correct": None, "well_formed": True}
    try:
        if not isinstance(given, list):
            raise TypeError(f"a {type(given).__name__}")
        verdicts = [Verdict(**plain | (one if isinstance(one, dict) else {"correct": one})) for one in given]
    except TypeError as error:
        raise UserError(f"{where}: `verdicts` is no list of true, false, null or objects ({error})") from error
    for verdict in verdicts:
        numbers = (verdict.f1, verdict.share, verdict.target_logprob)
        are_numbers = all(number is None or type(number) in (int, float) for number in numbers)
        if not are_numbers or not isinstance(verdict.correct, bool | None):
            raise UserError(f"{where}: `verdicts`: `correct` is true, false or null, and `f1` a number")
        if verdict.correct is not None and any(getattr(verdict, field) in ("", None) for field in reads):
            raise UserError(f"{where}: `verdicts` must be objects with {', '.join(reads)} too, which the reward reads")
    return Evaluation(clean_rewrite(text), str(row.get("dataset_name", "")), tuple(verdicts))


def _needs(reward: Reward) -> str:
    needs = list(reward.columns)
    if reward.asking is not None:
        needs.append("the task model's answers" + ("" if reward.kinds == KINDS else f" ({', '.join(reward.kinds)})"))
    return ", ".join(needs) or "-"


def _argument(parameter: inspect.Parameter) -> str:
    return parameter.name if parameter.default is parameter.empty else f"{parameter.name}={parameter.default}"


def _parameter(text: str) -> tuple[str, Any]:
    key, equals, raw = text.partition("=")
    if not equals or not key:
        raise UserError("--set: the rule is key=value, with an argument of the reward")
    try:
        return key, json.loads(raw)
    except ValueError:
        return key, raw  # a bare word is text


def _text(completion: object, where: str) -> str:
    """The text of a completion, which TRL's data sets also write as a list of messages."""
    if isinstance(completion, list) and completion and isinstance(completion[-1], dict):
        completion = completion[-1].get("content")
    if not isinstance(completion, str):
        raise UserError(f"{where}: `completion` must be a text, or a list of messages with `content`")
    return completion


if __name__ == "__main__":
    sys.exit(main())

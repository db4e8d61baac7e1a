"""Before anything is asked: what is to be evaluated, all of it checked; and what the examples at hand can show."""

import argparse
import contextlib
import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from prewrite.asking import TEMPLATE
from prewrite.errors import UserError
from prewrite.evaluation.arguments import DEFAULT_TOP_K_OF_A_LOG
from prewrite.evaluation.prompts import Candidate, Prompts, read_prompts, tasks_of
from prewrite.evaluation.setup import Setup, set_up
from prewrite.evaluation.sources import compared_together, cut, prompt_files
from prewrite.evaluation.statistics import paired_power, rows_needed, share_interval
from prewrite.tasks import TASKS
from prewrite.tasks.base import Task
from prewrite.tasks.files import require_rows
from prewrite.tasks.loading import load_examples
from prewrite.tasks.rows import own_examples, row_names
from prewrite.types import Example, InstructionRow

logger = logging.getLogger(__name__)

GAINS = (0.02, 0.05, 0.1)
TYPICAL_DISCORDANT = 0.27  # share of examples on which two instructions differ, in the runs measured
LEVEL = 0.05
POWER = 0.8


@dataclass(frozen=True)
class Part:
    """Instructions to compare on the test examples of a row. by_role: baselines first. whole_test: of the row."""

    row: InstructionRow
    task: Task
    by_role: Mapping[str, Candidate]
    facts: Mapping[str, str]
    notes: tuple[str, ...]
    whole_test: Sequence[Example]
    limit: int | None

    @property
    def examples(self) -> Sequence[Example]:
        return self.whole_test[: self.limit]

    @property
    def num_ranked(self) -> int:
        """Instructions beside the baselines."""
        return sum(role.startswith("rank") for role in self.by_role)


@dataclass(frozen=True)
class Job:
    """What one report is of, and the file that it is for: a row, or all rows of a prompts file."""

    parts: Sequence[Part]
    out: Path

    @property
    def names(self) -> list[str]:
        """Of the rows."""
        return row_names([part.row for part in self.parts])

    @property
    def tasks(self) -> str:
        return ", ".join(dict.fromkeys(part.task.name for part in self.parts))


def rows_file(out: Path) -> Path:
    """The file of answers beside a report."""
    return out.with_name(f"{out.stem}.rows.jsonl")


@dataclass(frozen=True)
class Plan:
    """All that a command line asks for, checked."""

    setup: Setup
    jobs: Sequence[Job]


def make_plan(arguments: argparse.Namespace, *, will_be_rewritten: bool = False) -> Plan:
    """Reads prompts and test splits. Raises UserError for every fault of the user that can be known by then.

    will_be_rewritten: the prompts are what a rewriter is still to rewrite.
    """
    files = prompt_files(arguments.prompts)
    setup = set_up(arguments, files)
    data = setup.config.data

    @cache
    def test_of(task_name: str) -> list[Example]:
        return load_examples(setup.tasks.get(task_name), "test", local_dir=data.local_dir, empty=data.empty)

    jobs: list[Job] = []
    for groups in _grouped(arguments, setup, files):
        names = [group.row.dataset_name for group in groups]
        asked = zip(groups, map(setup.tasks.get, names), map(test_of, names), strict=True)
        parts = [_part(group, task, test, files, arguments.limit) for group, task, test in asked]
        tasks = list(dict.fromkeys(part.task.name for part in parts))
        if files and len(parts) == 1 and not parts[0].num_ranked:  # of several rows the mean is told all the same
            if not will_be_rewritten:
                logger.info("%s: only the initial instruction is there: nothing is to be compared", ", ".join(tasks))
            continue
        number = 1 + sum(job.parts[0].task.name == tasks[0] for job in jobs)
        jobs.append(Job(parts, _result_file(arguments, tasks, setup, number)))
    if not jobs and not will_be_rewritten:
        raise UserError("the prompts hold only the initial instruction; nothing is to be compared")
    if len(jobs) > 1 and arguments.out is not None and not os.path.isdir(arguments.out):
        raise UserError(f"{arguments.out}: there are {len(jobs)} results; give a folder that exists, with --out")
    return Plan(setup, jobs)


def outlook(n: int, candidates: int) -> str:
    """What n examples show of `candidates` instructions against a baseline, or, with none, of one score."""
    if not candidates:
        half = share_interval(n // 2, n)
        known = f"{n} examples know a share near one half to about ±{50 * (half.high - half.low):.1f} points"
        return f"{known}; ±5 points take 402, ±2 points 2,449, ±1 point 9,701"
    level = LEVEL / 2 / candidates  # of one side, and of the smallest p as Holm has it
    chance = paired_power(n, 0.05, TYPICAL_DISCORDANT, level=level)
    rows = {gain: rows_needed(gain, TYPICAL_DISCORDANT, level=level, power=POWER) for gain in GAINS}
    needed = ", ".join(f"{100 * gain:.0f} points {number:,}" for gain, number in rows.items())
    together = f", with {candidates} tested together" if candidates > 1 else ""
    finds = f"the test on {n} examples finds a true gain of 5 points with a chance of {chance:.0%}{together}"
    assumed = f"if {TYPICAL_DISCORDANT:.0%} of answers differ"
    return f"{finds}; for {POWER:.0%} a gain needs so many examples: {needed} ({assumed})"


def _grouped(arguments: argparse.Namespace, setup: Setup, files: Sequence[Path]) -> list[list[Prompts]]:
    """The groups of instructions of each report; without files one of nothing a task.

    Of one file all rows stand together, or those of each task asked for; of several each row alone, since its
    instructions come from different files.
    """
    named = list(dict.fromkeys(name for file in files for name in tasks_of(file, setup.canonical)))
    tasks = _tasks(arguments, setup, named)
    if not files:
        return [[Prompts(InstructionRow("", task.name), ())] for task in tasks]
    if len(files) > 1:
        top_k = arguments.top_k
        return [[one] for task in tasks for one in compared_together(files, task.name, top_k, setup.canonical)]
    reports = [read_prompts(files[0], task.name, setup.canonical) for task in tasks]
    if not arguments.task or "all" in arguments.task:
        reports = [[group for groups in reports for group in groups]]
    return [[_of_a_file(group, arguments.top_k, len(groups)) for group in groups] for groups in reports]


def _of_a_file(group: Prompts, top_k: int | None, num_rows: int) -> Prompts:
    if num_rows > 1 and group.keeps_initial:
        return replace(group, candidates=())  # its winner, of which the rows' mean is
    of_a_log = DEFAULT_TOP_K_OF_A_LOG if num_rows == 1 else 1
    return cut(group, top_k or (of_a_log if group.ranking_tasks else None))


def _part(group: Prompts, task: Task, test: Sequence[Example], files: Sequence[Path], limit: int | None) -> Part:
    row, prompts = group.row, ", ".join(map(str, files))
    filtered_by = f"subject={row.subject!r}, level={row.level!r}"
    own_test = require_rows(list(own_examples(row, test)), f"{task.name} test", filtered_by)
    if row.tags:
        TEMPLATE.check_row(row, task, own_test, prompts)
    by_role = _roles(group if files else None, task)
    facts = {"prompts": prompts, "ranking": _ranking(by_role, group)} if files else {}
    return Part(row, task, by_role, facts, group.notes, own_test, limit)


def _tasks(arguments: argparse.Namespace, setup: Setup, named: Sequence[str]) -> list[Task]:
    """The tasks asked for; named: those that the prompts are for."""
    names: list[str] = arguments.task
    if not names or "all" in names:
        everything = [*(task.name for task in setup.config.custom_tasks), *TASKS]
        names = list(named) if arguments.prompts else everything if names else []
    if not names and arguments.prompts:
        raise UserError(f"{', '.join(map(str, arguments.prompts))}: it names no task; give one with --task")
    if not names:
        raise UserError("no task: say which, with --task NAME (may be given again), or --task all; or give --prompts")
    return list({(task := setup.tasks.get(name)).name: task for name in names}.values())


def _result_file(arguments: argparse.Namespace, tasks: Sequence[str], setup: Setup, number: int) -> Path:
    """number: of the task's reports."""
    limited = f"_first_{arguments.limit}" if arguments.limit else ""
    name = f"evaluation_{'_'.join(tasks)}{limited}{f'_{number}' if number > 1 else ''}.json"
    if arguments.out is not None:
        out = arguments.out / name if os.path.isdir(arguments.out) else arguments.out
    elif arguments.prompts:
        first: Path = arguments.prompts[0]
        out = (first if first.is_dir() else first.parent) / name
    else:
        folder = Path("evaluations", setup.task_model.model.strip("./").replace("/", "_"))
        with contextlib.suppress(OSError):  # told below
            folder.mkdir(parents=True, exist_ok=True)
        out = folder / name
    for file in (out, rows_file(out)):
        if not _can_be_written(file):
            raise UserError(f"{file}: cannot be written; give a file in a folder that is writable, with --out")
    return out


def _can_be_written(path: Path) -> bool:
    """Whether a file can be put there. None is put over a device, a link or a folder."""
    try:
        os.stat(f"{path}.part", follow_symlinks=False)  # `write_whole`'s
    except FileNotFoundError:
        pass
    except (OSError, ValueError):  # its name is too long, or it would lie in a file
        return False
    is_taken = os.path.lexists(path) and (os.path.islink(path) or not os.path.isfile(path))
    return not is_taken and os.path.isdir(path.parent) and os.access(path.parent, os.W_OK)


def _roles(prompts: Prompts | None, task: Task) -> dict[str, Candidate]:
    """The instructions by role, baselines first. A candidate that is a baseline too stands there alone."""
    default = Candidate(task.default_instruction, "the task's default instruction")
    if prompts is None:
        return {"default": default}
    by_role = {"initial": default}
    if prompts.initial is not None:
        by_role = {"initial": Candidate(prompts.initial, "where the rewriting started")}
        is_elsewhere = prompts.ranking_tasks and task.name not in prompts.ranking_tasks
        if is_elsewhere and task.default_instruction != prompts.initial:
            by_role["default"] = default
    known = {baseline.instruction for baseline in by_role.values()}
    candidates = [candidate for candidate in prompts.candidates if candidate.instruction not in known]
    return by_role | {f"rank {rank}": candidate for rank, candidate in enumerate(candidates, start=1)}


def _ranking(by_role: Mapping[str, Candidate], prompts: Prompts) -> str:
    ways = list(dict.fromkeys(chosen.ranked_by for role, chosen in by_role.items() if role.startswith("rank")))
    on = f" on {', '.join(prompts.ranking_tasks)}" if prompts.ranking_tasks else ""
    return f"by {', then by '.join(ways)}{on}"

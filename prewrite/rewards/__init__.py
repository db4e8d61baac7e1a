"""The reward functions by name, in one table; `package.module:function` names a user's own."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from prewrite.asking import ALONE, MINI_BATCH, SUBJECT_BATCH, TEMPLATE, Asking
from prewrite.asking.cleaning import clean_rewrite
from prewrite.errors import UserError, did_you_mean
from prewrite.plugins import own_function
from prewrite.rewards import form, rewriting, solving
from prewrite.rewards.base import NOT_MY_ROW, ObjectiveName, Reward, Score, Skip
from prewrite.rewards.trl import as_reward, check_columns, has_trl_signature, required_columns
from prewrite.tasks.base import KINDS, Kind, Task
from prewrite.tasks.files import golds_of, instruction_row
from prewrite.types import Evaluation, Example, InstructionRow, Sample

__all__ = [
    "NOT_MY_ROW", "REWARDS", "Reward", "Score", "Skip", "as_row", "check_coverage", "check_objective", "check_rows",
    "get_reward", "score_completions",
]  # fmt: skip


def _reward(
    function: Callable[..., Sequence[Score]],
    reach: tuple[float, float],
    objective: ObjectiveName | None = None,
    asking: Asking | None = None,
    kind: Kind | None = None,
    columns: tuple[str, ...] = (),
    name: str = "",
) -> Reward:
    kinds: tuple[Kind, ...] = (kind,) if kind else KINDS
    objectives: tuple[ObjectiveName, ...] = (objective,) if objective else ("rewrite", "solve")
    return Reward(name or function.__name__, function, reach, asking, kinds, objectives, columns)


_NQ_ACCURACY = "accuracy_nq_open_instruction_prewrite_reward"
_TABLE = (
    # of rewrites: range, objective, how the task model is asked, kind of task
    _reward(rewriting.accuracy, (0, 1), "rewrite", ALONE, name="prewrite_accuracy_reward"),
    _reward(rewriting.accuracy, (0, 1), "rewrite", MINI_BATCH, "math", name="accuracy_math_reward"),
    _reward(rewriting.accuracy_math_reward_split, (0, 1), "rewrite", SUBJECT_BATCH, "math"),
    _reward(rewriting.template_accuracy_math_reward, (-1, 1), "rewrite", TEMPLATE, "math"),
    _reward(rewriting.accuracy, (0, 1), "rewrite", MINI_BATCH, "classification", name="accuracy_classification_reward"),
    _reward(rewriting.f1_classification_reward, (0, 1), "rewrite", MINI_BATCH, "classification"),
    _reward(rewriting.accuracy, (0, 1), "rewrite", MINI_BATCH, "open_question", name=_NQ_ACCURACY),
    _reward(rewriting.f1_nq_open_instruction_prewrite_reward, (0, 1), "rewrite", MINI_BATCH, "open_question"),
    _reward(rewriting.length_penalty, (-1, 0), "rewrite"),
    # of solutions alone: they read the row's gold
    _reward(solving.accuracy_reward, (0, 1), "solve", columns=("answer",)),
    _reward(solving.cosine_scaled_reward, (-1, 1), "solve", columns=("answer",)),
    _reward(solving.levenshtein_reward, (0, 1), "solve", columns=("solution",)),
    # of any completion: its form
    _reward(form.format_reward, (0, 1)),
    _reward(form.think_answer_format_reward, (0, 1)),
    _reward(form.tag_count_reward, (0, 1)),
    _reward(form.reasoning_steps_reward, (0, 1)),
    _reward(solving.repetition_penalty_reward, (-1, 0)),
    _reward(solving.soft_overlong_punishment, (-1, 0)),
)
REWARDS: dict[str, Reward] = {reward.name: reward for reward in _TABLE}


def get_reward(name: str) -> Reward:
    """The reward of that name, or the user's own `package.module:function`. Raises UserError with the nearest name.

    A user's own function has the signature of `Reward.function`, and where it names `evaluations`, the task model is
    asked on a mini-batch of examples; or it has TRL's signature (`prewrite.rewards.trl`).
    """
    if ":" in name:
        function = own_function("reward", name)
        if has_trl_signature(function):
            return Reward(name, as_reward(name, function), columns=required_columns(name, function), takes_columns=True)
        asks = "evaluations" in inspect.signature(function).parameters
        return Reward(name, function, asking=MINI_BATCH if asks else None)
    if name not in REWARDS:
        known = f"The rewards are {', '.join(REWARDS)}; your own function is named package.module:function."
        raise UserError(f"{name!r} is no reward.{did_you_mean(name, REWARDS)} {known}")
    return REWARDS[name]


def check_objective(rewards: Sequence[Reward], objective: ObjectiveName) -> None:
    """UserError for rewards that cannot score what the run trains on, and for two that read a rewrite differently."""
    for reward in rewards:
        if objective not in reward.objectives:
            of = ", ".join(reward.objectives)
            fitting = ", ".join(name for name, known in REWARDS.items() if objective in known.objectives)
            rule = f"this run trains on {objective}. Those that fit: {fitting}."
            raise UserError(f"reward_funcs: {reward.name} is of the objective {of}, and {rule}")
    by_use = {reward.asking.uses_examples: reward.name for reward in rewards if reward.asking}
    if len(by_use) > 1:
        clash = f"{by_use[False]} takes a rewrite as a whole question, {by_use[True]} as an instruction before examples"
        raise UserError(f"reward_funcs: {clash}. A run does one of the two: leave one out.")


def check_coverage(rewards: Sequence[Reward], tasks: Sequence[Task]) -> None:
    """UserError for a task on whose rows no reward is given but those that score every kind of task (form, length)."""
    asking = [reward for reward in rewards if reward.asking is not None]
    for task in tasks:
        if asking and not any(task.kind in reward.kinds for reward in asking):
            suit_any_row = [known for known in _TABLE if known.asking and known.asking.suits_any_row]
            fitting = ", ".join(known.name for known in suit_any_row if task.kind in known.kinds)
            what = f"the task {task.name}, which is of the kind {task.kind}. Add one of {fitting}."
            raise UserError(f"reward_funcs: none of {', '.join(reward.name for reward in asking)} scores {what}")


def check_rows(
    rewards: Sequence[Reward],
    rows: Sequence[InstructionRow],
    tasks: Mapping[str, Task],
    train: Mapping[str, Sequence[Example]],
) -> None:
    """UserError for a row without what the rewards read that it concerns, or that concerns none. train: by task."""
    for row in rows:
        task = tasks[row.dataset_name]
        ways = {}
        for reward in rewards:
            check_columns(reward.name, reward.columns, row)
            if reward.asking is not None and task.kind in reward.kinds:
                ways[reward.name] = reward.asking
        concerned = {name: way for name, way in ways.items() if way.concerns(row)}
        for name, way in (concerned or ways).items():
            way.check_row(row, task, train.get(task.name, ()), name)


def score_completions(
    name: str,
    completions: Sequence[str],
    rows: Sequence[Mapping[str, Any] | Example | InstructionRow],
    *,
    evaluations: Sequence[Evaluation | None] | None = None,
    tasks: Sequence[Task] = (),
    examples: Sequence[Sequence[Example]] = (),
    **parameters: Any,
) -> list[float | None]:
    """The scores of finished texts, without a trainer; None = no verdict, or another reward's row.

    rows: one a completion: problems (`Example`, or mappings with `problem`, `answer` and where wanted `solution`) for
    solving, instruction rows (mappings with `instruction` too) for rewriting; a function with TRL's signature gets the
    mappings' own columns. A reward that asks the task model needs its `evaluations` too, and, as its
    signature says, `tasks` and `examples`.
    """
    reward = get_reward(name)
    reward.check_parameters(parameters)
    if len(rows) != len(completions):
        raise UserError(f"score_completions: {len(completions)} completions and {len(rows)} rows; give one for each.")
    if reward.asking is not None and evaluations is None:
        way_out = "give evaluations=, one for each completion (in a file the column `verdicts`, as [true, false])."
        raise UserError(f"reward {name} needs the task model's answers: {way_out}")
    if not tasks and (reward.kinds != KINDS or "tasks" in inspect.signature(reward.function).parameters):
        raise UserError(f"reward {name} reads the rows' tasks: give tasks= (in a file the column `dataset_name`).")
    samples = [Sample((), (), (), text, finish_reason="stop") for text in completions]
    own_rows = [as_row(row, f"score_completions: row {number}", reward) for number, row in enumerate(rows, start=1)]
    asked = {"evaluations": evaluations or (), "tasks": tasks, "examples": examples}
    rewrites = [clean_rewrite(text) for text in completions]
    scores = reward.score(samples, own_rows, **asked, rewrites=rewrites, parameters=parameters)
    return [None if isinstance(score, Skip) else score for score in scores]


def as_row(row: Mapping[str, Any] | Example | InstructionRow, where: str, reward: Reward) -> Any:
    """A row as the reward reads it. UserError at `where` for a mapping that lacks what it needs."""
    if not isinstance(row, Mapping) or reward.takes_columns:
        return row
    if "instruction" in row and "rewrite" in reward.objectives:
        return instruction_row({"dataset_name": "none", **row}, where)
    target = row.get("answer")
    if target is None and (reward.objectives == ("solve",) or ":" in reward.name):  # one of the user's own may read it
        raise UserError(f"{where} has no 'answer'; a problem row has problem and answer.")
    golds = [""] if target is None else golds_of(target, f"{where}: 'answer'")
    gold = tuple(golds) if isinstance(target, list | tuple) else golds[0]
    fields = {"problem": str(row.get("problem", ""))}
    return Example(str(row.get("id", where)), fields, gold, solution=row.get("solution"))

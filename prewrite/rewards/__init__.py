"""The reward functions by name, in one table; `package.module:function` names a user's own."""

import difflib
import inspect
from collections.abc import Mapping, Sequence
from typing import Any

from prewrite.errors import UserError
from prewrite.plugins import own_function
from prewrite.rewards import form, rewriting, solving
from prewrite.rewards.base import NOT_MY_ROW, Ask, Reward, Score, Skip
from prewrite.rewards.calls import check_tags
from prewrite.rewards.guards import rewrite_fault
from prewrite.rewards.rewrite import clean_rewrite
from prewrite.tasks.base import Task
from prewrite.tasks.files import golds_of
from prewrite.types import Evaluation, Example, InstructionRow, Sample

__all__ = [
    "NOT_MY_ROW",
    "REWARDS",
    "Ask",
    "Reward",
    "Score",
    "Skip",
    "check_coverage",
    "check_rows",
    "clean_rewrite",
    "get_reward",
    "rewrite_fault",
    "score_completions",
]

_REWRITING = (
    Reward("prewrite_accuracy_reward", rewriting.prewrite_accuracy_reward, (0, 1), "row"),
    Reward("accuracy_math_reward", rewriting.accuracy_math_reward, (0, 1), "mini_batch", ("math",)),
    Reward("accuracy_math_reward_split", rewriting.accuracy_math_reward_split, (0, 1), "subject", ("math",)),
    Reward("template_accuracy_math_reward", rewriting.template_accuracy_math_reward, (-1, 1), "template", ("math",)),
    Reward(
        "accuracy_classification_reward",
        rewriting.accuracy_classification_reward,
        (0, 1),
        "mini_batch",
        ("classification",),
    ),
    Reward("f1_classification_reward", rewriting.f1_classification_reward, (0, 1), "mini_batch", ("classification",)),
    Reward(
        "accuracy_nq_open_instruction_prewrite_reward",
        rewriting.accuracy_nq_open_instruction_prewrite_reward,
        (0, 1),
        "mini_batch",
        ("open_question",),
    ),
    Reward(
        "f1_nq_open_instruction_prewrite_reward",
        rewriting.f1_nq_open_instruction_prewrite_reward,
        (0, 1),
        "mini_batch",
        ("open_question",),
    ),
    Reward("length_penalty", rewriting.length_penalty, (-1, 0)),
)
_SOLVING = (
    Reward("accuracy_reward", solving.accuracy_reward, (0, 1)),
    Reward("format_reward", form.format_reward, (0, 1)),
    Reward("think_answer_format_reward", form.think_answer_format_reward, (0, 1)),
    Reward("tag_count_reward", form.tag_count_reward, (0, 1)),
    Reward("reasoning_steps_reward", form.reasoning_steps_reward, (0, 1)),
    Reward("cosine_scaled_reward", solving.cosine_scaled_reward, (-1, 1)),
    Reward("repetition_penalty_reward", solving.repetition_penalty_reward, (-1, 0)),
    Reward("soft_overlong_punishment", solving.soft_overlong_punishment, (-1, 0)),
    Reward("levenshtein_reward", solving.levenshtein_reward, (0, 1)),
)
_NEED_ANSWER = ("accuracy_reward", "cosine_scaled_reward", "levenshtein_reward")
REWARDS: dict[str, Reward] = {reward.name: reward for reward in (*_REWRITING, *_SOLVING)}


def get_reward(name: str) -> Reward:
    """The reward of that name, or the user's own `package.module:function`. Raises UserError with the nearest name.

    A user's own function has the signature of `Reward.function`; where it names `evaluations`, the task model is asked
    on a mini-batch of examples.
    """
    if ":" in name:
        return _own_reward(name)
    if name not in REWARDS:
        nearest = difflib.get_close_matches(name, REWARDS, n=1, cutoff=0.0)[0]
        raise UserError(
            f"{name!r} is no reward. Did you mean {nearest!r}? The rewards are {', '.join(REWARDS)}; your own function "
            "is named package.module:function."
        )
    return REWARDS[name]


def check_coverage(rewards: Sequence[Reward], tasks: Sequence[Task]) -> None:
    """UserError for a task on whose rows no reward is given but those that score every kind of task (form, length)."""
    for task in tasks:
        asking = [reward for reward in rewards if reward.ask is not None]
        if asking and not any(task.kind in reward.kinds for reward in asking):
            fitting = [reward.name for reward in _REWRITING if reward.ask == "mini_batch" and task.kind in reward.kinds]
            raise UserError(
                f"reward_funcs: none of {', '.join(reward.name for reward in asking)} scores the task {task.name}, "
                f"which is of the kind {task.kind}. Add one of {', '.join(fitting)}."
            )


def check_rows(rewards: Sequence[Reward], rows: Sequence[InstructionRow], tasks: Mapping[str, Task]) -> None:
    """UserError for a row without what a reward reads in it: the tags of a template, the answer of a problem."""
    asks = {reward.ask: reward for reward in rewards}
    for row in rows:
        task = tasks[row.dataset_name]
        if "template" in asks and task.kind in asks["template"].kinds:
            check_tags(row, task)
        if "row" in asks and row.answer is None:
            raise UserError(
                f"{asks['row'].name}: a row without `answer` ({row.instruction[:60]!r}). It asks the task model each "
                "rewrite alone and holds the reply against the row's own answer: give data.instructions_file with the "
                "columns instruction (the problem), dataset_name and answer."
            )


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
    solving, instruction rows for rewriting. A reward that asks the task model needs its `evaluations` too, and, as its
    signature says, `tasks` and `examples`.
    """
    reward = get_reward(name)
    reward.check_parameters(parameters)
    if len(rows) != len(completions):
        raise UserError(
            f"score_completions: {len(completions)} completions and {len(rows)} rows; give one row for each."
        )
    if reward.ask is not None and evaluations is None:
        raise UserError(f"reward {name} needs the task model's answers: give evaluations=, one for each completion.")
    samples = [Sample((), (), (), text, finish_reason="stop") for text in completions]
    scores = reward.score(
        samples,
        [
            _as_row(row, number, needs_answer=name in _NEED_ANSWER or ":" in name)
            for number, row in enumerate(rows, start=1)
        ],  # type: ignore[arg-type]  # of one kind
        evaluations=evaluations or (),
        tasks=tasks,
        examples=examples,
        parameters=parameters,
    )
    return [None if isinstance(score, Skip) else score for score in scores]


def _as_row(
    row: Mapping[str, Any] | Example | InstructionRow, number: int, *, needs_answer: bool
) -> Example | InstructionRow:
    if not isinstance(row, Mapping):
        return row
    target = row.get("answer")
    if target is None and needs_answer:
        raise UserError(f"score_completions: row {number} has no 'answer'; a problem row has problem and answer.")
    golds = [""] if target is None else golds_of(target, f"score_completions: row {number}: 'answer'")
    return Example(
        id=str(row.get("id", number)),
        fields={"problem": str(row.get("problem", ""))},
        target=tuple(golds) if isinstance(target, list | tuple) else golds[0],
        solution=row.get("solution"),
    )


def _own_reward(name: str) -> Reward:
    function = own_function("reward", name)
    asks = "evaluations" in inspect.signature(function).parameters
    return Reward(name, function, ask="mini_batch" if asks else None)

"""What a reward is."""

import enum
import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from prewrite.asking import Asking
from prewrite.errors import UserError, did_you_mean
from prewrite.tasks.base import KINDS, Kind, Task
from prewrite.types import Evaluation, Example, InstructionRow, Sample

ObjectiveName = Literal["rewrite", "solve"]


class Skip(enum.Enum):
    """Why a reward has nothing to say on a row, told apart from None, which is *no verdict*."""

    NOT_MY_ROW = "the row belongs to another reward: left out of the weighted sum"


NOT_MY_ROW: Final = Skip.NOT_MY_ROW
Score = float | None | Skip
_OFFERED = ("evaluations", "tasks", "examples", "rewrites")


@dataclass(frozen=True)
class Reward:
    """One reward function by its name.

    function(samples, rows, *, [evaluations,] [tasks,] [examples,] [rewrites,] **parameters) -> one Score a sample, all
    sequences as long as `samples`; it gets those of the four that its signature names:
        evaluations: what the task model did with the rewrite, asked as `asking` does; None where nothing was asked,
            since the rewrite has a fault (`Asking.fault`).
        tasks, examples: the row's task, and the examples that score the sample.
        rewrites: the samples' cleaned rewrites (`prewrite.asking.cleaning`).
    rows: instruction rows for rewriting; for solving, the problems themselves (`Example`).
    asking: how the task model is asked about the rewrite before. None: not at all.
    kinds: of task whose rows it scores; on the others', and on those that `asking` does not concern, NOT_MY_ROW.
    objectives: what it can score: rewrites, or the policy's own solutions (rows are then problems).
    range: the least and the largest score; for the default parameters where they set it.
    columns: what it must have in a row, beside what `asking` reads. takes_columns: a row may be a mapping of any.
    """

    name: str
    function: Callable[..., Sequence[Score]]
    range: tuple[float, float] = (-math.inf, math.inf)
    asking: Asking | None = None
    kinds: tuple[Kind, ...] = KINDS
    objectives: tuple[ObjectiveName, ...] = ("rewrite", "solve")
    columns: tuple[str, ...] = ()
    takes_columns: bool = False

    @property
    def parameters(self) -> dict[str, inspect.Parameter]:
        """Name -> default and type, as the function's signature says."""
        named = inspect.signature(self.function).parameters.items()
        return {name: one for name, one in named if one.kind is one.KEYWORD_ONLY and name not in _OFFERED}

    def check_parameters(self, given: Mapping[str, Any]) -> None:
        """UserError for an unknown, missing or impossible parameter; costs nothing, so call it before a model loads."""
        known = self.parameters
        for name, value in given.items():
            if name not in known:
                hint = did_you_mean(name, known) or " It has none."
                raise UserError(f"reward {self.name}: {name!r} is no parameter of it.{hint}")
            if (wanted := known[name].annotation) in (bool, int, float, str):
                fits = isinstance(value, (int, float) if wanted is float else wanted)
                if not fits or (isinstance(value, bool) and wanted is not bool):
                    rule = f"it must be of the type {wanted.__name__}."
                    raise UserError(f"reward {self.name}: {name} is {value!r}; {rule}")
        missing = [name for name, found in known.items() if found.default is found.empty and name not in given]
        if missing:
            raise UserError(f"reward {self.name}: the parameter {missing[0]!r} has no default and has to be given.")
        self._checked(self.function([], [], **self._offered([], [], [], []), **given), 0)

    def score(
        self,
        samples: Sequence[Sample],
        rows: Sequence[InstructionRow] | Sequence[Example],
        *,
        evaluations: Sequence[Evaluation | None] = (),
        tasks: Sequence[Task] = (),
        examples: Sequence[Sequence[Example]] = (),
        rewrites: Sequence[str] = (),
        parameters: Mapping[str, Any] = {},
    ) -> list[Score]:
        """The scores, checked: one a sample, each a finite number, None or NOT_MY_ROW."""
        offered = self._offered(evaluations, tasks, examples, rewrites)
        for name, values in {"rows": rows, **offered}.items():
            assert len(values) == len(samples), f"{self.name}: {len(samples)} samples and {len(values)} {name}"
        mine = [i for i in range(len(samples)) if self._concerns(rows[i], tasks[i] if tasks else None)]
        own_samples, own_rows = [samples[i] for i in mine], [rows[i] for i in mine]
        own_offered = {name: [values[i] for i in mine] for name, values in offered.items()}
        given = self._checked(self.function(own_samples, own_rows, **own_offered, **parameters), len(mine))
        scores: list[Score] = [NOT_MY_ROW] * len(samples)
        for i, score in zip(mine, given, strict=True):
            scores[i] = score
        return scores

    def _checked(self, scores: Any, wanted: int) -> list[Score]:
        """What a function returned, as scores. UserError where it is anything else."""
        returned = f"reward {self.name}: it returned"
        try:
            given = list(scores)
        except TypeError:
            raise UserError(f"{returned} a {type(scores).__name__}; it must be a list of scores.") from None
        if len(given) != wanted:
            raise UserError(f"{returned} {len(given)} scores for {wanted} samples.")
        for score in given:
            if not (_is_finite(score) or score is None or score is NOT_MY_ROW):
                raise UserError(f"{returned} {score!r}; a score is a finite number, None or NOT_MY_ROW.")
        return given

    def _concerns(self, row: InstructionRow | Example, task: Task | None) -> bool:
        assert task is not None or self.kinds == KINDS, f"{self.name} scores some kinds of task alone: give tasks="
        if task is not None and task.kind not in self.kinds:
            return False
        return self.asking is None or not isinstance(row, InstructionRow) or self.asking.concerns(row)

    def _offered(self, *values: Sequence) -> dict[str, Sequence]:
        named = inspect.signature(self.function).parameters
        return {name: value for name, value in zip(_OFFERED, values, strict=True) if name in named}


def _is_finite(score: object) -> bool:
    try:
        return isinstance(score, int | float) and math.isfinite(score)
    except OverflowError:  # an integer that no float holds
        return False

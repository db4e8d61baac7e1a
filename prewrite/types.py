"""The frozen records that the rooms hand to one another; the words are those of the README's glossary."""

from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class InstructionRow:
    """One row of instruction data: what the policy is asked to rewrite, and the task whose examples score it.

    subject, level: what its examples are of; None = any. tags: the columns that its template shows.
    answer: the gold of a row that is itself a problem (`prewrite_accuracy_reward`); several where any of them is right.
    """

    instruction: str
    dataset_name: str
    subject: str | None = None
    level: str | None = None
    tags: tuple[str, ...] = ()
    information: str | None = None
    answer: str | tuple[str, ...] | None = None


@dataclass(frozen=True)
class Example:
    """One problem of a task.

    fields: the texts that the query shows, by column name, in the task's own order.
    target: the gold; several where any of them is right (open questions).
    columns: its row's further columns as texts, which a template may show; never the gold or the solution.
    """

    id: str
    fields: Mapping[str, str]
    target: str | tuple[str, ...]
    subject: str | None = None
    level: str | None = None
    solution: str | None = None
    columns: Mapping[str, str] = field(default_factory=dict)

    @property
    def texts(self) -> dict[str, str]:
        """All that a template may show, by column."""
        return {**self.fields, **self.columns}


@dataclass(frozen=True)
class Call:
    """One question to the task model. choices: the answer is forced to be one of them (forced choice).

    task: whose sampling settings hold (`task_model.by_task`); "" = those of all.
    """

    query: str
    choices: tuple[str, ...] = ()
    sample_index: int = 0
    task: str = ""


@dataclass(frozen=True)
class Answer:
    """The task model's reply to a `Call`, or why there is none: exactly one of text and error is None.

    prompt_tokens, completion_tokens: as the endpoint counted them, 0 where it does not.
    choice_logprobs: of a forced choice, how likely (nats) each of the call's choices was; None where nobody asked.
    """

    text: str | None
    error: str | None = None
    finish_reason: str | None = None
    prompt_tokens: int = field(default=0, compare=False)
    completion_tokens: int = field(default=0, compare=False)
    choice_logprobs: tuple[float, ...] | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Verdict:
    """One graded answer, or the average of several samples (`prewrite.asking.verdicts`).

    example_id: "" where the row itself was the question.
    correct: None = no verdict (the call stayed failed, or the gold cannot be parsed); never counted as wrong.
    well_formed: the answer has the form that the task asks for (a label, a box, a number), right or not.
    share: of right answers, where several were sampled; None for one answer.
    target_logprob: how likely (nats) a forced choice made the target; None where that is not known.
    """

    example_id: str
    target: str | tuple[str, ...]
    prediction: str | None
    correct: bool | None
    well_formed: bool
    f1: float | None = None
    share: float | None = None
    target_logprob: float | None = None

    @property
    def score(self) -> float | None:
        """How right it is, from 0 to 1; None = no verdict."""
        return self.share if self.share is not None or self.correct is None else float(self.correct)


@dataclass(frozen=True)
class Evaluation:
    """What the task model did with one instruction on some examples: one pass, from which every metric is read.

    num_cut: examples with an answer that max_tokens ended.
    """

    instruction: str
    task: str
    verdicts: tuple[Verdict, ...]
    num_cut: int = 0


@dataclass(frozen=True)
class TokenRow:
    """A chat as the policy reads it. is_trained: for each of token_ids 1 where the policy is to say it, else 0."""

    token_ids: "array[int]"
    is_trained: bytes


@dataclass(frozen=True)
class Sample:
    """One completion of the policy, as the sampler made it.

    prompt_ids [P], completion_ids [T], sampler_logprobs [T] (nats, at the sampling temperature, of the chosen tokens).
    finish_reason: "stop" (an EOS token ends completion_ids), "length" (truncated), or "abort": unfinished, without a
    text, and to go on in a later batch (partial rollouts); its log-probs stay those of the weights that sampled it.
    """

    prompt_ids: tuple[int, ...]
    completion_ids: tuple[int, ...]
    sampler_logprobs: tuple[float, ...]
    text: str
    finish_reason: str


Row = InstructionRow | Example


@dataclass(frozen=True)
class Sampled:
    """First phase of a rollout: a sample and what it answers.

    row: what the request was made from. group: index of the request in the step; the G samples of a group share their
    examples. output: what counts of the completion: the cleaned rewrite, "" where the completion holds none; in
    solving the text itself. shown: the instruction that the request showed, where it is not the row's own.
    """

    sample: Sample
    row: Row
    group: int
    output: str
    shown: str | None = field(default=None, kw_only=True)


@dataclass(frozen=True)
class Scored(Sampled):
    """Second phase. reward: the weighted sum of reward_parts; None = no verdict, left out of the group's baseline.

    reward_parts: by reward function; one that the row does not concern is missing, None = no verdict.
    verdicts: what the task model did with it on train examples; () where it was not asked on any.
    """

    reward: float | None
    reward_parts: Mapping[str, float | None]
    verdicts: tuple[Verdict, ...] = field(default=(), kw_only=True)


@dataclass(frozen=True)
class Rollout(Scored):
    """Third phase: with the advantage over its group, 0 without a verdict. What the loss is made of."""

    advantage: float

"""The work of `python -m prewrite.generate`: prompts are asked, rows written in their order as they are complete."""

import contextlib
import json
import logging
import math
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TextIO

from prewrite.engine.spending import Spending
from prewrite.engine.task_endpoint import BUDGET_SPENT
from prewrite.engine.task_model import TaskModel
from prewrite.engine.task_wire import request_body
from prewrite.errors import UserError
from prewrite.generate.planning import Plan
from prewrite.generate.prompts import Prompt
from prewrite.model_folder import name_of
from prewrite.rewards import score_completions
from prewrite.secrets import hidden
from prewrite.tasks.control_tokens import holds_control_token
from prewrite.tasks.files import is_missing
from prewrite.terminal import progress_bar
from prewrite.types import Answer, Call
from prewrite.writing import HALVES

logger = logging.getLogger(__name__)

_CUT, _FAILED, _NOT_ASKED = "cut by max_tokens", "failed", "not asked, the budget is spent"
_FORMATS_OF_SFT = {"messages", "prompt", "completion"}  # a row is read by one of them alone
_CALLS_AHEAD = 16  # times the calls that go at once: so many rows may wait for a slow one before them


@dataclass
class Outcome:
    """What came of it. num_rows: of the data. left_out: completions and prompts that are no data, by reason."""

    num_rows: int = 0
    left_out: Counter[str] = field(default_factory=Counter)


def outlook(plan: Plan, missing: int) -> str:
    """How much will be asked, and what it can cost, in words."""
    settings, budget = plan.config.task_model, plan.config.budget
    asked = [prompt for prompt in plan.prompts if not prompt.left_out]
    total = len(asked) * plan.samples
    lines = [f"{len(asked):,} prompts x {plan.samples} completions = {total:,} calls of {hidden(settings.model)}"]
    unasked = Counter(prompt.left_out for prompt in plan.prompts if prompt.left_out)
    lines += [f"  {count:,} rows left out: {why}" for why, count in unasked.items()]
    if missing < total:
        lines.append(f"  {total - missing:,} are answered already, in {plan.answers}")
    if settings.request_fields.get("max_tokens", "max_tokens") is None:
        lines.append(f"  {missing:,} to be asked; task_model.request_fields leaves their length to the endpoint")
        return "\n".join(lines)
    tokens = missing * settings.max_tokens
    each = f"max_tokens {settings.max_tokens:,}"
    lines.append(f"  {missing:,} to be asked; they write at most {tokens:,} tokens ({each})")
    if budget.task_output_price:
        lines.append(f"  which cost at most {budget.task_cost(0, tokens):,.2f}; what they read comes on top of that")
    return "\n".join(lines)


def num_missing(plan: Plan) -> int:
    """Calls that no kept answer is known of. Nothing is asked, and nothing written."""
    if not plan.answers.is_file():
        return sum(1 for _ in plan.all_calls())
    with _nobody(plan) as model:
        return model.num_missing(plan.all_calls())


def generate(plan: Plan, missing: int) -> Outcome:
    """Asks what is missing and writes the files anew, a row as soon as all before it are complete. Raises UserError;
    what was answered until then is kept."""
    outcome = Outcome()
    with contextlib.ExitStack() as stack:
        model = stack.enter_context(_asked(plan, missing) if missing else _nobody(plan))
        try:
            with contextlib.ExitStack() as files:  # closing one of them can fail too
                paths = (plan.out, plan.left_out)
                opened = (path.open("w", encoding="utf-8", errors=HALVES, newline="\n") for path in paths)
                out, others = map(files.enter_context, opened)
                bar = files.enter_context(progress_bar(len(plan.prompts), " prompts"))
                for number, (prompt, answers) in enumerate(_answered(plan, model), start=1):
                    _write(plan, prompt, answers, out, others, outcome)
                    bar.update()
                    if not number % _rows_ahead(plan):
                        model.check_failure_share()
        except OSError as error:
            raise UserError(f"--out {plan.out}: could not be written ({error}); no answer is asked twice") from error
        model.check_failure_share()
    return outcome


def told(plan: Plan, outcome: Outcome) -> str:
    """What was written, and what is to be done about the rest."""
    lines = [f"{outcome.num_rows:,} rows in {plan.out}"]
    if outcome.left_out:
        why = ", ".join(f"{count:,} {reason}" for reason, count in outcome.left_out.most_common())
        lines.append(f"{outcome.left_out.total():,} left out, in {plan.left_out}: {why}")
    if num_cut := outcome.left_out[_CUT]:
        lines.append(f"--max-tokens {plan.config.task_model.max_tokens} cut {num_cut:,} completions: raise it")
    if again := outcome.left_out[_FAILED] + outcome.left_out[_NOT_ASKED]:
        lines.append(f"calls without an answer: {again:,}; the same command asks them again, and no others")
    return "\n".join(lines)


def _rows_ahead(plan: Plan) -> int:
    return math.ceil(_CALLS_AHEAD * plan.config.task_model.concurrency / plan.samples)


def _answered(plan: Plan, model: TaskModel) -> Iterator[tuple[Prompt, list[Answer]]]:
    """The prompts in order, each with its answers; those after it are under way meanwhile."""
    waiting: deque[tuple[Prompt, list[Call]]] = deque()
    rest = iter(plan.prompts)
    while True:
        while len(waiting) < _rows_ahead(plan) and (prompt := next(rest, None)) is not None:
            waiting.append((prompt, plan.calls(prompt)))
            model.ask_ahead(waiting[-1][1])
        if not waiting:
            return
        prompt, calls = waiting.popleft()
        yield prompt, model.ask(calls)


def _write(plan: Plan, prompt: Prompt, answers: list[Answer], out: TextIO, others: TextIO, outcome: Outcome) -> None:
    kept = [(str(name), cell) for name, cell in prompt.row.items() if name not in _FORMATS_OF_SFT]
    row = {name: None if is_missing(cell) else cell for name, cell in kept}
    asked = request_body(Call(prompt.text), plan.config.task_model, None)["messages"]  # what was sent, to the letter
    if prompt.left_out:
        outcome.left_out[prompt.left_out] += 1
        _line(others, row | {"messages": asked, "generation": {"left_out": prompt.left_out}})
    for index, (answer, (rewards, why)) in enumerate(zip(answers, _judged(plan, prompt, answers), strict=True)):
        facts: dict[str, Any] = {"model": name_of(plan.config.task_model.model), "sample": index}
        facts |= {"finish_reason": answer.finish_reason, "prompt_tokens": answer.prompt_tokens}
        facts |= {"completion_tokens": answer.completion_tokens} | ({"rewards": rewards} if plan.rewards else {})
        said = [] if answer.text is None else [{"role": "assistant", "content": answer.text}]
        if not why:
            outcome.num_rows += 1
            _line(out, row | {"messages": asked + said, "generation": facts})
            continue
        outcome.left_out[why] += 1
        facts |= {"left_out": why, "error": answer.error}
        _line(others, row | {"messages": asked + said, "generation": facts})


def _judged(plan: Plan, prompt: Prompt, answers: Sequence[Answer]) -> list[tuple[Mapping[str, float | None], str]]:
    """Of each of a prompt's answers its rewards, by name, and why it is no data; "" = it is."""
    seen: set[str] = set()
    reasons = []
    for answer in answers:
        reasons.append(_fault(answer, seen))
        seen.add((answer.text or "").strip())
    texts = {i: answer.text for i, answer in enumerate(answers) if answer.text is not None and not reasons[i]}
    rewards = dict(zip(texts, _rewards(plan, prompt, list(texts.values())), strict=True))
    for index in texts:
        reasons[index] = _short_of(plan, rewards[index])
    passing = [index for index, why in enumerate(reasons) if not why]
    if plan.keep != "all" and passing:
        totals = {index: sum(score or 0.0 for score in rewards[index].values()) for index in passing}
        chosen = max(passing, key=lambda index: totals[index]) if plan.keep == "best" else passing[0]
        for index in passing:
            reasons[index] = "" if index == chosen else "not chosen among those that pass"
    return [(rewards.get(index, {}), why) for index, why in enumerate(reasons)]


def _short_of(plan: Plan, rewards: Mapping[str, float | None]) -> str:
    """The first reward that it does not reach, in words; "" = it reaches all."""
    for name, score in rewards.items():
        if score is None:
            return f"without a verdict of {name}"
        if score < plan.min_reward:
            return f"below {plan.min_reward:g} by {name}"
    return ""


def _fault(answer: Answer, seen: set[str]) -> str:
    if answer.text is None:
        return _NOT_ASKED if answer.error == BUDGET_SPENT else _FAILED
    if answer.finish_reason == "length":
        return _CUT
    text = answer.text.strip()
    if answer.text.encode("utf-8", "ignore").decode("utf-8") != answer.text:
        return "with half a character"
    if holds_control_token(answer.text):
        return "with a control token"
    return "empty" if not text else "the same as another completion" if text in seen else ""


def _rewards(plan: Plan, prompt: Prompt, texts: list[str]) -> list[dict[str, float | None]]:
    """Every reward of each text, by name."""
    scores: dict[str, Sequence[float | None]] = {}
    for name in (reward.name for reward in plan.rewards):
        parameters: dict[str, Any] = dict(plan.config.reward.reward_kwargs.get(name, {}))
        scores[name] = score_completions(name, texts, [dict(prompt.row)] * len(texts), **parameters)
    return [{name: own[index] for name, own in scores.items()} for index in range(len(texts))]


def _line(file: TextIO, row: Mapping[str, Any]) -> None:
    file.write(json.dumps(row, ensure_ascii=False, default=str) + "\n")
    file.flush()


@contextlib.contextmanager
def _asked(plan: Plan, missing: int) -> Iterator[TaskModel]:
    """The task model, at its endpoint or behind a server of its own, with what was answered before."""
    from prewrite.engine.task_server import open_task_model  # here, since it imports torch

    settings, budget = plan.config.task_model, plan.config.budget
    if not settings.base_urls:
        logger.info("a server for %s is being started, about a minute", hidden(settings.model))
    with open_task_model(settings, log_path=plan.out.with_suffix(".server.log"), budget=budget) as model:
        limits = {"requests": budget.max_task_calls, "tokens": budget.max_task_tokens, "cost": budget.max_cost}
        model.spending.allow({name: math.inf if most is None else most for name, most in limits.items()})
        model.probe()
        model.spending.when_sampled = lambda: logger.info(_forecast(plan, missing, model.spending))
        model.keep_answers(plan.answers, rank=0, ranks=1)
        yield model


def _forecast(plan: Plan, missing: int, spending: Spending) -> str:
    """Tokens and money of all that is missing, by the replies so far."""
    budget, stats = plan.config.budget, spending.stats
    back = stats.requests - spending.under_way
    read, written = missing * stats.prompt_tokens / back, missing * stats.completion_tokens / back
    cost = f", which cost {budget.task_cost(read, written):,.2f}" if budget.has_price else ""
    return f"by {back} replies so far, {missing:,} calls take about {read:,.0f} tokens in and {written:,.0f} out{cost}"


@contextlib.contextmanager
def _nobody(plan: Plan) -> Iterator[TaskModel]:
    """The task model with what was answered before alone: no key is read and no server started."""
    settings = plan.config.task_model.model_copy(update={"base_url": None, "api_key_env": None})
    with TaskModel(settings, base_url="http://nobody") as model:
        model.keep_answers(plan.answers, rank=0, ranks=1)
        yield model

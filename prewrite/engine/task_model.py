"""The frozen task model behind an OpenAI-compatible endpoint: many calls at once, retried, cached, counted.

Calls run on one event loop in a thread of its own, so that synchronous training code and asynchronous code can both
ask. A call that stays failed is data: an `Answer` with an error, never an exception and never a wrong answer.
"""

import asyncio
import contextlib
import hashlib
import json
import logging
import threading
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from prewrite.config import BudgetSettings, TaskModelSettings
from prewrite.engine.answer_log import AnswerLog
from prewrite.engine.answers import Answers
from prewrite.engine.forced_choice import Dialect, ForcedChoice
from prewrite.engine.spending import Spending, TaskModelStats
from prewrite.engine.task_endpoint import BUDGET_SPENT, Endpoint
from prewrite.engine.task_probe import probe_endpoints
from prewrite.engine.task_wire import CallFailed, request_body
from prewrite.errors import UserError
from prewrite.tasks.control_tokens import holds_control_token
from prewrite.types import Answer, Call

logger = logging.getLogger(__name__)

T = TypeVar("T")
_OnDone = Callable[[int, int], None] | None
_OnAnswer = Callable[[Call, Answer], None] | None
_CALLS_FOR_A_VERDICT = 20
_FAILED_IN_A_ROW = 50


class TaskModel(contextlib.AbstractContextManager["TaskModel"]):
    """Asks the task model at `base_url`, or at several that share the calls.

    `settings.timeout` is the deadline in seconds of one try of a call, its whole body included, so a call ends within
    (max_retries + 1) x timeout plus the waits between. seed: sample i of a query is drawn with seed + i; None leaves
    the field out (per-request seeds slow vLLM on a GPU). budget: prices of its tokens; its limits are those of all
    ranks, and `spending.allow` gives each its share.
    Control tokens in a query (<|im_start|>) are neutralised and counted, not refused: an example of the data set that
    holds one would otherwise never get a verdict.
    dialect: in which forced choice is said, found out by `probe`; None = it cannot be, and choices are asked for in
    free text. It is in the body of a call, and so in the key of its answer.
    Raises UserError where the key's environment variable is not set.
    """

    def __init__(
        self,
        settings: TaskModelSettings,
        *,
        base_url: str | Sequence[str],
        seed: int | None = None,
        budget: BudgetSettings | None = None,
    ):
        self.settings, self.seed = settings, seed
        self.dialect: Dialect | None = "structured_outputs"
        self.answer_log: AnswerLog | None = None
        self._last_failure = ""
        self._num_unreached = 0  # calls in a row without a usable reply
        self._gone_after = max(_FAILED_IN_A_ROW, 2 * settings.concurrency)
        self.spending = Spending(budget or BudgetSettings())
        self.stats = self.spending.stats
        self._judged = TaskModelStats()
        urls = [base_url] if isinstance(base_url, str) else base_url
        self._endpoints = [Endpoint(settings, base_url=url, spending=self.spending) for url in urls]
        self._answers = Answers()
        self._in_flight: dict[bytes, asyncio.Task[Answer]] = {}
        self._ahead: dict[bytes, asyncio.Task[Answer]] = {}  # asked, and nobody has wanted the answer yet
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="task-model", daemon=True)
        self._thread.start()

    @property
    def num_refused(self) -> int:
        """Calls that were not made, since the budget is spent."""
        return self.stats.refused

    @property
    def calls_left(self) -> float:
        """Calls that the budget still allows this rank; inf = no limit."""
        return self.spending.left()

    @property
    def base_url(self) -> str:
        return ", ".join(endpoint.base_url for endpoint in self._endpoints)

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        """Gives up what is under way and closes the connections; safe to call twice."""
        if self._loop.is_closed():
            return
        asyncio.run_coroutine_threadsafe(self._shut_down(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._answers.close()
        if self.answer_log is not None:
            self.answer_log.close()

    def keep_answers(self, path: Path, *, rank: int, ranks: int, state: Mapping[str, Any] | None = None) -> None:
        """Keeps every answer in the file from now on, and asks for none that is there (`prewrite.engine.answers`).

        state: of the checkpoint that the run goes on from. Before the first `ask`. UserError: also another `dialect`.
        """
        if state is not None:
            if (before := state["dialect"]) != self.dialect:
                raise UserError(
                    f"the task model at {self.base_url} forces a choice by {self.dialect or 'nothing'}, and the run "
                    f"began with {before or 'nothing'}: that is another question. Go on at an endpoint like the first."
                )
            vars(self.stats).update(state["counts"])
            self.stats.failures.update(state["failures"])
            self._judged = replace(self.stats, failures=self.stats.failures.copy())
        counted = 0 if state is None else state["answers_bytes"]
        self._answers.open(path, rank=rank, ranks=ranks, counted_bytes=counted)
        for answer in self._answers.uncounted:
            self.spending.kept.add(answer)

    def state(self) -> dict[str, Any]:
        """What an interrupted run needs to go on: the counts so far, and which answers are in them."""
        counts = {name: value for name, value in vars(self.stats).items() if isinstance(value, int | float)}
        state = {"counts": counts, "failures": dict(self.stats.failures), "answers_bytes": self._answers.num_bytes}
        return state | {"dialect": self.dialect}

    def ask(self, calls: Sequence[Call], *, progress: _OnDone = None, on_answer: _OnAnswer = None) -> list[Answer]:
        """The answers, in the order of the calls. `progress(done, total)` and `on_answer` run in its thread.

        Raises UserError once twice as many calls in a row as go at once (50 at least) stayed without a usable reply
        after all retries: the endpoint is gone, and the rest would only wait for it. A refusal is a reply. Not with
        max_failure_share 1, which allows every call to fail.
        """
        return self._wait_for(self._ask_all(calls, progress, on_answer))

    def body(self, call: Call) -> dict[str, Any]:
        """What is sent for a call, but for the seed."""
        return request_body(call, self.settings.for_task(call.task), None, self._forced(call))

    def num_missing(self, calls: Iterable[Call]) -> int:
        """Those of the calls that no kept answer is known of. While nothing is under way."""
        return sum(self._request(call)[1] not in self._answers for call in calls)

    def ask_ahead(self, calls: Sequence[Call]) -> None:
        """Starts calls and does not wait: the `ask` that wants the answers finds them under way, or there."""
        asyncio.run_coroutine_threadsafe(self._start(calls), self._loop)

    def probe(self, choices: Sequence[str] = ()) -> Dialect | None:
        """`probe_endpoints`, before any work; with `choices` it sets `dialect`, which is returned."""
        probe = probe_endpoints(self._endpoints, self.settings, self.seed, choices)
        dialect = self._wait_for(probe)
        self._check_usage()
        if choices:
            self.dialect = dialect
        return self.dialect

    def check_failure_share(self) -> None:
        """Raises UserError where more than `max_failure_share` of the calls since the last check stayed failed.

        Fewer than 20 calls are no evidence: they wait for the next check. Cached answers do not count.
        """
        calls = self.stats.calls - self._judged.calls
        if calls < _CALLS_FOR_A_VERDICT:
            return
        failed, most = self.stats.failed - self._judged.failed, self.settings.max_failure_share
        reasons = self.stats.failures - self._judged.failures
        self._judged = replace(self.stats, failures=self.stats.failures.copy())
        if failed > most * calls:
            kinds = ", ".join(f"{count} x {kind}" for kind, count in reasons.most_common(3))
            slow = "; where it is only slow, raise task_model.timeout or lower task_model.concurrency"
            way_out = f"Look at the endpoint{slow if 'timeout' in reasons else ''}."
            raise UserError(
                f"task model at {self.base_url}: {failed} of the last {calls} calls stayed failed ({kinds}; the last "
                f"one {self._last_failure}), more than task_model.max_failure_share {most}. {way_out}"
            )

    def _wait_for(self, work: Coroutine[Any, Any, T]) -> T:
        asked = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return asked.result()
        finally:
            asked.cancel()  # no effect on a finished one; on Ctrl-C nothing is left waiting

    async def _ask_all(self, calls: Sequence[Call], progress: _OnDone, on_answer: _OnAnswer) -> list[Answer]:
        done = 0
        taken: set[bytes] = set()

        async def one(call: Call) -> Answer:
            nonlocal done
            answer = await self._answer(call, taken)
            if on_answer is not None:
                on_answer(call, answer)
            self._check_presence()
            done += 1
            if progress is not None:
                progress(done, len(calls))
            return answer

        asked = [asyncio.create_task(one(call)) for call in calls]
        try:
            return await asyncio.gather(*asked)
        except UserError:
            for task in [*asked, *self._in_flight.values()]:
                task.cancel()
            raise
        finally:
            for key in taken:
                self._ahead.pop(key, None)

    def _check_presence(self) -> None:
        if self._num_unreached >= self._gone_after and self.settings.max_failure_share < 1:
            raise UserError(
                f"task model at {self.base_url}: the last {self._num_unreached} calls had no usable reply "
                f"(retries: {self.settings.max_retries}), the last one {self._last_failure}. The endpoint is "
                "gone: start it again."
            )

    async def _answer(self, call: Call, taken: set[bytes]) -> Answer:
        """taken: keys asked ahead whose answers this `ask` has had, for the rewrites of a group that are alike."""
        body, key = self._request(call)
        # Shielded: an asker that gives up must not take the answer from another who waits for the same call.
        if key in self._ahead:
            self.stats.cached += key in taken
            taken.add(key)
            return await asyncio.shield(self._ahead[key])
        known, is_first = self._answers.get(key)
        if known is not None:
            self.stats.cached += not is_first
            self._count_kept()
            return known
        if key in self._in_flight:
            self.stats.cached += 1
        else:
            self._begin(call, body, key)
        return await asyncio.shield(self._in_flight[key])

    async def _start(self, calls: Sequence[Call]) -> None:
        for call in calls:
            body, key = self._request(call)
            if not any(key in known for known in (self._answers, self._in_flight, self._ahead)):
                self._begin(call, body, key)
                self._ahead[key] = self._in_flight[key]

    def _request(self, call: Call) -> tuple[dict[str, Any], bytes]:
        """The body of the call, and its key among all calls."""
        body = request_body(call, self.settings.for_task(call.task), self.seed, self._forced(call))
        return body, hashlib.sha256(json.dumps([body, call.sample_index], sort_keys=True).encode()).digest()

    def _forced(self, call: Call) -> ForcedChoice | None:
        return ForcedChoice(self.dialect, call.choices) if call.choices and self.dialect else None

    def _begin(self, call: Call, body: dict[str, Any], key: bytes) -> None:
        if holds_control_token(call.query):
            if not self.stats.neutralised:
                logger.warning("a query holds chat-control tokens; they are neutralised: %r", call.query[:200])
            self.stats.neutralised += 1
        self._in_flight[key] = asyncio.create_task(self._settle(key, body, call))

    async def _settle(self, key: bytes, body: dict[str, Any], call: Call) -> Answer:
        try:
            endpoint = self._endpoints[key[0] % len(self._endpoints)]  # the same call always has the same endpoint
            answer = await endpoint.complete(body, self._forced(call), max_retries=self.settings.max_retries)
            self._num_unreached = 0
            self._answers.add(key, answer)
            self._count_kept()
        except CallFailed as failure:
            answer = Answer(text=None, error=str(failure))
            if failure.kind == BUDGET_SPENT:
                self.stats.refused += 1
                self.stats.calls -= 1
                self._answers.count_rest()
                self._count_kept()
            else:
                self.stats.failed += 1
                self.stats.failures[failure.kind] += 1
                self._last_failure = str(failure)
                self._num_unreached = self._num_unreached + 1 if failure.retry else 0
        finally:
            self.stats.calls += 1
            del self._in_flight[key]
        if self.answer_log is not None:
            self.answer_log.write(call, answer)
        return answer

    def _count_kept(self) -> None:
        for answer in self._answers.take_due():
            self.stats.calls += 1
            self.stats.add(answer)
            self.spending.kept.add(answer, -1)

    def _check_usage(self) -> None:
        """UserError where a limit needs the endpoint's counts of tokens, and its first reply had none."""
        budget = self.spending.settings
        limited = [] if budget.max_task_tokens is None else ["max_task_tokens"]
        if budget.max_cost is not None and budget.task_cost(1, 1):
            limited.append("max_cost")
        if limited and not self.spending.used()["tokens"]:
            lacks = "does not say how many tokens a call takes (its reply has no `usage`)"
            way_out = "nothing could be held to it: limit budget.max_task_calls"
            raise UserError(f"budget.{limited[0]}: the endpoint {self.base_url} {lacks}, so that {way_out}")

    async def _shut_down(self) -> None:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}  # an interrupted first question among them
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for endpoint in self._endpoints:
            await endpoint.close()

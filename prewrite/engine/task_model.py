"""The frozen task model behind an OpenAI-compatible endpoint: many calls at once, retried, cached, counted.

Calls run on one event loop in a thread of its own, so that synchronous training code and asynchronous code can both
ask. A call that stays failed is data: an `Answer` with an error, never an exception and never a wrong answer.
"""

import asyncio
import hashlib
import json
import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from prewrite.config import TaskModelSettings
from prewrite.engine.task_endpoint import Endpoint, TaskModelStats
from prewrite.engine.task_wire import CallFailed, request_body
from prewrite.errors import UserError
from prewrite.tasks.control_tokens import holds_control_token
from prewrite.types import Answer, Call

logger = logging.getLogger(__name__)

_CACHED_ANSWERS = 200_000
_CALLS_FOR_A_VERDICT = 20
_FAILED_IN_A_ROW = 50
_PROBE_RETRIES = 2


class TaskModel:
    """Asks the task model at `base_url`: the one that `settings` name, several that share the calls, or one started
    for them.

    `settings.timeout` is the deadline in seconds of one try of a call, its whole body included, so a call ends within
    (max_retries + 1) x timeout plus the waits between. seed: sample i of a query is drawn with seed + i; None leaves
    the field out (per-request seeds slow vLLM on a GPU).
    Control tokens in a query (<|im_start|>) are neutralised and counted, not refused: an example of the data set that
    holds one would otherwise never get a verdict.
    Raises UserError where base_url is no URL or the key's environment variable is not set.
    """

    def __init__(self, settings: TaskModelSettings, *, base_url: str | Sequence[str], seed: int | None = None):
        self.settings, self.seed = settings, seed
        self._last_failure = ""
        self._num_unreached = 0  # calls in a row without a usable reply
        self._gone_after = max(_FAILED_IN_A_ROW, 2 * settings.concurrency)
        self.stats = TaskModelStats()
        self._judged = TaskModelStats()
        urls = [base_url] if isinstance(base_url, str) else base_url
        self._endpoints = [Endpoint(settings, base_url=url, stats=self.stats) for url in urls]
        self._cache: OrderedDict[bytes, Answer] = OrderedDict()
        self._in_flight: dict[bytes, asyncio.Task[Answer]] = {}
        self._ahead: dict[bytes, asyncio.Task[Answer]] = {}  # asked, and nobody has wanted the answer yet
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="task-model", daemon=True)
        self._thread.start()

    @property
    def base_url(self) -> str:
        return ", ".join(endpoint.base_url for endpoint in self._endpoints)

    def __enter__(self) -> "TaskModel":
        return self

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

    def state(self) -> dict[str, Any]:
        """What an interrupted run needs to go on: the counts so far, and the answers that need not be bought again."""
        counts = {name: value for name, value in vars(self.stats).items() if isinstance(value, int)}
        answers = {key.hex(): (one.text, one.finish_reason) for key, one in list(self._cache.items())}
        return {"counts": counts, "failures": dict(self.stats.failures), "answers": answers}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Takes `state` back; before the first `ask`."""
        vars(self.stats).update(state["counts"])
        self.stats.failures.update(state["failures"])
        self._judged = replace(self.stats, failures=self.stats.failures.copy())
        self._cache.update(
            (bytes.fromhex(key), Answer(text, finish_reason=reason)) for key, (text, reason) in state["answers"].items()
        )

    def ask(
        self,
        calls: Sequence[Call],
        *,
        progress: Callable[[int, int], None] | None = None,
        on_answer: Callable[[Call, Answer], None] | None = None,
    ) -> list[Answer]:
        """The answers, in the order of the calls. `progress(done, total)` and `on_answer`, as each of them comes, run
        in the task model's thread.

        Raises UserError once twice as many calls in a row as go at once (50 at least) stayed without a usable reply
        after all retries: the endpoint is gone, and the rest would only wait for it. A refusal is a reply. Not with
        max_failure_share 1, which allows every call to fail.
        """
        asked = asyncio.run_coroutine_threadsafe(self._ask_all(calls, progress, on_answer), self._loop)
        try:
            return asked.result()
        finally:
            asked.cancel()  # no effect on a finished one; on Ctrl-C nothing is left waiting

    def ask_ahead(self, calls: Sequence[Call]) -> None:
        """Starts calls and does not wait: the `ask` that wants the answers finds them under way, or there."""
        asyncio.run_coroutine_threadsafe(self._start(calls), self._loop)

    def probe(self, choices: Sequence[str] = ()) -> None:
        """One real call before any work, with forced choice where `choices` are given.

        Raises UserError where the endpoint cannot be reached, refuses the key, does not serve the model, cannot force
        a choice, or answers nonsense.
        """
        asyncio.run_coroutine_threadsafe(self._probe_all(tuple(choices)), self._loop).result()

    def check_failure_share(self) -> None:
        """Raises UserError where more than `max_failure_share` of the calls since the last check stayed failed.

        Fewer than 20 calls are no evidence: they wait for the next check. Cached answers do not count.
        """
        calls = self.stats.calls - self._judged.calls
        if calls < _CALLS_FOR_A_VERDICT:
            return
        failed, most = self.stats.failed - self._judged.failed, self.settings.max_failure_share
        reasons = self.stats.failures - self._judged.failures
        self._judged = TaskModelStats(
            calls=self.stats.calls, failed=self.stats.failed, failures=self.stats.failures.copy()
        )
        if failed > most * calls:
            kinds = ", ".join(f"{count} x {kind}" for kind, count in reasons.most_common(3))
            slow = "; where it is only slow, raise task_model.timeout or lower task_model.concurrency"
            way_out = f"Look at the endpoint{slow if 'timeout' in reasons else ''}."
            raise UserError(
                f"task model at {self.base_url}: {failed} of the last {calls} calls stayed failed ({kinds}; the last "
                f"one {self._last_failure}), more than task_model.max_failure_share {most}. {way_out}"
            )

    async def _ask_all(
        self,
        calls: Sequence[Call],
        progress: Callable[[int, int], None] | None,
        on_answer: Callable[[Call, Answer], None] | None,
    ) -> list[Answer]:
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
        if key in self._cache:
            self._cache.move_to_end(key)
            self.stats.cached += 1
            return self._cache[key]
        if key in self._in_flight:
            self.stats.cached += 1
        else:
            self._begin(call, body, key)
        return await asyncio.shield(self._in_flight[key])

    async def _start(self, calls: Sequence[Call]) -> None:
        for call in calls:
            body, key = self._request(call)
            if not any(key in known for known in (self._cache, self._in_flight, self._ahead)):
                self._begin(call, body, key)
                self._ahead[key] = self._in_flight[key]

    def _request(self, call: Call) -> tuple[dict[str, Any], bytes]:
        """The body of the call, and its key among all calls."""
        body = request_body(call, self.settings, self.seed)
        return body, hashlib.sha256(json.dumps([body, call.sample_index], sort_keys=True).encode()).digest()

    def _begin(self, call: Call, body: dict[str, Any], key: bytes) -> None:
        if holds_control_token(call.query):
            if not self.stats.neutralised:
                logger.warning("a query holds chat-control tokens; they are neutralised: %r", call.query[:200])
            self.stats.neutralised += 1
        self._in_flight[key] = asyncio.create_task(self._ask_until_settled(key, body, call.choices))

    async def _ask_until_settled(self, key: bytes, body: dict[str, Any], choices: Sequence[str]) -> Answer:
        try:
            endpoint = self._endpoints[key[0] % len(self._endpoints)]  # the same call always has the same endpoint
            answer = await endpoint.complete(body, choices, max_retries=self.settings.max_retries)
        except CallFailed as failure:
            self.stats.failed += 1
            self.stats.failures[failure.kind] += 1
            self._last_failure = str(failure)
            self._num_unreached = self._num_unreached + 1 if failure.retry else 0
            return Answer(text=None, error=str(failure))
        else:
            self._num_unreached = 0
            self._cache[key] = answer
            if len(self._cache) > _CACHED_ANSWERS:
                self._cache.popitem(last=False)
            return answer
        finally:
            self.stats.calls += 1
            del self._in_flight[key]

    async def _probe_all(self, choices: tuple[str, ...]) -> None:
        for endpoint in self._endpoints:
            await self._probe(endpoint, choices)

    async def _probe(self, endpoint: Endpoint, choices: tuple[str, ...]) -> None:
        query = f"Answer with one word: {choices[0]}." if choices else "Answer with one word: yes."
        try:
            body = request_body(Call(query, choices), self.settings, self.seed)
            await endpoint.complete(body, choices, max_retries=min(self.settings.max_retries, _PROBE_RETRIES))
        except CallFailed as failure:
            kind, message = failure.kind, str(failure)
        else:
            return
        where = f"task model {self.settings.model!r} at {endpoint.base_url}"
        if kind == "no connection":
            raise UserError(
                f"{where}: nothing answers there ({message}). Start the endpoint or put task_model.base_url right."
            )
        if kind in ("HTTP 401", "HTTP 403"):
            raise UserError(
                f"{where}: the endpoint refused the API key (task_model.api_key_env is {endpoint.api_key_env}). "
                f"It said {message}"
            )
        if kind == "HTTP 404":
            served = await endpoint.served_models()
            way_out = f"It serves: {', '.join(served[:10])}." if served else "base_url mostly ends in /v1."
            raise UserError(f"{where}: no such model or address. {way_out} It said {message}")
        raise UserError(f"{where} gave no usable answer to a first question: {message}")

    async def _shut_down(self) -> None:
        tasks = list(self._in_flight.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for endpoint in self._endpoints:
            await endpoint.close()

"""The wire to an OpenAI-compatible endpoint: deadline, retries, concurrency; asynchronous, on one event loop.

The wire is aiohttp, which asks a vLLM server as fast as it can answer. The openai client costs 10 to 40 times the CPU
time a call (its HTTP pool looks at every open connection for each request), and became the slowest part of a step.
"""

import asyncio
import json
import os
import random
import time
import urllib.request
from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

import aiohttp

from prewrite.config import TaskModelSettings
from prewrite.engine.forced_choice import ForcedChoice
from prewrite.engine.spending import Spending
from prewrite.engine.task_wire import CallFailed, read_reply, status_failure, tokens_in
from prewrite.errors import UserError
from prewrite.types import Answer

BUDGET_SPENT = "the budget is spent"
_FIRST_BACKOFF, _LAST_BACKOFF = 0.5, 30.0
_LOOPBACK = {"127.0.0.1", "localhost", "::1"}
_LONGEST_HEADER = 2**18  # gateways add headers (policies, cookies) beyond aiohttp's 8 kB
_IDLE_SECONDS = 3.0  # a connection is given up before a server does it (uvicorn after 5) just as we write into it


class Endpoint:
    """An address, its key and how patiently it is asked. Counts requests, retries and tokens in `spending`.

    Raises UserError where the key's environment variable is not set.
    """

    def __init__(self, settings: TaskModelSettings, *, base_url: str, spending: Spending):
        self.base_url, self.timeout = base_url.rstrip("/"), settings.timeout
        self.api_key_env = settings.api_key_env if settings.base_url is not None else None  # our own server has no key
        self._spending = spending
        # Where the chat template was told not to think, what a server calls reasoning is the answer.
        self._thinking_off = settings.chat_template_kwargs.get("enable_thinking") is False
        self._api_key = _read_key(self.api_key_env)
        self._slots = asyncio.Semaphore(settings.concurrency)
        self._jitter = random.Random()  # its own: the trainer's global generator must not depend on retries
        # Of the environment its proxy alone, and not for this machine: aiohttp's trust_env would read ~/.netrc as well,
        # and a login found there contradicts the key.
        host = urlsplit(base_url).hostname or ""
        is_direct = host in _LOOPBACK or bool(urllib.request.proxy_bypass(host))
        self._proxy = None if is_direct else urllib.request.getproxies().get(urlsplit(base_url).scheme)
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        """Closes the connections; safe to call twice."""
        if self._session is not None:
            await self._session.close()

    async def complete(self, body: dict[str, Any], forced: ForcedChoice | None, *, max_retries: int) -> Answer:
        """The answer to one request. Raises CallFailed once it stays failed; waits between tries hold no slot."""
        for tried in range(max_retries + 1):
            try:
                async with self._slots:
                    if not self._spending.begin(is_retry=tried > 0):
                        raise CallFailed(BUDGET_SPENT, "", retry=False)
                    return await self._try(body, forced)
            except CallFailed as failure:
                if not failure.retry or tried == max_retries:
                    raise
                backoff = min(_FIRST_BACKOFF * 2**tried, _LAST_BACKOFF) * self._jitter.uniform(0.5, 1.0)
                await asyncio.sleep(max(backoff, failure.wait * self._jitter.uniform(1.0, 1.1)))
        raise AssertionError("max_retries is negative")

    async def _try(self, body: dict[str, Any], forced: ForcedChoice | None) -> Answer:
        started, tokens = time.perf_counter(), (0, 0)
        try:
            async with asyncio.timeout(self.timeout):
                status, headers, text = await self._send("POST", "/chat/completions", body)
            tokens = tokens_in(text)  # paid for, whatever else the reply is worth
            if status >= 400:
                raise status_failure(status, headers, text, is_forced=forced is not None)
            answer = read_reply(text, forced, thinking_off=self._thinking_off)
            return replace(answer, prompt_tokens=tokens[0], completion_tokens=tokens[1])
        except TimeoutError:
            raise CallFailed("timeout", f"no whole reply within {self.timeout:g} s", retry=True) from None
        except aiohttp.ClientResponseError as error:  # it did answer, though not in HTTP that can be read
            raise CallFailed("unreadable reply", str(error), retry=True) from None
        except (aiohttp.ClientError, OSError) as error:
            raise CallFailed("no connection", str(error) or type(error).__name__, retry=True) from None
        finally:
            self._spending.end(time.perf_counter() - started, *tokens)

    async def served_models(self) -> list[str]:
        """The names it serves; none where it cannot tell, since they only make a message better."""
        try:
            async with asyncio.timeout(self.timeout):
                _, _, text = await self._send("GET", "/models", None)
            return [str(model["id"]) for model in json.loads(text)["data"]]
        except (TimeoutError, ValueError, RecursionError, LookupError, TypeError, aiohttp.ClientError, OSError):
            return []

    async def _send(self, method: str, path: str, body: Any) -> tuple[int, Mapping[str, str], str]:
        """(status, headers, text) of the whole reply, whatever its bytes are; the key never is in the text."""
        if self._session is None:  # made here, since it belongs to the loop that it is used on
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_IDLE_SECONDS),
                headers={"Authorization": f"Bearer {self._api_key}"},
                timeout=aiohttp.ClientTimeout(total=None),
                max_line_size=_LONGEST_HEADER,
                max_field_size=_LONGEST_HEADER,
            )
        async with self._session.request(method, self.base_url + path, json=body, proxy=self._proxy) as reply:
            text = (await reply.read()).decode("utf-8", "replace")
            text = text.replace(self._api_key, "<key>") if self.api_key_env else text  # endpoints quote it in errors
            return reply.status, reply.headers, text


def _read_key(api_key_env: str | None) -> str:
    if api_key_env is None:
        return "EMPTY"
    if not (key := os.environ.get(api_key_env, "").strip()):
        way_out = "export it (NAME=<the key>), or set api_key_env to null for an endpoint without a key."
        raise UserError(f"task_model.api_key_env names an environment variable that is not set: {way_out}")
    if not (key.isascii() and key.isprintable()):
        raise UserError(f"task_model.api_key_env: the key in {api_key_env} holds a line break or a letter no key has.")
    return key

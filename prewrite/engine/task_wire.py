"""One question to an OpenAI-compatible endpoint as data: the request, the reply, and what each fault means."""

import json
import math
import time
from collections.abc import Mapping, Sequence
from email.utils import parsedate_to_datetime
from typing import Any

from prewrite.config import TaskModelSettings
from prewrite.tasks.control_tokens import neutralise_control_tokens
from prewrite.types import Answer, Call

# Off, and sent all the same: vLLM and SGLang otherwise take them from the model repo's generation_config.json.
_VLLM_SAMPLING_OFF = {"top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0}
_RETRIED_STATUS = {408, 409, 429}
_RETRY_AFTER_CAP = 120.0
_DETAIL_CHARACTERS = 300


class CallFailed(Exception):
    """One try of a call failed.

    kind: a short name to count by, as "HTTP 500"; retry: whether another try can help; wait: seconds that the
    endpoint asked us to wait (Retry-After), 0 where it did not.
    """

    def __init__(self, kind: str, detail: str, *, retry: bool, wait: float = 0.0):
        shown = " ".join(detail.split())[:_DETAIL_CHARACTERS]
        super().__init__(f"{kind}: {shown}" if shown else kind)
        self.kind, self.retry, self.wait = kind, retry, wait


def request_body(call: Call, settings: TaskModelSettings, seed: int | None) -> dict[str, Any]:
    """The JSON body of a chat completion. Control tokens in the query are neutralised, so it stays one user turn."""
    messages = [{"role": "user", "content": neutralise_control_tokens(_encodable(call.query))}]
    if settings.system_prompt is not None:
        messages.insert(0, {"role": "system", "content": settings.system_prompt})
    body: dict[str, Any] = {
        "model": settings.model,
        "messages": messages,
        "temperature": settings.temperature,
        "top_p": settings.top_p,
        "max_tokens": settings.max_tokens,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "n": 1,
    }
    if seed is not None:
        body["seed"] = seed + call.sample_index
    if settings.vllm_fields:
        body |= _VLLM_SAMPLING_OFF
    if settings.chat_template_kwargs:
        body["chat_template_kwargs"] = dict(settings.chat_template_kwargs)
    if call.choices:
        body["structured_outputs"] = {"choice": list(call.choices)}
    return body


def read_reply(text: str, choices: Sequence[str]) -> tuple[Answer, int, int]:
    """(answer, prompt tokens, completion tokens) of a reply with status 200.

    An empty content is an answer (""): the model ended at once, or spent max_tokens on thinking.
    Raises CallFailed where the body is no whole JSON, carries an error, has no choices, or is not one of `choices`.
    """
    try:
        reply = json.loads(text)
    except ValueError:
        raise CallFailed("unreadable reply", f"no whole JSON: {text!r}", retry=True) from None
    if not isinstance(reply, dict):
        raise CallFailed("unreadable reply", f"no JSON object: {text!r}", retry=True)
    if reply.get("error"):
        raise _error_in_reply(reply["error"])
    answers = reply.get("choices")
    first = answers[0] if isinstance(answers, list) and answers else None
    if not isinstance(first, dict) or not isinstance(message := first.get("message"), dict):
        raise CallFailed("unreadable reply", f"no choices: {text!r}", retry=True)
    content, finish_reason = message.get("content"), first.get("finish_reason")
    content = "" if content is None else content
    if not isinstance(content, str):
        raise CallFailed("unreadable reply", f"the content is no text: {content!r}", retry=True)
    if finish_reason == "content_filter":
        raise CallFailed("content filter", "the endpoint withheld the answer", retry=False)
    if choices and (content := content.strip()) not in choices:
        raise _unforced(content, finish_reason, choices)
    usage = reply.get("usage")
    usage = usage if isinstance(usage, dict) else {}
    answer = Answer(text=content, finish_reason=finish_reason)
    return answer, usage.get("prompt_tokens") or 0, usage.get("completion_tokens") or 0


def status_failure(status: int, headers: Mapping[str, str], text: str) -> CallFailed:
    """What a reply with status 4xx or 5xx means: 408, 409, 429 and 5xx are worth another try, other 4xx are not."""
    if status in (400, 422) and "structured_outputs" in text:
        return CallFailed(
            "forced choice refused", f"use scoring free_text with this endpoint; it said: {text}", retry=False
        )
    if status in (400, 422) and any(name in text for name in (*_VLLM_SAMPLING_OFF, "chat_template_kwargs")):
        return CallFailed("field refused", f"set vllm_fields to false for this endpoint; it said: {text}", retry=False)
    return CallFailed(
        f"HTTP {status}",
        text,
        retry=status in _RETRIED_STATUS or status >= 500,
        wait=retry_after_seconds(headers.get("retry-after"), now=time.time()),
    )


def retry_after_seconds(value: str | None, *, now: float) -> float:
    """Seconds to wait by a Retry-After header (seconds or HTTP date), at most 120; 0 where it says nothing usable."""
    if value is None:
        return 0.0
    try:
        wait = float(value)
    except ValueError:
        try:
            wait = parsedate_to_datetime(value).timestamp() - now
        except ValueError:
            return 0.0
    return min(max(wait, 0.0), _RETRY_AFTER_CAP) if math.isfinite(wait) else 0.0


def _encodable(text: str) -> str:
    return text.encode("utf-8", "replace").decode("utf-8")  # JSON data may hold lone surrogates, which UTF-8 cannot


def _error_in_reply(error: Any) -> CallFailed:
    code = error.get("code") if isinstance(error, dict) else None
    refused = isinstance(code, int) and 400 <= code < 500 and code not in _RETRIED_STATUS
    return CallFailed("error in a 200 reply", json.dumps(error), retry=not refused)


def _unforced(content: str, finish_reason: str | None, choices: Sequence[str]) -> CallFailed:
    if finish_reason == "length" and any(choice.startswith(content) for choice in choices):
        return CallFailed("choice cut off", f"{content!r} of {list(choices)}: raise max_tokens", retry=False)
    return CallFailed(
        "forced choice ignored",
        f"asked for one of {list(choices)}, got {content!r}: use scoring free_text with this endpoint",
        retry=False,
    )

"""One question to an OpenAI-compatible endpoint as data: the request, the reply, and what each fault means."""

import json
import math
import re
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Any

from prewrite.config import TaskModelSettings
from prewrite.engine.forced_choice import ForcedChoice
from prewrite.tasks.control_tokens import neutralise_control_tokens
from prewrite.types import Answer, Call

# Sent where they are off too: vLLM and SGLang otherwise take them from the model repo's generation_config.json.
_SAMPLING = ("temperature", "top_p", "max_tokens", "presence_penalty")
_VLLM_SAMPLING = ("top_k", "min_p", "repetition_penalty")
_OTHER_FIELDS = (*_SAMPLING, "frequency_penalty", "n", "seed")
_RETRIED_STATUS = {408, 409, 429}
_RETRY_AFTER_CAP = 120.0
_TOP_LOGPROBS = 20  # as many as vLLM and hosted endpoints give
_DETAIL_CHARACTERS = 300
_REFUSED_STATUS = {400, 415, 422, 501}
_FORCING_FIELDS = re.compile("structured_outputs|response_format|json_schema|regex|guided|grammar")
# How an answer ended, in lower case: by itself, by max_tokens, or withheld. Whatever is in none of them is no answer.
_ENDED = {"", "stop", "eos", "eos_token", "stop_sequence", "end_turn", "complete", "completed"}
_CUT = {"length", "max_tokens", "model_length", "max_output_tokens", "max_length"}
_WITHHELD = {"content_filter", "safety", "sensitive", "recitation", "prohibited_content", "blocklist", "refusal"}
_TOO_LARGE = re.compile(r"too (?:large|long|high)|at most|maximum|exceed", re.IGNORECASE)
_TOO_LONG = re.compile(r"context[ _](?:length|window|size)|context_length", re.IGNORECASE)
_FREE_TEXT = "use scoring free_text with this endpoint"
_SHORTER = (
    "lower task_model.max_tokens, leave long examples out by data.max_words, or raise the endpoint's own limit (of a "
    "server started here task_model.max_model_len)"
)


class CallFailed(Exception):
    """One try of a call failed.

    kind: a short name to count by, as "HTTP 500"; retry: whether another try can help; wait: seconds that the
    endpoint asked us to wait (Retry-After), 0 where it did not.
    """

    def __init__(self, kind: str, detail: str, *, retry: bool, wait: float = 0.0):
        shown = " ".join(detail.split())[:_DETAIL_CHARACTERS]
        super().__init__(f"{kind}: {shown}" if shown else kind)
        self.kind, self.retry, self.wait = kind, retry, wait


def request_body(
    call: Call, settings: TaskModelSettings, seed: int | None, forced: ForcedChoice | None = None
) -> dict[str, Any]:
    """The JSON body of a chat completion. Control tokens in the query are neutralised, so it stays one user turn."""
    messages = [{"role": "user", "content": neutralise_control_tokens(_encodable(call.query))}]
    if settings.system_prompt is not None:
        messages.insert(0, {"role": "system", "content": _encodable(settings.system_prompt)})
    body: dict[str, Any] = {"model": settings.model, "messages": messages, "frequency_penalty": 0.0, "n": 1}
    body |= {name: getattr(settings, name) for name in _SAMPLING}
    if seed is not None:
        body["seed"] = seed + call.sample_index
    if settings.vllm_fields:
        body |= {name: getattr(settings, name) for name in _VLLM_SAMPLING}
    if settings.chat_template_kwargs:
        body["chat_template_kwargs"] = dict(settings.chat_template_kwargs)
    if forced is not None:
        body |= forced.fields()
        if settings.label_logprobs:
            body |= {"logprobs": True, "top_logprobs": _TOP_LOGPROBS}
    names: Mapping[str, str | None] = {str(name): sent for name, sent in settings.request_fields.items()}
    renamed = {names.get(name, name): value for name, value in body.items()}
    return {name: value for name, value in renamed.items() if name is not None}


def read_reply(text: str, forced: ForcedChoice | None, *, thinking_off: bool = False) -> Answer:
    """The answer in a reply with status 200.

    An empty content is an answer (""): the model ended at once, or spent max_tokens on thinking. One that ended by
    itself and left its text in `reasoning_content` is the answer under thinking_off, and else nobody can tell: a
    parser of the server's has misplaced it.
    Raises CallFailed where the body is no whole JSON, carries an error, has no choices, is none of the forced ones, or
    ended in a way that makes it no answer.
    """
    try:
        reply = json.loads(text.removeprefix("\ufeff"))
    except (ValueError, RecursionError):
        raise CallFailed("unreadable reply", f"no whole JSON: {text!r}", retry=True) from None
    if not isinstance(reply, dict):
        raise CallFailed("unreadable reply", f"no JSON object: {text!r}", retry=True)
    if reply.get("error") or reply.get("object") == "error":
        raise _error_in_reply(reply.get("error") or reply)
    answers = reply.get("choices")
    first = answers[0] if isinstance(answers, list) and answers else None
    if not isinstance(first, dict) or not isinstance(message := first.get("message"), dict):
        raise CallFailed("unreadable reply", f"no choices: {text!r}", retry=True)
    if error := first.get("error") or message.get("error"):
        raise _error_in_reply(error)
    content = _text_of(message.get("content"))
    finish_reason = _finish_reason(first.get("finish_reason"), content)
    if not content.strip():
        if message.get("refusal"):
            raise CallFailed("refusal", str(message["refusal"]), retry=False)
        content = _misplaced(message, finish_reason, thinking_off) or content
    if forced is not None:
        if (choice := forced.read(content)) is None:
            raise _unforced(content, finish_reason, forced)
        content = choice
    pieces = first["logprobs"].get("content") if isinstance(first.get("logprobs"), dict) else None
    likely = forced.logprobs(pieces) if forced is not None else None
    return Answer(text=content, finish_reason=finish_reason, choice_logprobs=likely)


def tokens_in(text: str) -> tuple[int, int]:
    """(prompt tokens, completion tokens) that a reply says it took, whatever its status; 0 where it does not."""
    try:
        usage = json.loads(text.removeprefix("\ufeff"))["usage"]
        return _count(usage.get("prompt_tokens")), _count(usage.get("completion_tokens"))
    except (ValueError, RecursionError, LookupError, TypeError, AttributeError):
        return 0, 0


def status_failure(status: int, headers: Mapping[str, str], text: str, *, is_forced: bool = False) -> CallFailed:
    """What a reply with status 4xx or 5xx means: 408, 409, 429 and 5xx are worth another try, other 4xx are not."""
    if is_forced and status in _REFUSED_STATUS and _FORCING_FIELDS.search(text):
        return CallFailed("forced choice refused", f"{_FREE_TEXT}; it said: {text}", retry=False)
    if status in (400, 413, 422) and _TOO_LONG.search(text):
        return CallFailed("too long", f"{_SHORTER}; it said: {text}", retry=False)
    if status in (400, 422) and (way_out := _field_refused(text)):
        return CallFailed("field refused", f"{way_out}; it said: {text}", retry=False)
    may_pass = status in _RETRIED_STATUS or status >= 500
    wait = retry_after_seconds(headers.get("retry-after"), now=time.time())
    return CallFailed(f"HTTP {status}", text, retry=may_pass, wait=wait)


def retry_after_seconds(value: str | None, *, now: float) -> float:
    """Seconds to wait by a Retry-After header (seconds or HTTP date), at most 120; 0 where it says nothing usable."""
    if value is None:
        return 0.0
    try:
        wait = float(value)
    except ValueError:
        try:
            wait = parsedate_to_datetime(value).timestamp() - now
        except (ValueError, TypeError, IndexError, OverflowError, OSError):  # a year, or an hour, beyond reckoning
            return 0.0
    return min(max(wait, 0.0), _RETRY_AFTER_CAP) if math.isfinite(wait) else 0.0


def _encodable(text: str) -> str:
    return text.encode("utf-8", "replace").decode("utf-8")  # JSON data may hold lone surrogates, which UTF-8 cannot


def _error_in_reply(error: Any) -> CallFailed:
    code = _count(error.get("code")) if isinstance(error, dict) else 0
    refused = 400 <= code < 500 and code not in _RETRIED_STATUS
    return CallFailed("error in a 200 reply", json.dumps(error), retry=not refused)


def _text_of(content: Any) -> str:
    """The text of a message's content: null is empty, a list of parts is joined; parts that are thoughts are left."""
    parts = content if isinstance(content, list) else [] if content is None else [content]
    texts = []
    for part in parts:
        part = {"text": part} if isinstance(part, str) else part
        kind, text = (part.get("type", "text"), part.get("text")) if isinstance(part, dict) else ("", None)
        if kind in ("thinking", "reasoning"):
            continue
        if kind not in ("text", "output_text") or not isinstance(text, str):
            raise CallFailed("unreadable reply", f"the content is no text: {content!r}", retry=True)
        texts.append(text)
    return "".join(texts)


def _finish_reason(given: Any, content: str) -> str | None:
    """ "stop", "length", or None where the endpoint gives none. Raises CallFailed where the reply is no answer."""
    if given is None:
        return None
    reason = given.lower() if isinstance(given, str) else repr(given)
    if reason in _ENDED:
        return "stop"
    if reason in _CUT:
        return "length"
    if reason in _WITHHELD:
        raise CallFailed("content filter", f"the endpoint withheld the answer ({given})", retry=False)
    if reason in ("tool_calls", "function_call"):
        if content.strip():
            return "stop"
        raise CallFailed("tool call", "the model called a tool that nobody offered, in place of an answer", retry=False)
    raise CallFailed("broken off", f"finish_reason {given!r} after {content!r}", retry=True)


def _misplaced(message: Mapping[str, Any], finish_reason: str | None, thinking_off: bool) -> str:
    """The answer that stands where thoughts belong, "" where there is none."""
    thoughts = message.get("reasoning_content") or message.get("reasoning")
    if not isinstance(thoughts, str) or not thoughts.strip() or thinking_off:
        return thoughts if isinstance(thoughts, str) else ""
    if finish_reason == "length":
        return ""
    way_out = "start the server without its reasoning parser, or turn thinking off with chat_template_kwargs"
    detail = f'content is empty: {way_out} {{"enable_thinking": false}}; it said: {thoughts!r}'
    raise CallFailed("answer in reasoning_content", detail, retry=False)


def _count(value: Any) -> int:
    """A count of tokens or a code, whatever an endpoint writes there; 0 for what is none."""
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return 0
    return int(number) if 0 <= number < 1e15 else 0


def _field_refused(text: str) -> str:
    """The setting that helps where a refusal names a field of the request; "" where it names none."""
    words = set(re.findall(r"[a-z_]{3,}|(?<=['\"`])n(?=['\"`\\])", text))
    named = [name for name in ("chat_template_kwargs", *_OTHER_FIELDS, *_VLLM_SAMPLING) if name in words]
    if not named:
        return ""
    if named == ["max_tokens"] and _TOO_LARGE.search(text):
        return "lower task_model.max_tokens, or raise the endpoint's own limit"
    if set(named) <= set(_VLLM_SAMPLING):
        return "set vllm_fields to false for this endpoint"
    if "chat_template_kwargs" in named:
        return "leave task_model.chat_template_kwargs empty for this endpoint"
    names = json.dumps({named[0]: "max_completion_tokens" if named[0] == "max_tokens" else None})
    return f"set task_model.request_fields, which renames a field or, with null, leaves it out: {names}"


def _unforced(content: str, finish_reason: str | None, forced: ForcedChoice) -> CallFailed:
    if finish_reason == "length" and forced.is_begun_by(content):
        return CallFailed("choice cut off", f"{content!r} of {list(forced.choices)}: raise max_tokens", retry=False)
    detail = f"asked for one of {list(forced.choices)}, got {content!r}: {_FREE_TEXT}"
    return CallFailed("forced choice ignored", detail, retry=False)

"""A first question to the task model, which finds out whether it can be asked, and how it is made to choose."""

import logging
from collections.abc import Sequence

from prewrite.config import TaskModelSettings
from prewrite.engine.forced_choice import DIALECTS, Dialect, ForcedChoice
from prewrite.engine.task_endpoint import Endpoint
from prewrite.engine.task_wire import CallFailed, request_body
from prewrite.errors import UserError
from prewrite.types import Call

logger = logging.getLogger(__name__)

PROBE_QUERY = "What is 2 + 2? Answer with a number."
PROBE_WORD = "quartz"  # behind each label that is forced: no model answers the query so of itself
_SPARE_TOKENS = 8  # of that word
_RETRIES = 2
# How an endpoint that is otherwise well answers a field that it does not know, or does not heed.
_NOT_FORCED = {"forced choice refused", "forced choice ignored", "field refused", "error in a 200 reply"} | {
    f"HTTP {status}" for status in (400, 415, 422, 500, 501)
}


async def probe_endpoints(
    endpoints: Sequence[Endpoint], settings: TaskModelSettings, seed: int | None, choices: Sequence[str]
) -> Dialect | None:
    """One real call to each endpoint; where `choices` are given, one in each dialect until one holds at all of them.

    What is forced is a text that no model would say, so that an endpoint which ignores the field is found out. Returns
    the dialect, or None where none holds, which a warning tells: choices are then asked for in free text.
    Raises UserError where an endpoint cannot be reached, refuses the key, lacks the model, or its answer is none.
    """
    refusals: list[str] = []
    for dialect in DIALECTS if choices else ():
        forced = ForcedChoice(dialect, tuple(f"{choice} {PROBE_WORD}" for choice in choices))
        refusal = ""
        for endpoint in endpoints:
            refusal = refusal or await _probe(endpoint, settings, seed, forced)
        if not refusal:
            return dialect
        refusals.append(f"{dialect}: {refusal}")
    for endpoint in endpoints:
        await _probe(endpoint, settings, seed, None)
    if choices and settings.label_logprobs:
        raise UserError(
            f"task model {settings.model!r} at {endpoints[0].base_url} cannot force a choice, so that nothing says how "
            f"likely each label is: leave task_model.label_logprobs false with it. Tried: {'; '.join(refusals)}"
        )
    if choices:
        asked = f"the task model {settings.model!r} at {', '.join(endpoint.base_url for endpoint in endpoints)}"
        told = "labels are asked for and found in FREE TEXT, as with task_model.scoring free_text"
        logger.warning("%s cannot force a choice: %s. Tried: %s", asked, told, "; ".join(refusals))
    return None


async def _probe(endpoint: Endpoint, settings: TaskModelSettings, seed: int | None, forced: ForcedChoice | None) -> str:
    """How the endpoint shows that it does not force, "" where its answer is usable. UserError for all else."""
    where = f"task model {settings.model!r} at {endpoint.base_url}"
    spare = {"max_tokens": settings.max_tokens + _SPARE_TOKENS} if forced else {}
    try:
        body = request_body(Call(PROBE_QUERY), settings.model_copy(update=spare), seed, forced)
        answer = await endpoint.complete(body, forced, max_retries=min(settings.max_retries, _RETRIES))
    except CallFailed as failure:
        kind, message = failure.kind, str(failure)
    else:
        if forced and settings.label_logprobs and answer.choice_logprobs is None:
            raise UserError(
                f"{where}: it forces a choice by {forced.dialect}, but does not say how likely each label was: leave "
                "task_model.label_logprobs false with this endpoint, or use vLLM's server."
            )
        return ""
    if forced and kind in _NOT_FORCED:
        return message
    if kind == "no connection":
        raise UserError(f"{where}: nothing answers there ({message}). Start it, or put task_model.base_url right.")
    if kind in ("HTTP 401", "HTTP 403"):
        key = f"the API key (task_model.api_key_env is {endpoint.api_key_env})"
        raise UserError(f"{where}: the endpoint refused {key}. It said {message}")
    if kind == "HTTP 404":
        served = await endpoint.served_models()
        way_out = f"It serves: {', '.join(served[:10])}." if served else "base_url mostly ends in /v1."
        raise UserError(f"{where}: no such model or address. {way_out} It said {message}")
    raise UserError(f"{where} gave no usable answer to a first question: {message}")

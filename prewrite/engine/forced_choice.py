"""The dialects in which endpoints are told to answer with one of a few words: vLLM's, SGLang's, and JSON schema."""

import json
import math
import re
from dataclasses import dataclass
from typing import Any, Literal

Dialect = Literal["structured_outputs", "regex", "json_schema"]
# Probed in this order. The first two ask the same question, the third another one: the answer is a JSON object.
DIALECTS: tuple[Dialect, ...] = ("structured_outputs", "regex", "json_schema")

_JSON_KEY = "answer"
_LEAST_MASS = 1e-9  # of a choice that is in no list of the likeliest
_REGEX_SIGNS = re.compile(r"([\\.^$*+?{}()|\[\]])")


@dataclass(frozen=True)
class ForcedChoice:
    """One of `choices`, as a dialect says it."""

    dialect: Dialect
    choices: tuple[str, ...]

    def fields(self) -> dict[str, Any]:
        """What it adds to the body of a request."""
        if self.dialect == "structured_outputs":
            return {"structured_outputs": {"choice": list(self.choices)}}
        if self.dialect == "regex":
            literal = [_REGEX_SIGNS.sub(r"\\\1", choice) for choice in self.choices]  # re.escape spells blanks oddly
            return {"regex": f"({'|'.join(literal)})"}
        choice = {_JSON_KEY: {"type": "string", "enum": list(self.choices)}}
        schema = {"type": "object", "properties": choice, "required": [_JSON_KEY], "additionalProperties": False}
        json_schema = {"name": "answer", "strict": True, "schema": schema}
        return {"response_format": {"type": "json_schema", "json_schema": json_schema}}

    def read(self, content: str) -> str | None:
        """The choice that the content of a reply is; None where it is none of them."""
        given: Any = content.strip()
        if self.dialect == "json_schema":
            try:
                given = json.loads(given)
            except (ValueError, RecursionError):
                return None
            given = given.get(_JSON_KEY) if isinstance(given, dict) else None
        return given if isinstance(given, str) and given in self.choices else None

    def logprobs(self, pieces: Any) -> tuple[float, ...] | None:
        """How likely each choice was (nats), by a reply's `logprobs.content`; None where it does not say.

        pieces: of the answer, each with what else could have stood there (`top_logprobs`). Where a choice leaves the
        way of the one that was given, all that could begin it there counts; a piece that begins several choices which
        all left is shared out evenly. The dialect must not wrap the choice.
        """
        if self.dialect == "json_schema" or not isinstance(pieces, list) or not pieces:
            return None
        masses, way, logprob_of_way = [0.0] * len(self.choices), "", 0.0
        try:
            for piece in pieces:
                others = {str(one["token"]): _logprob(one) for one in piece["top_logprobs"]}
                given = str(piece["token"])
                for other, logprob in others.items():
                    begun = [i for i, choice in enumerate(self.choices) if other and choice.startswith(way + other)]
                    for i in begun if other != given else ():
                        masses[i] += math.exp(min(0.0, logprob_of_way + logprob)) / len(begun)
                way, logprob_of_way = way + given, logprob_of_way + _logprob(piece)
                if way in self.choices and not any(c != way and c.startswith(way) for c in self.choices):
                    break
        except (LookupError, TypeError, ValueError, AttributeError, OverflowError):
            return None
        if way not in self.choices:
            return None
        masses[self.choices.index(way)] += math.exp(min(0.0, logprob_of_way))
        return tuple(round(math.log(min(1.0, max(mass, _LEAST_MASS))), 4) for mass in masses)

    def is_begun_by(self, content: str) -> bool:
        """Whether the content is the beginning of a choice, as max_tokens leaves it."""
        begun = "".join(content.split())
        wholes = self.choices if self.dialect != "json_schema" else [json.dumps({_JSON_KEY: c}) for c in self.choices]
        return any("".join(whole.split()).startswith(begun) for whole in wholes)


def _logprob(piece: Any) -> float:
    logprob = float(piece["logprob"])
    if not logprob < 0.1:  # above 0 by more than a rounding, or NaN
        raise ValueError(f"{logprob} is no log-prob")
    return logprob

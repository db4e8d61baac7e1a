"""The dialects in which endpoints are told to answer with one of a few words: vLLM's, SGLang's, and JSON schema."""

import json
import re
from dataclasses import dataclass
from typing import Any, Literal

Dialect = Literal["structured_outputs", "regex", "json_schema"]
# Probed in this order. The first two ask the same question, the third another one: the answer is a JSON object.
DIALECTS: tuple[Dialect, ...] = ("structured_outputs", "regex", "json_schema")

_JSON_KEY = "answer"
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
        schema = {
            "type": "object",
            "properties": {_JSON_KEY: {"type": "string", "enum": list(self.choices)}},
            "required": [_JSON_KEY],
            "additionalProperties": False,
        }
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

    def is_begun_by(self, content: str) -> bool:
        """Whether the content is the beginning of a choice, as max_tokens leaves it."""
        begun = "".join(content.split())
        wholes = self.choices if self.dialect != "json_schema" else [json.dumps({_JSON_KEY: c}) for c in self.choices]
        return any("".join(whole.split()).startswith(begun) for whole in wholes)

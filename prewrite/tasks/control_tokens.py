"""The spellings that tokenizers of chat models read as control tokens, wherever they stand in a text."""

import re

# <|im_end|>, <|eot_id|>, <|endoftext|>, DeepSeek's full-width bars; Llama 2 / Mistral; Gemma; <s> and friends.
_CONTROL_TOKEN = re.compile(
    r"<[|｜][^\s<>|｜][^<>|｜\n]{0,60}[|｜]>"
    r"|\[/?INST\]|<</?SYS>>"
    r"|<(?:start|end)_of_turn>"
    r"|</?(?:s|bos|eos|pad|unk)>"
)


def find_control_token(text: str) -> str | None:
    """The first chat-control token that the text spells out, or None."""
    match = _CONTROL_TOKEN.search(text)
    return match.group() if match else None


def escape_control_tokens(text: str) -> str:
    """The text with a space after the first character of every chat-control token: readable, and no token any more."""
    return _CONTROL_TOKEN.sub(lambda match: f"{match.group()[0]} {match.group()[1:]}", text)

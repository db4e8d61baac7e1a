"""A chat as token ids, and which of them the assistant says: what SFT trains."""

import itertools
import re
from array import array
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from prewrite.engine.chat_template import apply_template, control_token_in
from prewrite.errors import UserError
from prewrite.tasks.chats import Chat
from prewrite.types import TokenRow

_GENERATION = re.compile(r"\{%-?\s*generation\s*-?%\}")
_WAY_OUT = "give a policy.chat_template that does not, or one with {% generation %}"
Span = tuple[int, int]


def encode_chat(tokenizer: Any, chat: Chat, chat_template_kwargs: Mapping[str, Any]) -> TokenRow:
    """The chat in the tokenizer's template; trained are the assistant's turns from `chat.first` on, with their ends.

    A template that marks what the assistant says ({% generation %}) is believed. Else what stands between the chat up
    to a turn, with the generation prompt, and the chat up to its end is the turn, which holds where each of the two is
    the beginning of the whole. Where a token would reach over such a cut, the parts are tokenized by themselves, as a
    request is. UserError at `chat.where`: a turn that holds control tokens, and a template that raises, drops or
    rewrites a turn, has another beginning, or ends a turn with no special token, so that nobody would learn to stop.
    """
    if not tokenizer.chat_template:
        raise UserError("policy.model: its tokenizer has no chat template; give one, or policy.chat_template")
    for turn in chat.turns:
        if forged := control_token_in(turn.role, tokenizer) or control_token_in(turn.content, tokenizer):
            raise UserError(f"{chat.where}: it holds the control token {forged!r}; take it out")
    turns = [{"role": turn.role, "content": turn.content} for turn in chat.turns]

    def rendered(most: int, **how: Any) -> Any:
        return apply_template(tokenizer, turns[:most], chat_template_kwargs, chat.where, **{"tokenize": False, **how})

    if _GENERATION.search(tokenizer.chat_template):
        marked = {"tokenize": True, "return_dict": True, "return_assistant_tokens_mask": True}
        encoding = rendered(len(turns), **marked)
        ids, runs = encoding["input_ids"], _runs(encoding["assistant_masks"])
        numbers = [number for number, turn in enumerate(chat.turns) if turn.role == "assistant"]
        if len(runs) != len(numbers):
            what = f"marks {len(runs)} parts as the assistant's, and {len(numbers)} turns are"
            way_out = "look at {% generation %} in policy.chat_template"
            raise UserError(f"{chat.where}: the chat template {what}; {way_out}")
        spans = [run for number, run in zip(numbers, runs, strict=True) if number >= chat.first]
        is_end = _special(tokenizer).__contains__
        # Some templates leave the token that ends the turn outside the mark.
        spans = [(a, b + 1) if not is_end(ids[b - 1]) and b < len(ids) and is_end(ids[b]) else (a, b) for a, b in spans]
    else:
        whole, cuts = _turn_spans(chat, rendered)
        ids, spans = _tokens(tokenizer, whole, cuts)
    spans = [_to_its_end(tokenizer, ids, span, chat.where) for span in spans]
    is_trained = bytearray(len(ids))
    for start, end in spans:
        is_trained[start:end] = b"\1" * (end - start)
    return TokenRow(array("i", ids), bytes(is_trained))


def _turn_spans(chat: Chat, render: Callable[..., str]) -> tuple[str, list[Span]]:
    """(the whole text, where the assistant's turns stand in it)."""
    whole, spans = render(len(chat.turns)), []
    for number, turn in enumerate(chat.turns):
        if turn.role != "assistant" or number < chat.first:
            continue
        before, after = render(number, add_generation_prompt=True), render(number + 1)
        if not after.startswith(before) or not whole.startswith(after):
            raise UserError(
                f"{chat.where}: the chat template of policy.model makes another text of the turns before turn "
                f"{number + 1} once it follows, or of that turn once others follow, as templates do that take "
                "thinking out of earlier turns: what the policy would be asked is not what it would be trained on. "
                f"Give rows of one answer (`prompt` and `completion`), or {_WAY_OUT}"
            )
        if turn.content.strip() not in after[len(before) :]:
            made = f"drops or rewrites what the assistant says; it makes of it {after[len(before) :][:80]!r}"
            raise UserError(f"{chat.where}: the chat template of policy.model {made}; {_WAY_OUT}")
        spans.append((len(before), len(after)))
    return whole, spans


def _tokens(tokenizer: Any, text: str, spans: Sequence[Span]) -> tuple[list[int], list[Span]]:
    """(token ids, the spans in tokens)."""
    cuts = [place for span in spans for place in span]
    encoding = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    ids, offsets = encoding["input_ids"], encoding["offset_mapping"]
    if any(start < cut < end for start, end in offsets for cut in cuts):
        bounds = [0, *cuts, len(text)]
        pieces = [text[start:end] for start, end in itertools.pairwise(bounds)]
        parts = [tokenizer(piece, add_special_tokens=False)["input_ids"] for piece in pieces]
        ids = [token for part in parts for token in part]
        places = [sum(map(len, parts[:number])) for number in range(1, len(parts))]
    else:
        places = [sum(end <= cut for _, end in offsets) for cut in cuts]
    return ids, list(zip(places[::2], places[1::2], strict=True))


def _to_its_end(tokenizer: Any, ids: Sequence[int], span: Span, where: str) -> Span:
    """The span up to its last special token, behind which templates have at most white space."""
    start, end = span
    special = _special(tokenizer)
    last = next((place for place in reversed(range(start, end)) if ids[place] in special), None)
    if last is None or tokenizer.decode(ids[last + 1 : end]).strip():
        what = "ends the assistant's turn with no special token, so that the policy would not learn to stop"
        way_out = "give a policy.chat_template that does, as with {{ eos_token }}"
        raise UserError(f"{where}: the chat template of policy.model {what}: {way_out}")
    return start, last + 1


def _special(tokenizer: Any) -> set[int]:
    added = getattr(tokenizer, "added_tokens_decoder", {}).items()
    return {*tokenizer.all_special_ids, *(number for number, token in added if token.special)}


def _runs(mask: Sequence[int]) -> list[Span]:
    """Where the ones stand, run by run."""
    edges = [place for place, (a, b) in enumerate(zip([0, *mask], [*mask, 0], strict=True)) if a != b]
    return list(zip(edges[::2], edges[1::2], strict=True))

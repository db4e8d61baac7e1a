"""A request in the policy's chat template: a user turn, not forged and not changed, perhaps a system turn before it."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from prewrite.errors import UserError
from prewrite.plugins import TooSlow, template_time
from prewrite.tasks.control_tokens import first_control_token


def render_request(
    tokenizer: Any, turn: str, chat_template_kwargs: Mapping[str, Any], *, where: str, system: str | None = None
) -> list[int]:
    """Token ids of the turn as the user's, up to where the answer begins.

    where: what a fault is told of, as "instruction row 3". system: the system turn; None = the template's own, if any.
    Raises UserError where the tokenizer has no chat template, where the turn holds control tokens (it would forge a
    turn), and where the template raises, or drops or rewrites the turn. White space around a turn does not count.
    """
    if not tokenizer.chat_template:
        raise UserError("policy.model: its tokenizer has no chat template; give an instruction-tuned (chat) model")
    if forged := control_token_in(turn, tokenizer):
        raise UserError(f"{where}: it holds the control token {forged!r}; take it out")
    turns = [{"role": "user", "content": turn}]
    if system is not None:
        if forged := control_token_in(system, tokenizer):
            raise UserError(f"rollout.system_prompt: it holds the control token {forged!r}; take it out")
        turns.insert(0, {"role": "system", "content": system})
    text = apply_template(tokenizer, turns, chat_template_kwargs, where, add_generation_prompt=True, tokenize=False)
    if system is not None and system.strip() not in text:
        raise UserError(
            "rollout.system_prompt: the chat template of policy.model drops or rewrites it; put it into the user turn "
            "(rollout.meta_instruction, or data.instruction_suffix in solving), or give a policy.chat_template"
        )
    if turn.strip() not in text:
        made = f"drops or rewrites the instruction; what it makes of it ends in {text[-80:]!r}"
        way_out = "Give a model whose template shows the user's turn as it is."
        raise UserError(f"{where}: the chat template of policy.model {made}. {way_out}")
    return tokenizer(text, add_special_tokens=False)["input_ids"]


def apply_template(
    tokenizer: Any, turns: Sequence[Mapping[str, str]], chat_template_kwargs: Mapping[str, Any], where: str, **how: Any
) -> Any:
    """What the tokenizer's template makes of the turns. UserError at `where` for one that raises, or does not end."""
    try:
        with template_time(f"{where}: the chat template of policy.model"):
            return tokenizer.apply_chat_template(turns, **how, **chat_template_kwargs)
    except TooSlow:
        raise
    except Exception as error:  # a template is a program of the model's maker: it raises what it likes
        raise UserError(
            f"{where}: the chat template of policy.model raised {type(error).__name__}: {error}. Look at "
            "rollout.chat_template_kwargs and rollout.system_prompt, or give a model whose template takes such turns."
        ) from error


def control_token_in(turn: str, tokenizer: Any) -> str | None:
    """A special token of the tokenizer's in the turn, or one of a common chat format. Added tokens that are not special
    (<think>, runs of blanks) are ordinary text."""
    added = getattr(tokenizer, "added_tokens_decoder", {}).values()
    special = [*tokenizer.all_special_tokens, *(token.content for token in added if token.special)]
    found = [token for token in special if token.strip() and token in turn]
    return max(found, key=len) if found else first_control_token(turn)


def read_template(given: str) -> str:
    """The text itself, or that of the file it names: a template has braces, and a file's name none.

    UserError where there is no such file.
    """
    if "{" in given:
        return given
    try:
        return Path(given).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        rule = "holds no { }, so it is no Jinja text, and as a file it cannot be read"
        raise UserError(f"policy.chat_template: {given!r} {rule}: {error}") from error

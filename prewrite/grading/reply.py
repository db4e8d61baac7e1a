"""The reply in a completion: without thinking, control tokens and the turns behind it. Every scan is linear."""

import re

_CONTROL = (  # behind the first character
    r"(?<=<)[|｜][^<>|｜\s]{2,48}[|｜]>"  # ChatML, Llama 3, Phi, Command R, harmony: <|im_start|>; DeepSeek: <｜User｜>
    r"|/?(?:s|bos|eos|pad|unk|start_of_turn|end_of_turn|end_of_utterance)>"  # Llama 2, Mistral, Gemma
    r"|</?SYS>>|/?(?:INST|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_RESULTS|TOOL_CALLS)\]"  # Llama 2, Mistral
)
CONTROL_TOKEN = rf"[<\[](?:{_CONTROL})"
_THINKING = r"(?:think(?:ing)?|thoughts?|reasoning|seed:think)>"
_MARK = re.compile(  # one set of first characters: a scan that starts with alternatives takes ten times as long
    rf"[<\[◁](?:(?P<opens>{_THINKING}|THINK\]|think▷|\|begin_of_thought\|>|\|START_THINKING\|>"
    r"|\|channel\|>\s*(?:analysis|commentary)|\|channel>\s*thought)"
    rf"|(?P<closes>/{_THINKING}|/THINK\]|/think▷|\|end_of_thought\|>|\|END_THINKING\|>"
    r"|\|channel\|>\s*final[^<]{0,40}(?:<\|constrain\|>[^<]{0,40})?<\|message\|>|channel\|>)"
    rf"|(?P<ends>{_CONTROL}))"
)
"""What stands around a reply: its thinking, as each family of models marks it, and control tokens."""
_LONG_RUN = re.compile(r"\s{100,}|(_{100})_+")
_BARE_CHANNELS = re.compile(r"\Aanalysis(?=[A-Z])(?:.*assistantfinal|.*)", re.DOTALL)
"""The channels of gpt-oss where the server drops control tokens and keeps the words in them."""


def strip_thinking(text: str) -> str:
    """The part of a completion that is the reply: after the last `</think>`, before an unclosed `<think>`.

    `[THINK]`, `<thinking>`, `◁think▷` and the channels of gpt-oss mean the same. A template may have opened the
    thinking, so `</think>` alone counts too. A completion that was cut off while it thought has no reply: "".
    """
    text = _BARE_CHANNELS.sub("", text)
    begin, end = 0, len(text)
    for mark in _MARK.finditer(text):
        if mark["closes"]:
            begin, end = mark.end(), len(text)
        elif mark["opens"]:
            end = min(end, mark.start())
    return text[begin:end]


def answer_part(text: str | None) -> str:
    """The reply without its thinking and what follows its end token, and within its last `<answer>` tag if it has one.

    None, a call without a reply, is "". Long runs of white space or underscores, which say nothing and would make the
    scans for an answer quadratic, are cut.
    """
    reply = _LONG_RUN.sub(lambda run: run[1] or ("\n" if "\n" in run[0] else " "), _turn(text or ""))
    end = reply.rfind("</answer>")
    start = reply.rfind("<answer>", 0, max(end, 0))
    return reply if start < 0 else reply[start + len("<answer>") : end]


def _turn(text: str) -> str:
    """The reply up to the first control token behind its beginning: the next turn, which the model made up, is not its.

    A control token that thinking follows and closes belongs to the thinking (gpt-oss ends each channel with one).
    """
    text = _BARE_CHANNELS.sub("", text)
    begin, end, ended = 0, None, False
    for mark in _MARK.finditer(text):
        if mark["closes"]:
            begin, end, ended = mark.end(), None, False
        elif ended and mark["opens"]:
            break
        elif end is None and mark["ends"] and text[begin : mark.start()].strip() in ("", "assistant", "model"):
            begin = mark.end()
        elif end is None:
            end, ended = mark.start(), mark["opens"] is None
    return text[begin:end]

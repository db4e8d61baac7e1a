"""From what the policy wrote to the instruction in it."""

import re

from prewrite.grading import strip_thinking
from prewrite.tasks.control_tokens import holds_control_token, without_trailing_control_tokens

_CHANGED = (
    r"(?:re-?written|re-?worded|re-?phrased|revised|improved|new|updated|optimi[sz]ed|refined|enhanced|better|clearer"
    r"|modified|edited|final|alternative|suggested|proposed|concise|detailed|effective|precise|specific)"
)
_NOUN = r"(?:instructions?|prompts?|versions?|rewrite|revision|rephrasing)"
_CHANGED_NOUN = rf"(?:{_CHANGED}[\s,/-]{{1,4}}(?:and[\s-]{{1,4}}|more[\s-]{{1,4}})*)+{_NOUN}"
_ABOUT = r"(?:\s+(?:of|for|that|with|to|which|based|you|below|in|so|using|as)\b[^:\n]{0,100})?"
_COURTESY = (
    r"(?:(?:sure|certainly|of course|absolutely|okay|ok|great|yes|got it)\b(?:[ ,]{1,4}(?:thing|here))?"
    r"\s{0,4}[,.!:]*\s{0,4})"
)
_HERE_IS = r"(?:here(?:['’]s| is| are)|below is|the following is|i(?:['’]ve| have)? (?:re-?wrote|re-?written) it as)"
_DECORATION = r"[*_#>\s]{0,12}"

# "Sure! Here is a clearer version of your instruction:", "**Rewritten instruction**:", "Instruction:", "Revised:".
_LEAD_IN = re.compile(
    rf"(?i){_DECORATION}{_COURTESY}?{_DECORATION}"
    rf"(?:{_HERE_IS}\s+(?:(?:a|an|the|my|your|one|how)\s+)?(?:(?:possible|more|much|slightly)\s+)*"
    rf"(?:{_CHANGED_NOUN}|{_NOUN}){_ABOUT}"
    rf"|(?:(?:the|my|your|a)\s+)?{_CHANGED_NOUN}(?:\s+(?:is|could be|would be|reads|might be))?"
    r"|(?:instruction|prompt)|re-?written|revised|rewrite)"
    r"(?:[*_\s]{0,6}:[*_]*|[*_]*[.]?\n)\s*"
)
_COURTESY_LINE = re.compile(rf"{_COURTESY}\n\s*", re.IGNORECASE)
_HEADING = re.compile(rf"\s*#+\s*(?:{_CHANGED_NOUN}|{_NOUN})\s*\n\s*", re.IGNORECASE)
_ORIGINAL_FIRST = re.compile(
    rf"(?is){_DECORATION}original(?:\s+{_NOUN})?[*_\s]*:.*?\n{_DECORATION}"
    rf"(?:{_CHANGED_NOUN}|re-?written|revised|improved|new|rewrite)[*_\s]*:[*_]*\s*"
)
_FENCE = re.compile(r"(`{3,9}|~{3,9})[^\n`]*\n(.*?)\n?[ \t]{0,8}\1", re.DOTALL)
_OPEN_FENCE = re.compile(r"(?:```+|~~~+)\w*[ \t]*\n")
_WRAPPING_TAG = re.compile(
    r"(?is)<(answer|instruction|prompt|rewrite|output|(?:rewritten|new|improved|revised)_(?:instruction|prompt))>(.*)</\1>"
)
_PARAGRAPH_BREAK = re.compile(r"\n[ \t]*(?:[-*_]{3,}[ \t]*)?\n\s*")
_PLEASANTRY = re.compile(
    r"(?i)\W*(?:i hope (?:this|that|it)\b|(?:please )?let me know if (?:you|this|that|there)\b"
    r"|feel free to (?:ask|modify|adjust|let)|is there anything else|would you like me to)"
)
_I_DID = r"i(?:['’]ve| have)? (?:re-?wrote|re-?written|changed|added|made|kept|removed|used|clarified|simplified)"
_NOTE_START = re.compile(
    r"(?i)\W*(?:note|notes|explanation|rationale|reasoning|changes(?: made)?|key changes|improvements|why this works"
    r"|this (?:(?:re-?written|revised|new|improved|updated)\s+)?(?:version|instruction|prompt|rewrite|revision)"
    r"|(?:in this|the) (?:re-?written|revised|new|improved|updated) (?:version|instruction|prompt)"
    rf"|by (?:adding|making|using)|{_I_DID})\b"
)
_ABOUT_REWRITING = re.compile(
    r"(?i)\b(?:re-?written|re-?wrote|re-?write|re-?worded|rephrased|revised|revision|changes made|key changes"
    rf"|original (?:instruction|prompt|version)|{_I_DID})\b"
    r"|\bthis (?:version|instruction|prompt) (?:is|makes|provides|ensures|clarifies|adds|uses|gives|will|helps|specif)"
)
_QUOTES = {'"': '"', "“": "”", "„": "“", "«": "»", "'": "'", "‘": "’", "`": "`"}


def clean_rewrite(text: str) -> str:
    """The instruction in a completion of the policy; "" where it holds none.

    Cut: thinking; a preamble ("Sure! Here is the rewritten instruction:"), a label or heading ("**Rewritten
    Instruction:**"), an original that is repeated before its rewrite; a code fence, tag, bold or quotes around the
    whole; notes about the rewriting and pleasantries after it. What merely looks like these inside an instruction
    stays: quotes around parts, fences with examples, "Note: answer with one word.". A completion that spells
    chat-control tokens is a fault and gives "" (one that ends with them is cut there). Cleaning twice changes nothing.
    """
    text = without_trailing_control_tokens(strip_thinking(text)).strip()
    if holds_control_token(text):
        return ""
    while (shorter := _peeled(text)) != text:
        text = shorter
    return text


def _peeled(text: str) -> str:
    """The text less one layer of each kind; never longer."""
    text = _without_notes(text)
    text = _ORIGINAL_FIRST.sub("", text, count=1) if _ORIGINAL_FIRST.match(text) else text
    for opening in (_COURTESY_LINE, _HEADING, _LEAD_IN):
        if match := opening.match(text):
            text = text[match.end() :]
    text = _without_fence(text.strip())
    wrapped = _WRAPPING_TAG.fullmatch(text)
    return _unquoted(wrapped.group(2).strip() if wrapped else text).strip()


def _without_notes(text: str) -> str:
    about_rewriting = [match.start() for match in _ABOUT_REWRITING.finditer(text)]
    for gap in _PARAGRAPH_BREAK.finditer(text):
        is_note = _NOTE_START.match(text, gap.end()) and about_rewriting and about_rewriting[-1] >= gap.end()
        if is_note or _PLEASANTRY.match(text, gap.end()):
            return text[: gap.start()].strip() or text
    return text


def _without_fence(text: str) -> str:
    """What a fence around the whole text holds; a fence that is only a part of it stays."""
    if (match := _FENCE.match(text)) and match.end() == len(text):
        return match.group(2).strip()
    if (opening := _OPEN_FENCE.match(text)) and text.count("```") + text.count("~~~") == 1:
        return text[opening.end() :].strip()
    return text


def _unquoted(text: str) -> str:
    """The text without quotes or bold marks that belong together and stand around the whole of it."""
    if bold := re.fullmatch(r"\*\*([^*]+)\*\*", text):
        return bold.group(1)
    closing = _QUOTES.get(text[:1])
    if closing is None or len(text) < 2 or not text.endswith(closing):
        return text
    inner = text[1:-1]
    marks = re.sub(r"(?<=\w)['’](?=\w)", "", inner)  # apostrophes are no quotes
    return text if text[0] in marks or closing in marks else inner

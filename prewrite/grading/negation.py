"""What the words around a label do to it: a label is given, rejected, or left in doubt.

By rule, not by list of sentences: a cue of negation governs what follows it in its clause. Right before the label (but
for words such as "very" or "considered") it rejects it; further off it leaves the label in doubt, and so do two cues.
"""

import re

GIVEN, REJECTED, DOUBT = "given", "rejected", "doubt"

_NO_CUE = re.compile(
    r"\b(?:not (?:only|just|merely|simply|to mention|surprising\w*)|(?:no|without|beyond|leaves? no|not) (?:an?y? |the "
    r"|all )?(?:\w+ (?:of an? |of )?)?(?:doubt|question|hesitation|reservations?|exception|ambiguity|denying|mistaking"
    r"|mistake)|nothing (?:but|other than|short of|less than)|(?:cannot|can't|can not|couldn't|could not|hard to"
    r"|impossible to) (?:possibly )?(?:deny|be denied|miss|help but|but|dispute|be (?:more|any(?!thing)|anything (?:but"
    r"|other|except)))|(?:never|not|n't) fails? to|(?:(?:would|should|do|does|did)(?: not|n't)|never) hesitates?"
    r"|if (?:i|we) (?:had|have|must)|if (?:forced|pressed|asked|anything))\b|不[仅僅但只错錯]|非常|毫?[无無]疑"
)
_SHORT_NOT = r"n't\b|\b(?:do|does|did|is|was|are|ca|wo|would|should|could)nt\b"
_NOT = (
    r"\b(?:not|never|hardly|scarcely|barely|rarely|seldom|neither|nor|no longer|ain'?t|cannot|far from|impossible"
    r"|rather than|instead of|as opposed to|unlike|nothing|anything but|nowhere near|less than|opposite of|(?:in|by"
    r"|under|on) no (?:means|way|sense|respect|circumstances|account)|fail(?:s|ed)? to|without(?: (?:being|sounding"
    r"|seeming))?|ni|noch|nem|né|ani|ни|nicht|kein(?:e[nmrs]?)?|niet|geen|ikke|inte|не|(?:n'|ne )\w+ (?:pas|plus|point"
    r"|jamais)|no (?:es|era|parece|son)|não (?:é|era|parece)|non (?:è|era|sembra)"
    rf"|(?:reject|exclud|eliminat|discard)\w*|rul(?:e|es|ed|ing) out)\b|{_SHORT_NOT}"
)
_BETWEEN = (
    r"(?:\s+(?:(?:think|believe|feel|say)\s+(?:that\s+)?(?:this|the|that)\s+\w+\s+(?:is|was|seems|sounds|counts\s+as)"
    r"|eine?|une?|una?|een|en|um|sehr|très|muy|molto|muito|an?|the|any|really|very|all|at|quite|clearly|exactly|particularly|too|so|that|actually|necessarily|entirely"
    r"|fully|truly|overly|especially|remotely|even|in|way|think|believe|say|find|it|this|it's|is|was|be|been|being"
    r"|sentiment|options?|choices?|answer|label|either|out|as|to|me|us|go|far|see|seem|appear|look|sound|strike|come|across"
    r"|(?:call|describe|classif[iy]|consider|label|rate|regard|view|interpret|characteri[sz]e|read|seen|taken)(?:l?ed|d)?))*"
    r"\s*\(?$"
)
_REJECTS = re.compile(rf"(?:{_NOT}){_BETWEEN}|(?:不是|并非|並非|不太|不够|不算|不|没有?|沒有?|未|ไม่(?:ใช่|เป็น)?)$")
_CUE = re.compile(
    rf"{_NOT}|\b(?:no|without|whether|if|unless|lack\w*|less|opposite|no(?:where|body|ne)|few|little|(?:de)?void"
    r"|free of|(?:reverse|inverse|antithesis|lack|absence) of|false that|f[au]rthest|missing|off$|hope[sd]?|hoping"
    r"|(?:fall|stop)\w* short|short of|used to|formerly|(?:almost|nearly)(?! (?:certain|sure|entire|all))"
    r"|except(?:ing)?|apart from|aside from|other than|besides|rather|absen\w*|hard|difficult|too \w+|contrary|opposed"
    r"|(?:stop|ceas|refus|declin|deni|hesitat|avoid|resist|refrain|prevent|preclud|prohibit|fail|reluctan|disput|refut|reject"
    r"|struggl|wrong|mistak|exaggerat|overstat|questionab|dubious|sceptic|skeptic|pretend|doubt(?!less)|stretch|tempt|wish|want)\w*|deny"
    r"|in(?:accura|appropria|correct|valid|applicab|conceivab|compatib|consisten|adequa|suffici)\w*|im(?:possib|prob|plaus)\w*"
    r"|un(?:able|likely|suit|fit|true|justif|support|tenab|warrant|convinc|persua|willing|reason|fair|sure|certain)\w*"
    r"|mis(?:lead|class|label|repres|judg|read|character|taken)\w*|dis(?:agree|miss|qualif|pro(?:of|v)|avow|regard)\w*"
    r"|ne|pas|non|nicht|kein\w*|niet|geen|não|sin|nunca|jamais|nada|не|нет|ни|nie|ikke|inte|değil|không|bukan|tidak|si)\b|\bn'|[不没沒非未無无]|ไม่"
)
_CLAUSE_END = re.compile(
    r"[.!?;,\n)。]|(?<!\bnot)(?<!\bnot )[:(]|\b(?:and|yet|because|since|so|though|although|while|however)\b"
    r"|(?<!anything )\bbut\b|\b(?:sino|sondern|maar|mais|senão|а|но)\b"
)
_REJECTED_AFTER = re.compile(
    r"[^\S\n]*(?P<one>(?:is|was|seems|looks|sounds|does|has)\s+)?(?:(?:are|were|do|have|can|could|would|must)\s+)?"
    r"(?:(?:all|both|also|clearly|obviously|definitely|be|been|too|therefore)\s+)*"
    r"(?:not\b(?! (?:wrong|incorrect|false|out))|(?P<once>is|was|does)n't\b|(?:are|were|do|ca|could|would)n't\b"
    r"|cannot\b|wrong\b|incorrect\b|false\b|out\b|ruled out|eliminated|excluded|discarded|impossible|invalid|fails?\b)"
    r"|\s*\?\s*(?:no|not (?:at all|really|quite|exactly)|never|hardly|wrong|nope|far from it|by no means"
    r"|(?:absolutely|certainly|definitely) not|i (?:don't think|doubt)[^.,!]*)(?=[.,!]|\s*$)"
    r"|\s*[:=]\s*(?:no|false)(?=\s*(?:$|[,;.}\n]))|[^。,.\n]{0,6}(?:不对|不對|不正确|不正確|错|錯|ない|ありません|아니|아닙|아닌|않|değil|नहीं|নয়|కాదు)"
)
_PREDICATE = re.compile(
    r"(?:\s+(?:label|option|choice|answer|class|category|sentiment|rating|reading|interpretation|review|tone|verdict)|(?<!\bno)(?<!\byes)\s+it)?\s*(?:is|was|are|were|seems?|looks?|sounds?"
    r"|feels?|appears?|would|could|can|may|might|must|should|do|does|did|has|have|will|gets?|makes?)\b"
    r"(?P<said>(?:(?!\b(?:that|which|who|with|than|as|for|like|unlike)\b)[^.!?;,\n()。])*)"
)
_UNREAL = re.compile(
    r"\s+(?:have )?be(?:en)? (?!(?:my|the|correct|right|appropriate|accurate|most|best|an? \w*(?:good|best|fit)))"
)
_WERE_IT = re.compile(r"(?:^|[.!?\n]\s*)(?:were|had) (?:it|this|the)\b[^.!?\n]*$")
_ALL_BUT = re.compile(
    r"\b(?:all|every\w*)(?: (?:of |the )*\w+)?,? (?:except|but|other than|besides|apart from|aside from)"
    r"(?: (?:for|the|option|choice))*\s*\(?$"
)
_SO_IS = re.compile(r"\b(?:so|neither|nor) (?:is|are|was|does|do|can)(?: the)?\s+$")
JOINT = re.compile(r"\s*(?:,?\s*(?:and|or|nor|&)\s+|,\s*)(?:(?:an?|the|option|choice)\s+)*\(?")
_COORDINATOR = re.compile(r"and|or|&")
_SINGULAR = re.compile(r"\s+(?:is|was|seems|looks|must|has)\b")
_LONGEST_CLAUSE = 160


def senses(text: str, spans: list[tuple[int, int]]) -> list[str]:
    """For every span of a label in the text (lower case), in order: GIVEN, REJECTED or DOUBT."""
    found = []
    for index, (start, end) in enumerate(spans):
        before = text[max(spans[index - 1][1] if index else 0, start - _LONGEST_CLAUSE) : start]
        clause = _CLAUSE_END.split(_NO_CUE.sub(" ", before))[-1]
        cues = len(_CUE.findall(clause))
        rejected_after = _REJECTED_AFTER.match(text, end) is not None
        if _WERE_IT.search(before):
            found.append(DOUBT)
        elif _ALL_BUT.search(before):
            found.append(GIVEN if rejected_after or _denied_after(text, spans, index) else DOUBT)
        elif found and _SO_IS.search(before):
            found.append(found[-1])
        elif cues:
            found.append(REJECTED if cues == 1 and _REJECTS.search(clause) and not rejected_after else DOUBT)
        else:
            found.append(REJECTED if rejected_after else DOUBT if _denied_after(text, spans, index) else GIVEN)
    for first, last in _coordinated(text, spans):
        if (after := _REJECTED_AFTER.match(text, spans[last][1])) and not (after["one"] or after["once"]):
            found[first:last] = [REJECTED] * (last - first)
        for index in range(first + 1, last + 1):
            if found[index] == GIVEN != found[first] and not _SINGULAR.match(text, spans[index][1]):
                found[index] = found[first]
    return found


def _denied_after(text: str, spans: list[tuple[int, int]], index: int) -> bool:
    """Whether what is said of the label ("B is a poor fit and …") holds a cue further off."""
    end = spans[index + 1][0] if index + 1 < len(spans) else len(text)
    predicate = _PREDICATE.match(text, spans[index][1], min(end, spans[index][1] + _LONGEST_CLAUSE))
    if predicate is None:
        return False
    said = _CLAUSE_END.split(_NO_CUE.sub(" ", predicate["said"]))[0]
    return _CUE.search(said) is not None or (predicate[0].split()[0] == "would" and _UNREAL.match(said) is not None)


def _coordinated(text: str, spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """(first, last) of the labels that "and" or "or" joins: in "not A, B or C" what is said of one is said of all."""
    groups, first, joined = [], 0, False
    for index in range(1, len(spans) + 1):
        gap = text[spans[index - 1][1] : spans[index][0]] if index < len(spans) else "."
        if len(gap) < 20 and JOINT.fullmatch(gap):
            joined |= _COORDINATOR.search(gap) is not None
            continue
        if joined:
            groups.append((first, index - 1))
        first, joined = index, False
    return groups

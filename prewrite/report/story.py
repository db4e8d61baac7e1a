"""What a run folder tells: the claim, the race, the lineage, wins and losses, the spending."""

import difflib
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from prewrite.config.changes import flat_settings
from prewrite.report.folder import Line, RunFolder, interval, number, text

SHOWN_CANDIDATES = 15
_MOST_TOKENS = 3000  # of a diff, whose time grows with their square

Piece = tuple[str, bool]
"""A part of a text, and whether it differs from the other text."""


@dataclass(frozen=True)
class Claim:
    """What the test says, as a badge and a sentence; tone: "good", "open" or "none"."""

    tone: str
    badge: str
    sentence: str


@dataclass(frozen=True)
class Ancestor:
    """A link of the lineage, the oldest first; mean_reward: on train, over all the times that it was written."""

    text: str
    pieces: list[Piece]
    step: float | None
    mean_reward: float | None
    times: int
    note: str


@dataclass(frozen=True)
class Duel:
    """Best against initial on the same examples; cells: "both", "won", "lost" or "neither", an example each."""

    where: str
    cells: list[str]

    def count(self, kind: str) -> int:
        return self.cells.count(kind)


@dataclass(frozen=True)
class Candidate:
    """A judged instruction. rank: by estimate; asked: examples that it was asked on."""

    rank: int
    text: str
    asked: int
    score: float | None
    interval: tuple[float, float] | None
    estimate: float
    sd: float
    is_initial: bool
    is_best: bool


def claim(entry: Line) -> Claim:
    """Says whether an entry of best.json is proven better than the initial instruction."""
    test, began = entry.get("test"), "what the last stage began with" if earlier(entry) else "the initial instruction"
    if entry.get("instruction") == entry["baseline"].get("instruction"):
        others = number(entry.get("num_candidates"))
        tried = f"none of {others - 1:.0f} rewrites" if others is not None and others > 2 else "no rewrite"
        badge = "kept" if earlier(entry) else "initial kept"
        return Claim("none", badge, f"By estimate, {tried} is better than {began}.")
    if not isinstance(test, dict) or number(test.get("p_value")) is None:
        return Claim("none", "not tested", f"The best rewrite was not tested against {began} (yet).")
    wins, losses, rows = (number(test.get(key)) or 0 for key in ("wins", "losses", "n"))
    outcome = f"{wins:.0f} were won and {losses:.0f} lost (one-sided p {test['p_value']:.2g})"
    told = f"On {rows:.0f} held-out examples that no choice had read, {outcome}."
    if test.get("proven") is True:
        return Claim("good", "better, proven", told)
    return Claim("open", "not proven", f"{told} That is within noise: nothing to deploy yet.")


def differences(old: str, new: str) -> tuple[list[Piece], list[Piece]]:
    """Both texts in pieces, by words; texts that are too long to compare stay whole and unmarked."""
    olds, news = (re.findall(r"\s+|\w+|[^\w\s]", one) for one in (old, new))
    if max(len(olds), len(news)) > _MOST_TOKENS:
        return [(old, False)], [(new, False)]
    left: list[Piece] = []
    right: list[Piece] = []
    for kind, a, b, c, d in difflib.SequenceMatcher(None, olds, news, autojunk=False).get_opcodes():
        left.append(("".join(olds[a:b]), kind != "equal"))
        right.append(("".join(news[c:d]), kind != "equal"))
    return [piece for piece in left if piece[0]], [piece for piece in right if piece[0]]


def lineage(run: RunFolder, entry: Line) -> list[Ancestor]:
    """From the initial instruction to the best, each with what it was rewritten from."""
    begun = {text(stage.get("instruction")): text(stage.get("baseline")) for stage in earlier(entry)}
    initial = next(iter(begun.values()), text(entry["baseline"].get("instruction")))
    best = text(entry.get("instruction"))
    first: dict[str, Line] = {}
    rewards: dict[str, list[float]] = {}
    for line in run.log:
        columns = ("dataset_name", "task"), ("subject", "subject"), ("level", "level")
        of_row = all(line.get(theirs) == entry.get(ours) for theirs, ours in columns)
        if not of_row or text(line.get("instruction")) not in {initial, *begun}:
            continue
        rewrite, reward = text(line.get("rewrite")), number(line.get("reward"))
        first.setdefault(rewrite, line)
        rewards.setdefault(rewrite, []).extend([] if reward is None else [reward])
    judged = {text(line.get("rewrite")): line for line in reversed(run.dev) if line.get("task") == entry.get("task")}
    chain, current = [], best
    while current and current != initial and current not in chain:
        chain.append(current)
        line = first.get(current)
        if line:
            current = text(line.get("parent")) or text(line.get("instruction"))
        else:  # written for choosing, from what its stage began with
            current = begun.get(current, text(entry["baseline"].get("instruction")))
    texts = [initial, *reversed(chain)]
    ancestors = []
    for before, one in zip(["", *texts], texts, strict=False):
        line, known = first.get(one, {}), rewards.get(one, [])
        step, mean = number(line.get("step")), sum(known) / len(known) if known else None
        note = "" if line or one == initial else _sampled(judged.get(one, {}))
        if one in begun and one not in (initial, best):
            note = f"{note or f'written in step {step or 0:.0f}'}; the next stage began with it"
        if one == initial:
            note = "the initial instruction"
        pieces = differences(before, one)[1] if before else [(one, False)]
        ancestors.append(Ancestor(one, pieces, step, mean, len(known), note))
    return ancestors


def earlier(entry: Line) -> list[Line]:
    """The stages before the one that an entry of best.json is about, the oldest first, as far as they led to it."""
    found = entry.get("earlier")
    return [stage for stage in found if isinstance(stage, dict)] if isinstance(found, list) else []


def _sampled(look: Line) -> str:
    """Where a rewrite comes from that no training step wrote. look: its first line in dev.jsonl."""
    how = "the greedy rewrite" if look.get("role") == "greedy" else "sampled for choosing"
    step = number(look.get("step"))
    after = "" if step is None else f", after step {step:.0f}"
    return f"{how}{after}: a rewrite of what its stage began with"


def stages(entry: Line) -> list[tuple[int, Line, Claim]]:
    """(number from 1, entry as best.json has it, claim) of each stage that led to an entry, its own last; [] of one."""
    before = [stage | {"baseline": {"instruction": stage.get("baseline"), "estimate": stage.get("baseline_estimate")}}
              for stage in earlier(entry)]  # fmt: skip
    found = [*before, entry] if before else []
    return [(int(number(one.get("stage")) or 0) + 1, one, claim(one)) for one in found]


def dev_lines(run: RunFolder, row: str, *roles: str, entry: Line | None = None) -> list[Line]:
    """The lines of dev.jsonl about a row, of some roles; of the entry's stage alone, where one is given."""
    lines = [line for line in run.dev if line.get("row") == row and line.get("role") in roles]
    return [line for line in lines if entry is None or line.get("stage", 0) == entry.get("stage", 0)]


def asked_on(line: Line) -> int:
    """Examples that a line of dev.jsonl is about."""
    return int((number(line.get("n")) or 0) + (number(line.get("failed")) or 0))


def candidates(run: RunFolder, row: str, entry: Line) -> list[Candidate]:
    """All that ran in the race, best estimate first."""
    lines = {}
    for line in dev_lines(run, row, "race", entry=entry):
        if number(line.get("estimate")) is not None and number(line.get("sd")) is not None:
            lines[text(line.get("rewrite"))] = line
    ordered = sorted(lines.items(), key=lambda item: -item[1]["estimate"])
    initial, best = entry["baseline"].get("instruction"), entry.get("instruction")
    found = []
    for rank, (rewrite, line) in enumerate(ordered, 1):
        score, ends = number(line.get("score")), interval(line.get("interval"))
        chosen = (rewrite == initial, rewrite == best)
        found.append(Candidate(rank, rewrite, asked_on(line), score, ends, line["estimate"], line["sd"], *chosen))
    return found


def rounds(run: RunFolder, row: str, entry: Line) -> list[list[tuple[int, int]]]:
    """The rounds of each race: (examples that each contender had been asked on when it ended, contenders)."""
    if isinstance(races := entry.get("races"), list):
        pairs = [[interval(one) for one in race] if isinstance(race, list) else [] for race in races]
        return [[(int(pair[1]), int(pair[0])) for pair in race if pair] for race in pairs if any(race)]
    looks = dev_lines(run, row, "initial", "kept", "greedy", "sampled", entry=entry)  # a run of an earlier version
    looked = {text(line.get("rewrite")) for line in looks}
    initial = text(entry["baseline"].get("instruction"))
    runners = [one for one in candidates(run, row, entry) if one.text != initial]
    # Whoever was looked at before the race may have left it with more examples than its last round.
    ends = sorted({one.asked for one in runners if one.text not in looked})
    return [[(examples, sum(one.asked >= examples for one in runners)) for examples in ends]] if ends else []


def duels(run: RunFolder, row: str, entry: Line) -> list[Duel]:
    """Best against initial in the test and in the race; verdicts of a line are in the order of the examples."""
    found = []
    for role, where in (("test", "the test: examples that no choice had read"), ("race", "the race: they chose it")):
        lines = {text(line.get("rewrite")): line.get("verdicts") for line in dev_lines(run, row, role, entry=entry)}
        best, initial = (lines.get(text(one.get("instruction"))) for one in (entry, entry["baseline"]))
        if best is initial or not isinstance(best, list) or not isinstance(initial, list):
            continue
        kinds = {(True, True): "both", (True, False): "won", (False, True): "lost", (False, False): "neither"}
        pairs = zip(best, initial, strict=False)
        cells = [kinds[a, b] for a, b in pairs if isinstance(a, bool) and isinstance(b, bool)]
        if cells:
            found.append(Duel(where, cells))
    return found


def tested(run: RunFolder, row: str, entry: Line) -> list[tuple[str, Line]]:
    """(which, line of dev.jsonl) of initial and best in the test."""
    lines = {text(line.get("rewrite")): line for line in dev_lines(run, row, "test", entry=entry)}
    pairs = (("initial", entry["baseline"]), ("best", entry))
    return [(which, lines[one["instruction"]]) for which, one in pairs if text(one.get("instruction")) in lines]


def spending(run: RunFolder) -> list[tuple[str, float]]:
    """What the task model was asked for: (purpose, answers). Training has what is left of the calls that were paid.

    A later stage has the answers of an earlier one again, unasked.
    """
    looks, races, tests = (defaultdict[tuple[str, str], int](int) for _ in range(3))
    purposes = {"initial": looks, "kept": looks, "greedy": looks, "sampled": looks, "race": races, "test": tests}
    for line in run.dev:
        key, role = (text(line.get("row")), text(line.get("rewrite"))), text(line.get("role"))
        if role in purposes:
            purposes[role][key] = max(purposes[role][key], asked_on(line))
    race = sum(max(0, asked - looks.get(key, 0)) for key, asked in races.items())
    look, test = sum(looks.values()), sum(tests.values())
    total = number(run.totals.get("task_calls")) or sum(run.series("task_calls")[1])
    parts = [("training", max(0, total - look - race - test)), ("looks", look), ("race", race), ("test", test)]
    return [(purpose, answers) for purpose, answers in parts if answers]


def phases(run: RunFolder) -> list[tuple[str, float]]:
    """(phase, seconds) over all steps; what the phases do not name is "other"."""
    keys = [key for key in metric_names([run]) if key.startswith("seconds/")]
    seconds = {key.removeprefix("seconds/"): sum(run.series(key)[1]) for key in keys}
    rest = seconds.pop("step", 0.0) - sum(seconds.values())
    return [*((phase, spent) for phase, spent in seconds.items() if spent), *([("other", rest)] if rest > 0 else [])]


def metric_names(runs: Iterable[RunFolder]) -> list[str]:
    """Every metric that has a number in any step, in the order of the files."""
    keys = (key for run in runs for line in run.metrics for key, value in line.items() if number(value) is not None)
    return [key for key in dict.fromkeys(keys) if key not in ("step", "stage")]


def differing_settings(runs: Sequence[RunFolder]) -> list[tuple[str, list[Any]]]:
    """The settings that are not the same in all runs, with their values by run."""
    flat = [flat_settings(run.config) for run in runs]
    names = dict.fromkeys(name for one in flat for name in one)
    rows = [(name, [one.get(name) for one in flat]) for name in names if name not in ("run_name", "output_dir")]
    return [(name, values) for name, values in rows if any(value != values[0] for value in values)]

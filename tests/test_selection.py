"""Choosing on dev where calls fail: a failed call never makes a rewrite look better."""

import json
from pathlib import Path

import pytest

from prewrite.config import SelectionSettings
from prewrite.config.loading import load_config
from prewrite.errors import UserError
from prewrite.reporting.journal import Journal
from prewrite.tasks import get_task
from prewrite.training.selection import Selection
from prewrite.types import Answer, Example, InstructionRow

DEV = [Example(str(i), {"text": f"text {i}"}, "positive") for i in range(8)]
CONFIG = Path(__file__).parent.parent / "configs" / "quickstart.json"


class Scripted:
    """Answers each instruction's queries by a word of letters, one an example: r right, w wrong, f failed."""

    def __init__(self, script: dict[str, str], *, strict: bool = False):
        self.script, self.strict = script, strict
        self.asked: dict[str, int] = {}

    def ask(self, calls, *, progress=None):
        answers = []
        for call in calls:
            instruction = next(text for text in self.script if call.query.startswith(text))
            place = self.asked.get(instruction, 0)
            self.asked[instruction] = place + 1
            letter = self.script[instruction][place]
            answers.append(
                Answer(text=None, error="gone") if letter == "f" else Answer({"r": "positive", "w": "negative"}[letter])
            )
        return answers

    def ask_ahead(self, calls):
        raise AssertionError("a look asks and waits")

    def check_failure_share(self):
        if self.strict:
            raise UserError("too many calls failed")


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(load_config(CONFIG, [f"output_dir={tmp_path}"]))


def selection_with(task_model: Scripted, journal: Journal) -> Selection:
    return Selection(
        SelectionSettings(), {"sst2": get_task("sst2")}, {"sst2": DEV}, task_model, journal,
        scoring="forced_choice", config_hash="",
    )  # fmt: skip


def chosen(script: dict[str, str], journal: Journal) -> str:
    """The best instruction after a look at all but the first, which is the initial one."""
    initial, *rewrites = script
    selection = selection_with(Scripted(script), journal)
    selection.judge_initial([InstructionRow(initial, "sst2")])
    selection.look(1, [("sst2", rewrite) for rewrite in rewrites], [])
    best = json.loads((journal.folder / "best.json").read_text())["sst2"]
    assert best["instruction"] == selection.best["sst2"].instruction
    return best["instruction"]


@pytest.mark.parametrize(
    ("script", "best"),
    [
        ({"Initial": "rrrrrwww", "Rewrite": "rfffffff"}, "Initial"),  # 5 of 8; 1 of 1 answered, at least 1 of 8
        ({"Initial": "rrrrrwww", "Rewrite": "rrrrrrff"}, "Rewrite"),  # at least 6 of 8
        ({"Initial": "rrrrrwww", "Rewrite": "rrrrrwwf"}, "Initial"),  # 5 of 7, perhaps no more than 5 of 8
        ({"Initial": "rrrrffff", "Rewrite": "rrrrrrww"}, "Initial"),  # 4 of 4, perhaps
        ({"Initial": "rrrrrwww", "Rewrite": "rrrrrrww", "Third": "rrrrrrrf"}, "Third"),
        ({"Initial": "rrrrrwww", "Rewrite": "ffffffff"}, "Initial"),
    ],
)
def test_a_failed_call_never_makes_a_rewrite_look_better(script: dict[str, str], best: str, journal: Journal) -> None:
    assert chosen(script, journal) == best


def test_answers_of_an_endpoint_that_fails_are_written_down_and_called_no_best(journal: Journal) -> None:
    selection = selection_with(Scripted({"Initial": "ffffffff"}, strict=True), journal)
    with pytest.raises(UserError, match="too many calls failed"):
        selection.judge_initial([InstructionRow("Initial", "sst2")])
    assert json.loads((journal.folder / "dev.jsonl").read_text())["failed"] == 8
    assert not (journal.folder / "best.json").exists()

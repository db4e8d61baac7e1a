"""Choosing on dev where calls fail: a failed call never makes a rewrite look better."""

import json
from pathlib import Path

import pytest

from prewrite.config.loading import load_config
from prewrite.errors import UserError
from prewrite.reporting.journal import Journal
from prewrite.tasks import get_task
from prewrite.training.objectives.base import weighted_rewards
from prewrite.training.objectives.held_out import HeldOutQuestions, Selection
from prewrite.training.objectives.rewrite_data import RewriteData, row_names
from prewrite.training.progress import Progress
from prewrite.types import Answer, Example, InstructionRow

DEV = [Example(str(i), {"text": f"text {i}"}, "positive") for i in range(8)]
FILE = Path(__file__).parent.parent / "configs" / "quickstart.json"
CONFIG = load_config(FILE)


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
    return Journal(load_config(FILE, [f"output_dir={tmp_path}"]))


def selection_with(
    task_model: Scripted, journal: Journal, *initial: str, progress: Progress | None = None
) -> Selection:
    rows = [InstructionRow(text, "sst2") for text in initial]
    data = RewriteData(rows, rows, {"sst2": get_task("sst2")}, weighted_rewards(CONFIG.reward), {}, {"sst2": DEV})
    return Selection(CONFIG, data, task_model, journal, progress or Progress())


def chosen(script: dict[str, str], journal: Journal) -> str:
    """The best instruction after an evaluation of all but the first, which is the initial one."""
    initial, *rewrites = script
    progress = Progress()
    selection = selection_with(Scripted(script), journal, initial, progress=progress)
    assert selection.evaluate_initial().keys() == {"dev_initial/sst2"}
    selection.evaluate(1, [rewrites], [[]])
    best = json.loads((journal.folder / "best.json").read_text())["sst2"]
    memory = progress.memory["sst2"]
    assert memory.best is not None
    assert best["instruction"] == memory.best.instruction
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
    selection = selection_with(Scripted({"Initial": "ffffffff"}, strict=True), journal, "Initial")
    with pytest.raises(UserError, match="too many calls failed"):
        selection.evaluate_initial()
    assert json.loads((journal.folder / "dev.jsonl").read_text())["failed"] == 8
    assert not (journal.folder / "best.json").exists()


def test_each_row_keeps_its_own_best(journal: Journal) -> None:
    script = {"One": "rrrrwwww", "Two": "rrrrrrrw", "Better": "rrrrrrww"}
    selection = selection_with(Scripted(script | {"Better": "rrrrrrww" * 2}), journal, "One", "Two")
    selection.evaluate_initial()
    selection.evaluate(1, [["Better"], ["Better"]], [[], []])
    best = json.loads((journal.folder / "best.json").read_text())
    assert {name: entry["instruction"] for name, entry in best.items()} == {"sst2#1": "Better", "sst2#2": "Two"}


def test_rows_are_named_by_what_tells_them_apart() -> None:
    rows = [InstructionRow("a", "sst2"), InstructionRow("b", "math-500", "algebra", "5")]
    assert row_names(rows) == ["sst2", "math-500/algebra/5"]
    assert row_names([rows[0], rows[1], InstructionRow("c", "sst2")]) == ["sst2#1", "math-500/algebra/5", "sst2#2"]


class Echo(Scripted):
    """Answers a question with its last word."""

    def __init__(self):
        super().__init__({})

    def ask(self, calls, *, progress=None):
        return [Answer(call.query.split()[-1]) for call in calls]


def test_questions_kept_back_are_looked_at_as_they_are_and_rewritten(journal: Journal) -> None:
    rows = [InstructionRow("Say 4", "gsm8k", answer="4"), InstructionRow("Say 5", "gsm8k", answer="6")]
    rewards = weighted_rewards(CONFIG.reward.model_copy(update={"reward_funcs": ["prewrite_accuracy_reward"]}))
    data = RewriteData([], rows, {"gsm8k": get_task("gsm8k")}, rewards, {}, {})
    questions = HeldOutQuestions(CONFIG, data, Echo(), journal)
    assert questions.evaluate_initial() == {"dev_initial": 0.5}
    assert questions.evaluate(3, [["Tell 4"], ["Tell 6"]], [["", "4"], ["6", "6"]]) == {
        "dev_greedy": 1.0,
        "dev_sampled": 0.75,
    }
    assert "2 held-out rows, share answered right: initial 0.500, greedy 1.000" in questions.summary()

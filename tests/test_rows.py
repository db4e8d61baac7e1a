"""Rows as the unit: their own examples, templates, and the user's words for labels; and a config's data checked at
once."""

import json
from pathlib import Path
from typing import Any

import pytest

from prewrite.asking import TEMPLATE
from prewrite.config import Config
from prewrite.errors import UserError
from prewrite.reporting.journal import Journal
from prewrite.tasks import get_task
from prewrite.tasks.files import read_instruction_rows
from prewrite.tasks.rows import cut_dev, own_examples
from prewrite.training.objectives.rewrite_data import load_rewrite_data
from prewrite.training.objectives.selection import Selection, means_over_rows
from prewrite.training.progress import Progress
from prewrite.types import Answer, Example, InstructionRow, Rollout, Sample, Verdict

SUBJECTS = (
    "Algebra", "Counting & Probability", "Geometry", "Intermediate Algebra", "Number Theory", "Prealgebra",
    "Precalculus",
)  # fmt: skip


def write_lines(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def math_folder(folder: Path, a_subject: int = 40) -> Path:
    """MATH in small: problems that say their subject, two levels; every answer is 7."""

    def problem(split: str, subject: str, number: int) -> dict[str, Any]:
        text = f"{split} {number} of {subject}: what is {number} - {number - 7}?"
        return {"problem": text, "answer": "7", "subject": subject, "level": 1 + number % 2, "unique_id": text}

    for name, split, count in (("math_train", "train", a_subject), ("math500_test", "test", 6)):
        rows = [problem(split, subject, number) for number in range(count) for subject in SUBJECTS]
        write_lines(folder / f"{name}.jsonl", rows)
    return folder


def config_of(folder: Path, rows: list[dict[str, Any]], **sections: dict[str, Any]) -> Config:
    data = {
        "instructions_file": str(write_lines(folder / "rows.jsonl", rows)), "local_dir": str(folder), "dev_size": 10,
    }  # fmt: skip
    given = {
        "output_dir": str(folder / "runs"),
        "policy": {"model": "policy"},
        "data": data,
        "reward": {"reward_funcs": ["accuracy_math_reward_split"], "examples_per_rewrite": 4},
        "task_model": {"model": "task"},
        "training": {"max_steps": 1},
        "selection": {"eval_examples": 6},
    }  # fmt: skip
    return Config.model_validate(
        given | {name: given.get(name, {}) | section for name, section in sections.items()}  # type: ignore[operator]
    )


SUBJECT_ROWS = [
    {"instruction": f"Solve this problem of {subject}.", "dataset_name": "MATH-500", "subject": subject}
    for subject in SUBJECTS
]


class Seven:
    """Says 7 to whatever is asked with "carefully", else 8."""

    def __init__(self) -> None:
        self.queries: list[str] = []
        self.calls_left, self.num_refused = float("inf"), 0

    def ask(self, calls: Any, *, progress: Any = None) -> list[Answer]:
        self.queries += [call.query for call in calls]
        return [Answer("7" if "carefully" in call.query else "8") for call in calls]

    def body(self, call: Any) -> dict[str, Any]:
        return {"query": call.query}

    def num_missing(self, calls: Any) -> int:
        return len(list(calls))

    def ask_ahead(self, calls: Any) -> None: ...

    def check_failure_share(self) -> None: ...


def chosen(config: Config) -> tuple[Journal, Seven]:
    """The run's choosing, without its training: each row has one rewrite."""
    data = load_rewrite_data(config)
    journal, task_model = Journal(config), Seven()
    selection = Selection(config, data, task_model, journal, Progress())
    selection.evaluate_initial(0)
    rewrites = [[f"Solve carefully {row.instruction}" for _ in range(1)] for row in data.rows]
    selection.evaluate(1, rewrites, [[] for _ in rewrites])
    selection.finish(1, [[] for _ in rewrites], calls=60 * len(rewrites))
    assert "mean of 7 rows on dev: initial 0.000, best 1.000" in selection.summary()
    return journal, task_model


def test_seven_subject_rows_have_seven_winners_each_judged_on_its_subject_alone(tmp_path: Path) -> None:
    journal, task_model = chosen(config_of(math_folder(tmp_path), SUBJECT_ROWS))
    best = json.loads((journal.folder / "best.json").read_text())
    assert list(best) == [f"math-500/{subject}" for subject in SUBJECTS]
    for subject, entry in zip(SUBJECTS, best.values(), strict=True):
        assert entry["instruction"].startswith("Solve carefully")
        assert (entry["subject"], entry["level"], entry["task"], entry["score"]) == (subject, None, "math-500", 1.0)
        assert subject in entry["instruction"], "no row ends with another row's rewrite"
    for query in task_model.queries:
        instruction, problem = query.split("\n")
        assert problem.partition(" of ")[2].partition(":")[0] == instruction.partition(" of ")[2].rstrip(".")
    lines = [json.loads(line) for line in (journal.folder / "dev.jsonl").read_text().splitlines()]
    assert {(line["row"], line["subject"]) for line in lines} == {(f"math-500/{one}", one) for one in SUBJECTS}


def test_whatever_the_reward_a_row_of_a_subject_is_judged_on_it(tmp_path: Path) -> None:
    journal, task_model = chosen(
        config_of(math_folder(tmp_path), SUBJECT_ROWS, reward={"reward_funcs": ["accuracy_math_reward"]})
    )
    assert len(json.loads((journal.folder / "best.json").read_text())) == 7
    for query in task_model.queries:
        instruction, problem = query.split("\n")
        assert problem.partition(" of ")[2].partition(":")[0] == instruction.partition(" of ")[2].rstrip(".")


def test_verdicts_on_other_subjects_examples_say_nothing_of_a_row(tmp_path: Path) -> None:
    config = config_of(math_folder(tmp_path), SUBJECT_ROWS, reward={"reward_funcs": ["accuracy_math_reward"]})
    data = load_rewrite_data(config)
    selection = Selection(config, data, Seven(), Journal(config), Progress())
    seen = [data.train["math-500"][0], data.train_of(data.rows[2])[0]]
    assert seen[0].subject != "Geometry"
    verdicts = tuple(Verdict(example.id, "7", "7", correct=True, well_formed=True) for example in seen)
    sample = Sample((), (), (), "Try.", "stop")
    selection.remember([Rollout(sample, data.rows[2], 0, "Try.", 1.0, {}, 0.0, verdicts=verdicts)], step=0)
    assert list(selection.ledger.of(2).train["Try."]) == [seen[1].id]


def examples(**count: int) -> list[Example]:
    """By subject_level: so many."""
    return [
        Example(f"{name}-{i}", {"problem": f"{name} {i}"}, "1", *name.split("_"))
        for name in count
        for i in range(count[name])
    ]


def test_own_examples_are_found_whatever_the_spelling() -> None:
    pool = [
        Example("1", {}, "1", subject="Counting & Probability", level="5"),
        Example("2", {}, "1", subject="counting_and_probability", level="Level 5"),
        Example("3", {}, "1", subject="Geometry", level="5"),
        Example("4", {}, "1"),
    ]

    def ids(subject: str | None, level: str | None = None) -> list[str]:
        return [example.id for example in own_examples(InstructionRow("x", "m", subject, level), pool)]

    assert ids("Counting and Probability", "5") == ["1", "2"]
    assert ids("counting & probability", "Level 4") == []
    assert ids(None, "level 5") == ["1", "2", "3"]
    assert ids(None) == ["1", "2", "3", "4"]


def test_every_row_has_a_dev_share_of_its_own() -> None:
    """140 examples of a, 300 of b; a whole-task row and one of each subject, 100 wanted of each."""
    pool = examples(a_1=140, b_1=300)
    rows = [InstructionRow("x", "m"), InstructionRow("x", "m", "a"), InstructionRow("x", "m", "b", "1")]
    train, dev = cut_dev(rows, pool, dev_size=100, least_train=16)
    assert not {one.id for one in train} & {one.id for one in dev}
    assert len(own_examples(rows[1], dev)) == 100, "the whole row's 100 are all of a, so a's share grows to them"
    assert len(own_examples(rows[2], dev)) == 100
    train, dev = cut_dev(rows[1:], pool, dev_size=100, least_train=16)
    assert len(own_examples(rows[1], dev)) == 70, "half of 140"
    assert len(cut_dev(rows[1:2], examples(a_1=70), dev_size=100, least_train=16)[1]) == 50, "the least that tells"


@pytest.mark.parametrize(
    ("row", "size", "told"),
    [
        (InstructionRow("x", "m", "a"), 200, "m/a: 60 train examples, of which 44 could be held out (dev)"),
        (InstructionRow("x", "m", "c"), 200, "m/c: none of the 360 train examples is of it. Their subjects are a, b"),
        (InstructionRow("x", "m"), 350, "too few for data.dev_size 350 beside reward.examples_per_rewrite 16: set "),
        (InstructionRow("x", "m"), 350, "set data.dev_size to 180"),
    ],
)
def test_a_share_that_is_too_small_is_refused_with_what_to_set(row: InstructionRow, size: int, told: str) -> None:
    with pytest.raises(UserError) as caught:
        cut_dev([row], examples(a_1=60, b_1=300), dev_size=size, least_train=16)
    assert told in str(caught.value)


def test_a_mere_try_may_hold_out_fewer() -> None:
    assert len(cut_dev([InstructionRow("x", "m", "a")], examples(a_1=98), dev_size=12, least_train=16)[1]) == 12


def test_the_means_of_rows() -> None:
    shown = {"dev_best/a": 0.5, "dev_best/b": 0.7, "dev_initial/a": 0.2}
    assert means_over_rows(shown) == {"dev_best": pytest.approx(0.6)}


@pytest.mark.parametrize(
    "tags",
    [
        ["problem", "subject", "level"],
        "{problem},{subject},{level}",
        "{problem} { subject }, {level}",
        '["problem", "subject", "level", "problem"]',
        " ['problem', 'subject', 'level']",
    ],
)
def test_tags_in_both_spellings_name_any_column(tags: Any, tmp_path: Path) -> None:
    row = {"instruction": "A {level} of {subject}: {problem}", "dataset_name": "math-500", "tags": tags}
    config = config_of(math_folder(tmp_path), [row], reward={"reward_funcs": ["template_accuracy_math_reward"]})
    data = load_rewrite_data(config)
    assert data.rows[0].tags == ("problem", "subject", "level")
    task_model, journal = Seven(), Journal(config)
    selection = Selection(config, data, task_model, journal, Progress())
    selection.evaluate_initial(0)
    selection.evaluate(1, [["Do {problem} ({subject}, {level}) carefully"]], [[]])
    selection.finish(1, [[]], calls=100)
    assert any(query.startswith("Do train ") for query in task_model.queries), "looks and races fill templates"
    assert all("{" not in query for query in task_model.queries)
    assert {query[:5] for query in task_model.queries if query.startswith("A ")} == {"A 1 o", "A 2 o"}
    journal.row_names = {data.rows[0]: "math-500"}
    sample = Sample((), (), (), "x", "stop")
    journal.write_rollouts([Rollout(sample, data.rows[0], 0, "x", 1.0, {}, 0.0)], step=1, stage=0, seed=1, gaps=[None])
    (line,) = [json.loads(text) for text in (journal.folder / "log.jsonl").read_text().splitlines()]
    assert (line["row"], line["tags"], line["subject"]) == ("math-500", ["problem", "subject", "level"], None)


def test_an_instruction_without_tags_stands_before_the_fields() -> None:
    row, example = InstructionRow("Solve.", "gsm8k", tags=("problem",)), Example("1", {"problem": "1 + 1?"}, "2")
    (call,) = TEMPLATE.calls(get_task("gsm8k"), row, "Solve it.", [example], ())
    assert call.query == "Solve it.\nQuestion: 1 + 1?"


@pytest.mark.parametrize("tag", ["author", "answer", "solution"])
def test_a_tag_that_is_no_column_or_the_gold_is_refused(tag: str, tmp_path: Path) -> None:
    row = {"instruction": "Solve.", "dataset_name": "math-500", "tags": ["problem", tag]}
    config = config_of(math_folder(tmp_path), [row], reward={"reward_funcs": ["template_accuracy_math_reward"]})
    with pytest.raises(UserError, match=f"the tag '{tag}' of the row.*problem, subject, level"):
        load_rewrite_data(config)


def test_every_faulty_row_of_a_file_is_told(tmp_path: Path) -> None:
    good = {"instruction": "x", "dataset_name": "sst2"}
    rows = [good | {"instruction": ""}, *(good | {"tags": tags} for tags in ("text", "[text", "[1]"))]
    with pytest.raises(UserError) as caught:
        read_instruction_rows(write_lines(tmp_path / "rows.jsonl", rows))
    assert "row 1: the column 'instruction'" in str(caught.value)
    for number, tags in ((2, "'text'"), (3, "'[text'"), (4, "'[1]'")):
        assert f"row {number}: the column 'tags' is {tags}; it must be a list" in str(caught.value)


def test_rows_that_repeat_another_are_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert len(load_rewrite_data(config_of(math_folder(tmp_path), [*SUBJECT_ROWS, SUBJECT_ROWS[0]])).rows) == 7
    assert "1 rows repeat another one" in caplog.text

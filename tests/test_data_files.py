"""The real data files: every task's local rows load, are disjoint, and have the sizes that they are known by."""

import os
from pathlib import Path

import pytest

from prewrite.grading import boxed_answers
from prewrite.tasks import TASKS, get_task, loading
from prewrite.tasks.base import query
from prewrite.tasks.loading import load_examples, overlapping

FOLDER = Path(os.environ.get("PREWRITE_DATA") or Path(__file__).parents[2] / "shared" / "data")
pytestmark = pytest.mark.skipif(
    not FOLDER.is_dir(), reason=f"no data files at {FOLDER}; set PREWRITE_DATA to the folder that has them"
)

DEV_SIZE = 100
SIZES = {  # different train rows, test rows
    "sst2": (15_999, 872),
    "ag_news": (9_600, 7_600),
    "copa": (400, 100),
    "boolq": (1_000, 2_270),
    "cb": (250, 56),
    "nq_open": (8_757, 3_610),
    "gsm8k": (7_473, 1_319),
    "math-500": (7_496, 500),
    "aime24": (975, 30),
    "aime25": (975, 30),
}


@pytest.mark.parametrize("name", SIZES)
def test_the_rows_of_a_task(name):
    task = get_task(name)
    train, dev, test = (
        load_examples(task, split, local_dir=FOLDER, dev_size=DEV_SIZE, seed=1) for split in ("train", "dev", "test")
    )
    assert (len(train) + len(dev), len(test)) == SIZES[name]
    assert not overlapping(train + dev, test)
    assert not overlapping(train, dev)
    if task.labels:
        assert {example.target for example in test} == set(task.labels)
    lines = query(task, "Do it.", test[0]).split("\n")
    assert lines[0] == "Do it."
    assert lines[1].startswith(f"{next(iter(task.fields.values()))}: ")


def test_boolq_is_cut_from_the_validation_file_the_same_for_every_seed_and_says_so():
    task = get_task("boolq")
    tests = [load_examples(task, "test", local_dir=FOLDER, dev_size=DEV_SIZE, seed=seed) for seed in (1, 2)]
    assert tests[0] == tests[1]
    assert "not the official split" in loading.test_label(task, FOLDER)


def test_both_parts_of_aime_2025():
    ids = [example.id for example in load_examples(get_task("aime25"), "test", local_dir=FOLDER)]
    assert ids == [f"2025-{part}-{number}" for part in ("I", "II") for number in range(1, 16)]


def test_the_last_box_of_a_solution_is_the_gold_of_math():
    differ = [
        example.id
        for split in ("train", "test")
        for example in load_examples(get_task("math-500"), split, local_dir=FOLDER, seed=1)
        if "".join(boxed_answers(example.solution or "")[-1:]).split() != str(example.target).split()
    ]
    assert differ == []


@pytest.mark.parametrize("name", sorted(name for name in set(TASKS) - set(SIZES) if TASKS[name].test.folder is None))
def test_a_task_that_lives_on_the_hub_alone_says_so(name):
    from prewrite.errors import UserError

    task = get_task(name)
    if (FOLDER / task.test.files[0]).is_file():
        pytest.skip(f"{task.test.files[0]} is there")
    with pytest.raises(UserError, match="from the hub"):
        load_examples(task, "test", local_dir=FOLDER)

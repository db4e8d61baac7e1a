"""The printed table and the guide name every task."""

from pathlib import Path

from prewrite.tasks import TASKS
from prewrite.tasks.__main__ import main

GUIDE = (Path(__file__).parents[1] / "docs" / "tasks.md").read_text(encoding="utf-8")


def test_the_table_names_every_task_with_its_test_and_licence(capsys):
    main([])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1 + len(TASKS) == 15
    for task, line in zip(TASKS.values(), lines[1:], strict=True):
        assert line.startswith(task.name)
        assert task.test.label in line
        assert task.licence in line


def test_the_guide_names_every_task_data_set_and_file():
    for task in TASKS.values():
        assert f"`{task.name}`" in GUIDE
        for source in (task.train, task.test):
            assert source.folder or all(f"`{name}`" in GUIDE for name in source.files)
            assert all(f"`{split.dataset}`" in GUIDE for split in task.train.hub)


def test_every_task_is_whole():
    for name, task in TASKS.items():
        assert name == task.name
        assert task.target not in task.fields
        assert bool(task.labels) == (task.kind == "classification")
        assert all(label in task.default_instruction for label in task.labels)
        assert task.kind != "math" or "\\boxed{}" in task.default_instruction

"""Own tasks from one file or the hub, local files for offline machines, near-copies, rows that are too long."""

import json
import logging
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from prewrite.config.data import CustomTaskSettings
from prewrite.config.loading import load_config, validated
from prewrite.errors import UserError
from prewrite.tasks.loading import load_examples, overlapping
from prewrite.tasks.loading import test_label as label_of_test
from prewrite.tasks.near_copies import near_copies
from prewrite.tasks.own import task_from_settings
from prewrite.training.rollout import rows_that_fit
from prewrite.types import Example, InstructionRow
from tests.hub_stand_in import HubStandIn
from tests.test_fault_cases import FakeTokenizer

ROOT = Path(__file__).parent.parent
MAILS: dict[str, Any] = {
    "name": "mails", "kind": "classification", "labels": ["spam", "ham"], "fields": {"text": "Mail"},
    "target": "label", "default_instruction": "Is it spam?",
}  # fmt: skip


def write_rows(path: Path, rows: list[dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def own_task(**settings: Any):
    return task_from_settings(validated(CustomTaskSettings, MAILS | settings, "here"))


def ids(examples: list[Example]) -> set[str]:
    return {example.fields["text"] for example in examples}


def test_one_file_is_cut_into_train_dev_and_a_test_that_never_moves(tmp_path: Path) -> None:
    rows = [{"text": f"mail {i % 30}", "label": "spam"} for i in range(40)]  # ten are there twice
    task = own_task(train_file=write_rows(tmp_path / "mails.jsonl", rows), test_size=10)
    test = load_examples(task, "test")
    for seed in (1, 2):
        train, dev = (load_examples(task, split, dev_size=5, seed=seed) for split in ("train", "dev"))
        assert (len(train), len(dev), len(test)) == (15, 5, 10)
        assert len(ids(train) | ids(dev) | ids(test)) == 30
        assert load_examples(task, "test", seed=seed) == test
    assert "no official split" in label_of_test(task, None)
    assert ids(test) != {f"mail {i}" for i in range(10)}, "the first rows of a sorted file are no fair test"
    with pytest.raises(UserError, match=r"mails\.jsonl: test_size cuts off all of its 30 different rows"):
        load_examples(own_task(train_file=str(tmp_path / "mails.jsonl"), test_size=30), "train", dev_size=1)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({}, "give train_file, or hub"),
        ({"train_file": "a.csv", "hub": {"dataset": "me/mails"}, "test_size": 3}, "give train_file, or hub"),
        ({"train_file": "a.csv"}, "give test_file, or test_size"),
        ({"train_file": "a.csv", "test_file": "b.csv", "test_size": 3}, "give test_file, or test_size"),
        ({"hub": {"dataset": "me/mails"}}, "give hub.test_split, or test_size"),
        ({"hub": {"dataset": "me/mails", "test_split": "test"}, "test_file": "b.csv"}, "test_file with hub"),
        ({"train_file": "a.csv", "test_size": 3, "target_from": "last_box"}, "for kind math"),
        ({"hub": {"name": "me/mails"}, "test_size": 3}, "hub.dataset: missing"),
        ({"train_file": "a.csv", "test_size": 3, "labels": ["spam"]}, "a classification needs at least two"),
    ],
)
def test_sources_that_are_none_or_two_are_refused(settings: dict[str, Any], told: str) -> None:
    with pytest.raises(UserError, match=told):
        own_task(**settings)


def test_the_last_box_of_a_solution_is_the_gold_and_rows_without_one_are_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    solutions = ["so \\boxed{1}, no, \\boxed{\\frac{1}{2}}.", "nothing", "\\boxed{ }"]
    rows = [{"problem": f"p{i}", "solution": solution} for i, solution in enumerate(solutions * 2)]
    files = {"train_file": write_rows(tmp_path / "sums.jsonl", rows), "test_size": 1}
    math = {"kind": "math", "labels": [], "fields": {"problem": "Problem"}, "target": "solution"}
    (example,) = load_examples(own_task(**math, **files, target_from="last_box"), "test")
    assert (example.target, example.solution) == ("\\frac{1}{2}", solutions[0])
    assert "4 of 6 rows are left out: no box in the column 'solution'" in caplog.text
    files["train_file"] = write_rows(tmp_path / "none.jsonl", [row | {"solution": "nothing"} for row in rows])
    with pytest.raises(UserError, match="all 6 rows are left out: no box in the column 'solution'"):
        load_examples(own_task(**math, **files, target_from="last_box"), "test")


def test_half_a_character_in_a_row_is_refused_with_its_place(tmp_path: Path) -> None:
    (tmp_path / "mails.jsonl").write_text('{"text": "a \\ud83d b", "label": "spam"}\n')
    with pytest.raises(UserError, match=r"mails.jsonl: row 1: the column 'text' holds half a character"):
        load_examples(own_task(train_file=str(tmp_path / "mails.jsonl"), test_size=1), "test")


HUB = {
    "stanfordnlp/sst2": {
        "train": [{"sentence": f"fun {i} ", "label": i % 2} for i in range(6)],
        "validation": [{"sentence": "dull", "label": 0}],
    },
    "me/chats": {
        "train": [
            {"messages": [{"role": "user", "content": f"q{i}"}, {"role": "assistant", "content": f"a{i}"}]}
            for i in range(3)
        ],
        "test": [{"messages": [{"role": "user", "content": "held out"}]}],
    },
    "me/mails": {"letters": [{"text": f"mail é \u2028 {i}", "label": i % 2} for i in range(9)]},
}
FROM_HUB_AND_FILES = """
import json, os, sys
from pathlib import Path
from prewrite.config.loading import load_config
from prewrite.errors import UserError
from prewrite.tasks import get_task
from prewrite.tasks.base import HubSplit
from prewrite.tasks.chats import read_hub_chats
from prewrite.tasks.loading import load_examples
from prewrite.tasks.own import task_from_settings
from scripts.fetch_data import main

folder, config = Path(sys.argv[1]), sys.argv[2]
own = [task_from_settings(one) for one in load_config(config).custom_tasks]
named = (["sst2", "mails"], ["sst2", "sentiment"])
codes = [main([*names, "--config", config, "--folder", str(folder)]) for names in named]
parts = [(place, split) for place in (None, folder) for split in ("train", "test")]
seen = [
    [load_examples(task, split, local_dir=place, dev_size=2) for place, split in parts]
    for task in (get_task("sst2"), own[0])
]
assert all(train == local_train and test == local_test for train, test, local_train, local_test in seen), seen
codes.append(main(["gone", "--config", config, "--folder", str(folder)]))
data = load_config(config).data
chats = [[turn.content for turn in chat.turns] for chat in read_hub_chats(HubSplit("me/chats", "train"), data)]
faults = []
for split in (HubSplit("me/chats", "test"), HubSplit("me/gone", "train")):
    try:
        read_hub_chats(split, data)
    except UserError as error:
        faults.append(str(error))
print(json.dumps([codes, [str(one[1][0].target) for one in seen], len(seen[1][1]), chats, faults]))
"""


def test_fetched_files_hold_what_the_hub_does(tmp_path: Path) -> None:
    """The real `datasets`, and a hub that runs here."""
    missing = MAILS | {"name": "gone", "hub": {"dataset": "me/gone"}, "test_size": 3}
    mails = MAILS | {"hub": {"dataset": "me/mails", "split": "letters", "revision": "v2"}, "test_size": 3}
    config = json.loads((ROOT / "configs" / "quickstart.json").read_text()) | {"custom_tasks": [mails, missing]}
    (tmp_path / "config.json").write_text(json.dumps(config))
    folder = tmp_path / "data"
    with HubStandIn(HUB, {"me/mails": ["ham", "spam"], "stanfordnlp/sst2": ["negative", "positive"]}) as hub:
        own = {"HF_ENDPOINT": hub.address, "HF_HOME": str(tmp_path / "home"), "PYTHONPATH": str(ROOT)}
        dropped = ("PREWRITE_DATA", "HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE", "HF_HUB_CACHE", "HF_DATASETS_CACHE")
        env = {name: value for name, value in os.environ.items() if name not in dropped} | own
        code = [sys.executable, "-c", FROM_HUB_AND_FILES, str(folder), str(tmp_path / "config.json")]
        done = subprocess.run(code, cwd=ROOT, env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    codes, _, num_mails, chats, (roleless, gone) = json.loads(done.stdout.splitlines()[-1])
    assert (codes, num_mails) == ([0, 0, 2], 3)
    assert chats == [[f"q{i}", f"a{i}"] for i in range(3)]
    assert roleless.startswith('me/chats:test: row 1: there is no turn of the role "assistant"')
    assert re.search(r"^the hub data set me/gone .* could not be loaded: .*Without the hub, set data\.chats", gone)
    assert {path.name for path in folder.iterdir()} == {"sst2_train.jsonl", "sst2_dev.jsonl", "mails.jsonl"}
    assert json.loads((folder / "sst2_dev.jsonl").read_text()) == {"text": "dull", "label": "negative"}
    assert json.loads((folder / "mails.jsonl").read_text().splitlines()[1])["label"] == "spam"
    assert "v2" in hub.revisions
    assert "left as it is" in done.stdout
    (told,) = [line for line in done.stderr.splitlines() if line.startswith("fetch_data.py:")]
    assert "the hub data set me/gone" in told
    assert "could not be loaded" in told


def example(name: str, text: str) -> Example:
    return Example(name, {"text": text}, "5")


LONG = "A train leaves the station at nine and travels at sixty miles an hour until it reaches the town by noon."


def test_near_copies_are_found_and_templates_are_not() -> None:
    test = [example("t1", LONG), example("t2", "How many apples does she have?")]
    train = [
        example("same but for a number", LONG.replace("sixty", "fifty")),
        example("with an addition", f"Read this first, then think it over. {LONG.upper()} How far does it go?"),
        example("inside a longer one", f"{LONG} {' '.join(f'word{n}' for n in range(40))}"),
        example("other words", LONG.replace("train", "bus").replace("travels", "goes").replace("hour", "h")),
        example("short", "How many apples does she have now?"),
        example("eight words shared", " ".join(LONG.split()[:8]) + " and so on for a very long while without any end"),
    ]
    found = [(one.id, other.id) for one, other in near_copies(train, test)]
    copies = ["same but for a number", "with an addition", "inside a longer one"]
    assert found == [(copy, "t1") for copy in copies]
    template = "Read the text below with care and say in one word what it is about:"
    asked = [example(str(i), f"{template} {i}") for i in range(40)]
    assert near_copies(asked[:20], asked[20:]) == []
    assert near_copies(asked[:20], asked[20:21]) == [], "a small test split has a template too"


def test_near_copies_are_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rows = [{"text": LONG.replace("sixty", str(i)), "label": "ham"} for i in range(4)]
    files = {"train_file": write_rows(tmp_path / "a.jsonl", rows[:3])}
    task = own_task(**files, test_file=write_rows(tmp_path / "b.jsonl", rows[3:]))
    train = load_examples(task, "train", dev_size=1)
    assert len(train) == 2, "they are told, and stay"
    assert not overlapping(train, load_examples(task, "test"))
    assert "mails: 3 of 3 train and dev rows are nearly test rows" in caplog.text
    assert "A train leaves" in caplog.text


def test_rows_that_are_too_long_are_refused_or_dropped_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    settings = load_config(ROOT / "configs" / "quickstart.json").rollout
    settings = settings.model_copy(update={"max_prompt_length": len(settings.meta_instruction) + 60})
    tokenizer = FakeTokenizer([])
    rows = [InstructionRow("x" * length, "sst2") for length in (10, 1000, 11)]
    with caplog.at_level(logging.WARNING):
        assert rows_that_fit(rows, tokenizer, settings, "rows") == [rows[0], rows[2]]
    assert "1 of 3 rows left out" in caplog.text
    with pytest.raises(UserError, match="all 1 rows are longer"):
        rows_that_fit(rows[1:2], tokenizer, settings, "rows")
    with pytest.raises(UserError, match="control token"):
        rows_that_fit([InstructionRow("<s>", "sst2")], FakeTokenizer(["<s>"]), settings, "rows")

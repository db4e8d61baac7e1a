"""Train, dev and test: disjoint, the same for a seed, every fault told; the hub is replaced by tables in memory."""

import json
import random
from dataclasses import replace
from pathlib import Path

import datasets
import pytest

from prewrite.config import CustomTaskSettings
from prewrite.errors import UserError
from prewrite.tasks import TASKS, get_task, loading
from prewrite.tasks.base import query
from prewrite.tasks.loading import load_examples, normalised_text, overlapping
from prewrite.tasks.own import task_from_settings
from prewrite.types import Example

SST2 = get_task("sst2")


def write_rows(path: Path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def sst2_folder(folder, train=None, test=None):
    labels = ("negative", "positive")
    write_rows(folder / "sst2_train.jsonl", train or [{"text": f"film {i}", "label": labels[i % 2]} for i in range(20)])
    write_rows(folder / "sst2_dev.jsonl", test or [{"text": "a test film", "label": "positive"}])
    return folder


def ids(examples):
    return [example.id for example in examples]


def test_train_and_dev_are_a_partition_drawn_by_the_seed(tmp_path):
    folder = sst2_folder(tmp_path)
    splits = {
        seed: [
            load_examples(SST2, split, local_dir=folder, dev_size=5, seed=seed) for split in ("train", "dev", "test")
        ]
        for seed in (1, 2)
    }
    train, dev, test = splits[1]
    assert (len(train), len(dev), len(test)) == (15, 5, 1)
    assert sorted(ids(train + dev)) == sorted(f"sst2_train-{i}" for i in range(1, 21))
    assert splits[1] == [load_examples(SST2, s, local_dir=folder, dev_size=5, seed=1) for s in ("train", "dev", "test")]
    assert ids(splits[2][1]) != ids(dev)
    assert test == splits[2][2]


def test_every_run_of_the_pool_has_the_labels_in_their_proportions(tmp_path):
    rows = [{"text": f"film {i}", "label": "positive" if i % 4 else "negative"} for i in range(400)]
    train = load_examples(SST2, "train", local_dir=sst2_folder(tmp_path, rows), seed=3)
    assert len(set(ids(train))) == 400
    for start in range(380):
        negative = sum(example.target == "negative" for example in train[start : start + 20])
        assert 4 <= negative <= 6
    negatives = [example.id for example in train if example.target == "negative"]
    assert negatives != sorted(negatives, key=lambda name: int(name.split("-")[1])), "shuffled all the same"
    rng = random.Random(0)
    firsts = sum(loading.spread(train[:40], rng)[0].target == "negative" for _ in range(400))
    assert 60 < firsts < 140, "a rare label is not always last, nor first"


def test_repeated_train_rows_are_dropped_whatever_their_case_and_spacing(tmp_path):
    rows = [
        {"text": text, "label": "positive"} for text in ("It 's fun", "it's  FUN", "Ｉt's fun", "no fun", "some fun")
    ]
    train = load_examples(SST2, "train", local_dir=sst2_folder(tmp_path, rows), dev_size=1, seed=0)
    dev = load_examples(SST2, "dev", local_dir=tmp_path, dev_size=1, seed=0)
    assert sorted(ids(train + dev)) == ["sst2_train-1", "sst2_train-4", "sst2_train-5"]


def test_short_and_long_rows_leave_train_and_dev_but_not_the_test(tmp_path, caplog):
    rows = [{"text": text, "label": "positive"} for text in ("fun", "no fun", "not any fun", "not any fun here")]
    folder = sst2_folder(tmp_path, rows, test=[{"text": "dull", "label": "negative"}])
    pool = [load_examples(SST2, split, local_dir=folder, dev_size=1, words=(3, None)) for split in ("train", "dev")]
    assert sorted(ids(pool[0] + pool[1])) == ["sst2_train-3", "sst2_train-4"]
    assert len(load_examples(SST2, "test", local_dir=folder, words=(3, None))) == 1
    with pytest.raises(UserError, match=r"none of the 4 train rows has data.min_words=5 words; they have"):
        load_examples(SST2, "train", local_dir=folder, dev_size=1, words=(5, None))
    pool = [load_examples(SST2, split, local_dir=folder, dev_size=1, words=(2, 3)) for split in ("train", "dev")]
    assert sorted(ids(pool[0] + pool[1])) == ["sst2_train-2", "sst2_train-3"]
    assert "1 of 4 rows are longer than data.max_words=3: left out" in caplog.text


def test_an_overlap_with_the_test_rows_is_refused(tmp_path):
    rows = [{"text": text, "label": "positive"} for text in ("a film", "A  test film", "third")]
    folder = sst2_folder(tmp_path, rows)
    for split in ("train", "dev"):
        with pytest.raises(UserError, match=r"1 rows of sst2_train\.jsonl are also in the test rows.*'A  test film'"):
            load_examples(SST2, split, local_dir=folder, dev_size=1, seed=0)
    assert len(load_examples(SST2, "test", local_dir=folder)) == 1


@pytest.mark.parametrize("dev_size", [0, -1, 20, 21])
def test_a_dev_size_that_leaves_nothing_is_refused(tmp_path, dev_size):
    with pytest.raises(UserError, match="Give a dev_size from 1 to 19"):
        load_examples(SST2, "dev", local_dir=sst2_folder(tmp_path), dev_size=dev_size, seed=0)


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ({"text": "x"}, r"row 3: the column 'label' is missing; the row has text"),
        ({"text": None, "label": "positive"}, r"row 3: the column 'text' is empty"),
        ({"text": "x", "label": "good"}, r"row 3: the column 'label' is 'good'; the labels are negative, positive"),
        ({"text": "x", "label": 1}, r"row 3: the column 'label' is 1"),
        ({"text": "x", "label": ["positive", "negative"]}, r"row 3.* holds 2 golds"),
        ({"text": "x", "label": ""}, r"row 3.*must not be empty"),
        ({"text": "x", "label": "positive", "id": "sst2_train-1"}, "two rows have the same id"),
    ],
)
def test_a_faulty_row_is_named(tmp_path, row, told):
    rows = [{"text": "a", "label": "positive"}, {"text": "b", "label": "positive"}, row]
    with pytest.raises(UserError, match=told):
        load_examples(SST2, "train", local_dir=sst2_folder(tmp_path, rows), dev_size=1, seed=0)


def test_a_missing_file_and_a_missing_folder(tmp_path, monkeypatch):
    with pytest.raises(UserError, match=r"has no sst2_dev\.jsonl.*stanfordnlp/sst2:validation"):
        load_examples(SST2, "test", local_dir=tmp_path)
    monkeypatch.setenv("PREWRITE_DATA", str(tmp_path / "absent"))
    with pytest.raises(UserError, match=r"PREWRITE_DATA is .*absent"):
        load_examples(SST2, "test")
    with pytest.raises(UserError, match=r"data\.local_dir is .*nowhere"):
        load_examples(SST2, "test", local_dir=tmp_path / "nowhere")


def test_the_environment_names_the_data_folder_where_the_config_names_none(tmp_path, monkeypatch):
    monkeypatch.setenv("PREWRITE_DATA", str(sst2_folder(tmp_path)))
    assert len(load_examples(SST2, "test")) == 1
    (tmp_path / "other").mkdir()
    with pytest.raises(UserError, match=r"the data folder .*other has no"):
        load_examples(SST2, "test", local_dir=tmp_path / "other")
    assert loading.test_label(SST2, None) == "sst2_dev (official validation split)"


def test_the_embedded_task_needs_no_folder(tmp_path):
    task = get_task("sentiment")
    by_split = {
        split: load_examples(task, split, local_dir=tmp_path, dev_size=100, seed=1)
        for split in ("train", "dev", "test")
    }
    assert len(by_split["dev"]) == 100
    assert len(by_split["train"]) + 100 + len(by_split["test"]) >= 600
    assert not overlapping(by_split["train"] + by_split["dev"], by_split["test"])
    for examples in (by_split["train"] + by_split["dev"], by_split["test"]):
        positive = sum(example.target == "positive" for example in examples)
        assert positive * 2 == len(examples)


HUB_ROWS = {
    ("openai/gsm8k", "main"): {"question": "1 + 1?", "answer": "It is <<1+1=2>>2.\n#### 1,002"},
    ("HuggingFaceH4/MATH-500", None): {
        "problem": "p", "answer": "\\frac12", "solution": "s", "subject": "Algebra", "level": 2, "unique_id": "test/1",
    },
    ("EleutherAI/hendrycks_math", "algebra"): {
        "problem": "q", "level": "Level 5", "type": "Algebra", "solution": "so \\boxed{\\frac{1}{2}}.",
    },
    ("HuggingFaceH4/aime_2024", None): {"id": 60, "problem": "p", "answer": "204", "solution": "s", "year": "2024"},
    ("di-zhang-fdu/AIME_1983_2024", None): {"ID": "1983-1", "Year": 1983, "Question": "q", "Answer": 60, "Part": None},
    ("opencompass/AIME2025", "AIME2025-I"): {"question": "p", "answer": "70"},
    ("stanfordnlp/sst2", None): {"idx": 0, "sentence": "fun ", "label": 1},
    ("fancyzhx/ag_news", None): {"text": "goal", "label": 1},
    ("aps/super_glue", "copa"): {
        "premise": "p", "choice1": "a", "choice2": "b", "question": "cause", "idx": 0, "label": 1,
    },
    ("aps/super_glue", "cb"): {"premise": "p", "hypothesis": "h", "idx": 0, "label": 2},
    ("google/boolq", None): {"question": "q", "passage": "p", "answer": True},
    ("google-research-datasets/nq_open", None): {"question": "q", "answer": ["a", "b"]},
    ("Idavidrein/gpqa", "gpqa_diamond"): {
        "Question": "q", "Correct Answer": "right\n", "Incorrect Answer 1": "w1", "Incorrect Answer 2": "w2",
        "Incorrect Answer 3": "w3", "Record ID": "r",
    },
    ("AI-MO/NuminaMath-TIR", None): {"problem": "q", "solution": "\\boxed{1} then \\boxed{42}", "messages": []},
}  # fmt: skip
HUB_TARGETS = {
    "gsm8k": "1002",
    "math-500": "\\frac12",
    "aime24": "204",
    "aime25": "70",
    "sst2": "positive",
    "ag_news": "Sports",
    "copa": "choice2",
    "cb": "neutral",
    "boolq": "yes",
    "nq_open": ("a", "b"),
    "numina-math-tir": "42",
}


def hub_row(dataset, config):
    same = {"AIME2025-II": "AIME2025-I", "gpqa_main": "gpqa_diamond"}
    key = (dataset, "algebra" if dataset == "EleutherAI/hendrycks_math" else same.get(config, config))
    return dict(HUB_ROWS[key])


@pytest.fixture
def hub(monkeypatch):
    """The hub in memory: one row a split; its text names the split, so that train and test differ."""
    monkeypatch.delenv("PREWRITE_DATA", raising=False)

    def load_dataset(dataset, config, *, split, revision):
        row = hub_row(dataset, config)
        text = next(key for key in ("problem", "Question", "question", "sentence", "premise", "text") if key in row)
        rows = [row | {text: f"{row[text]} {dataset} {config} {split} {number}"} for number in range(2)]
        return [one | ({"unique_id": f"u{n}"} if "unique_id" in one else {}) | ({"id": n} if "id" in one else {}) | (
            {"ID": f"1983-{n}"} if "ID" in one else {}) for n, one in enumerate(rows)]  # fmt: skip

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)


@pytest.mark.parametrize("name", [*HUB_TARGETS, "gpqa-diamond"])
def test_the_columns_of_the_hub_become_the_tasks(hub, name):
    task = get_task(name)
    test = load_examples(task, "test")
    train = load_examples(task, "train", dev_size=1, seed=0)
    assert test[0].target == HUB_TARGETS.get(name, test[0].target)
    assert train
    if name == "gpqa-diamond":
        assert test[0].fields[f"choice_{str(test[0].target).lower()}"] == "right"
    if name == "math-500":
        assert (train[0].target, train[0].level, train[0].subject) == ("\\frac{1}{2}", "5", "Algebra")
        assert (test[0].id, test[0].level) == ("u0", "2")


def test_overlap_in_the_hubs_own_copy_is_left_out_and_told_where_the_task_says_why(hub, monkeypatch, caplog):
    rows = [{"sentence": text, "label": 1} for text in ("one", "two", "three")]
    monkeypatch.setattr(datasets, "load_dataset", lambda *_, split, **__: rows[:1] if split == "validation" else rows)
    assert len(load_examples(SST2, "train", dev_size=1, seed=0)) == 1
    assert "1 train rows are also test rows" in caplog.text
    silent = replace(SST2, train=replace(SST2.train, hub_overlap=""))
    with pytest.raises(UserError, match="must be disjoint"):
        load_examples(silent, "train", dev_size=1, seed=0)


def test_the_choices_of_gpqa_are_shuffled_by_the_row():
    read = get_task("gpqa").test.read_hub
    rows = [read(hub_row("Idavidrein/gpqa", "gpqa_diamond") | {"Question": f"q{i}"}) for i in range(200)]
    again = [read(hub_row("Idavidrein/gpqa", "gpqa_diamond") | {"Question": f"q{i}"}) for i in range(200)]
    assert rows == again
    counts = [sum(row is not None and row["answer"] == letter for row in rows) for letter in "ABCD"]
    assert min(counts) > 30


@pytest.mark.parametrize(("name", "first_gold"), [("gpqa-diamond", "40 V"), ("numina-math-tir", "400")])
def test_the_tasks_that_live_on_the_hub_alone_read_the_same_columns_from_files(name, first_gold):
    """Rows of the project's own stand in for the gated and the large data set."""
    folder = Path(__file__).with_name("hand_made")
    task = get_task(name)
    train, dev, test = (load_examples(task, split, local_dir=folder, dev_size=1) for split in ("train", "dev", "test"))
    assert (len(train), len(dev), len(test)) == (3, 1, 12)
    target = str(test[0].target)
    assert (test[0].fields[f"choice_{target.lower()}"] if task.labels else target) == first_gold
    assert len({example.target for example in test}) > 3


@pytest.mark.parametrize(
    ("name", "told"),
    [("gsm8k", r"folder with gsm8k_train\.jsonl, gsm8k_test"), ("gpqa", "gated: accept its terms")],
)
def test_a_hub_that_cannot_be_reached_says_how_to_give_local_files(monkeypatch, name, told):
    def refuse(*_, **__):
        raise ConnectionError("no route")

    monkeypatch.delenv("PREWRITE_DATA", raising=False)
    monkeypatch.setattr(datasets, "load_dataset", refuse)
    with pytest.raises(UserError, match=told) as caught:
        load_examples(get_task(name), "test")
    assert "PREWRITE_DATA" in str(caught.value)


def test_names_are_forgiving():
    for spelling, name in [
        ("AIME-2024", "aime24"), ("aime_2024", "aime24"), ("Aime 24", "aime24"), ("aime-2025", "aime25"),
        ("math500", "math-500"), ("MATH_500", "math-500"), ("SST-2", "sst2"), ("AG News", "ag_news"),
        ("nq", "nq_open"), ("GPQA", "gpqa-diamond"), ("NuminaMath-TIR", "numina-math-tir"), ("BoolQ", "boolq"),
    ]:  # fmt: skip
        assert get_task(spelling).name == name
    with pytest.raises(UserError, match="Did you mean 'gsm8k'"):
        get_task("gms8k")
    spellings = [s for task in TASKS.values() for s in (task.name, *task.aliases)]
    assert len({s.lower().replace("-", "").replace("_", "") for s in spellings}) == len(spellings)


LITERAL = ['Give JSON like {"a": 1} for {x}', "A = {1; 2; 3}, {} and {0}", "{question.__class__.__mro__} %s $x"]


@pytest.mark.parametrize("text", LITERAL)
def test_a_query_is_literal(text):
    example = Example("1", {"premise": text, "hypothesis": "{premise}"}, "neutral")
    assert query(get_task("cb"), text, example) == f"{text}\nPremise: {text}\nHypothesis: {{premise}}"


def test_a_users_own_task_from_its_settings(tmp_path):
    write_rows(tmp_path / "train.jsonl", [{"mail": f"mail {i}", "kind": "spam"} for i in range(4)])
    (tmp_path / "test.csv").write_text("mail,kind\nhello,ham\n", encoding="utf-8")
    settings = {
        "name": "mails",
        "kind": "classification",
        "labels": ["spam", "ham"],
        "fields": {"mail": "Mail"},
        "target": "kind",
        "train_file": str(tmp_path / "train.jsonl"),
        "test_file": str(tmp_path / "test.csv"),
        "default_instruction": "Is it spam?",
    }
    task = task_from_settings(CustomTaskSettings(**settings))
    assert get_task("Mails", [task]) is task
    assert len(load_examples(task, "train", dev_size=1, seed=0)) == 3
    (test,) = load_examples(task, "test")
    assert query(task, task.default_instruction, test) == "Is it spam?\nMail: hello"
    absent = task_from_settings(CustomTaskSettings(**settings | {"test_file": str(tmp_path / "absent.csv")}))
    with pytest.raises(UserError, match=r"absent\.csv: there is no such file"):
        load_examples(absent, "test")
    faulty = CustomTaskSettings(**settings | {"kind": "math", "labels": ["spam"], "target": "mail"})
    with pytest.raises(UserError, match=r"'mail' is one of the fields.*only a classification"):
        task_from_settings(faulty)


def test_normalised_text_tells_problems_apart():
    one, other = (Example("1", {"problem": text}, "5") for text in ("What is 2 + 3?", "What is 2 - 3?"))
    assert normalised_text(one) != normalised_text(other)

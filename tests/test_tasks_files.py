"""Rows out of files: every form, every fault, whatever the locale."""

import json
import logging
import subprocess
import sys

import datasets
import pyarrow
import pyarrow.parquet
import pytest

from prewrite.errors import UserError
from prewrite.tasks import get_task
from prewrite.tasks.files import read_instruction_rows, read_rows, require_rows
from prewrite.types import InstructionRow
from scripts.prepare_data import main as prepare_data

HARD_TEXT = 'CJK 漢字, emoji 👩‍🚀, e\u0301, \u2028 line separator, "quotes", {x} and \\boxed{}'


def write(folder, name, text):
    path = folder / name
    path.write_bytes(text.encode("utf-8") if isinstance(text, str) else text)
    return path


def test_jsonl_with_a_bom_crlf_blank_lines_and_a_last_line_that_breaks_off(tmp_path, caplog):
    path = write(tmp_path, "log.jsonl", '\ufeff{"a": 1}\r\n\r\n  \n{"a": 2}\r\n{"a": 3, "b": "cut o')
    with caplog.at_level(logging.WARNING):
        assert read_rows(path) == [{"a": 1}, {"a": 2}]
        path.write_bytes(b'{"a": 1}\n{"a": 2, "b": "caf\xc3')  # in the middle of a letter
        assert read_rows(path) == [{"a": 1}]
    assert "line 5" in caplog.text
    assert "line 2, the last, breaks off" in caplog.text


def test_hard_text_comes_through_unchanged_in_every_form(tmp_path):
    jsonl = write(tmp_path, "rows.jsonl", json.dumps({"text": HARD_TEXT}, ensure_ascii=False) + "\n")
    csv = write(tmp_path, "rows.csv", '\ufefftext\r\n"' + HARD_TEXT.replace('"', '""') + '"\r\n')
    parquet = tmp_path / "rows.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"text": [HARD_TEXT]}), parquet)
    for path in (jsonl, csv, parquet):
        assert read_rows(path) == [{"text": HARD_TEXT}]


def test_utf8_is_read_whatever_the_locale_says(tmp_path):
    path = write(tmp_path, "rows.jsonl", json.dumps({"text": HARD_TEXT}, ensure_ascii=False))
    code = (
        "import sys, pathlib; from prewrite.tasks.files import read_rows; "
        "print(ascii(read_rows(pathlib.Path(sys.argv[1]))[0]['text']))"
    )
    environment = {"LANG": "C", "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PATH": ""}
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)], capture_output=True, text=True, env=environment, check=True
    )
    assert done.stdout.strip() == ascii(HARD_TEXT)


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("rows.jsonl", "", "0 rows"),
        ("rows.jsonl", "\n \r\n", "0 rows"),
        ("rows.csv", "a,b\n", "0 rows"),
        ("rows.jsonl", '{"a": 1}\n{"a": \n{"a": 2}\n', "line 2 is not JSON"),
        ("rows.jsonl", '{"a": 1}\n[1]\n', "line 2 is a list"),
        ("rows.jsonl", '{"a": 1}\nnull\n', "line 2 is null. Every line must be a JSON object"),
        ("rows.jsonl", b'{"a": "caf\xe9"}\n', r"line 1 is not UTF-8 \(its byte 11\)"),
        (
            "rows.jsonl",
            '{"a": 1}\n{"a": \n{"a": 2}\n{}\n7\n{"a": 1, "a": 2}\n',
            "(?s)line 2 .*line 5 .*line 6 .*'a' stands",
        ),
        ("rows.csv", b"a,b\nx,y\n1,caf\xe9\n", r"line 3 is not UTF-8 \(its byte 6\)"),
        ("rows.csv", "a,b\n1,2,3\n1,2\n3,4,5\n", "(?s)row 1 .*more cells.*row 3 .*more cells"),
        ("rows.csv", "a,b\n1,2,3\n", "row 1 .*more cells"),
        ("rows.parquet", "no parquet", "not a parquet file"),
        ("rows.json", "{}", "'.json'"),
    ],
)
def test_faults_are_told_by_file_and_line(tmp_path, name, content, told):
    with pytest.raises(UserError, match=told) as caught:
        read_rows(write(tmp_path, name, content))
    assert name in str(caught.value)


def test_a_missing_file(tmp_path):
    with pytest.raises(UserError, match=r"absent\.jsonl: there is no such file"):
        read_rows(tmp_path / "absent.jsonl")


def test_half_a_character_is_refused_in_every_column(tmp_path):
    row = {"instruction": "Say it.", "dataset_name": "sst2", "information": "\ud83d"}
    with pytest.raises(UserError, match="row 1: the column 'information' holds half a character"):
        read_instruction_rows(write(tmp_path, "rows.jsonl", json.dumps(row)))


def test_no_row_left_names_the_filter():
    with pytest.raises(UserError, match="max_prompt_length=10 removed every row"):
        require_rows([], "rows.jsonl", "max_prompt_length=10")


def test_instruction_rows(tmp_path):
    lines = [
        {
            "instruction": "Solve {problem}.",
            "dataset_name": "gsm8k",
            "tags": ["problem"],
            "level": 3,
            "subject": "Algebra",
        },
        {"instruction": "Label it.", "dataset_name": "sst2", "information": "Films.", "extra": 1},
        {"instruction": "1 + 1?", "dataset_name": "gsm8k", "answer": 2},
        {"instruction": "Who?", "dataset_name": "nq_open", "answer": ["Ada", "Lovelace"]},
    ]
    path = write(tmp_path, "rows.jsonl", "\n".join(map(json.dumps, lines)))
    assert read_instruction_rows(path) == [
        InstructionRow("Solve {problem}.", "gsm8k", subject="Algebra", level="3", tags=("problem",)),
        InstructionRow("Label it.", "sst2", information="Films."),
        InstructionRow("1 + 1?", "gsm8k", answer="2"),
        InstructionRow("Who?", "nq_open", answer=("Ada", "Lovelace")),
    ]


def test_instruction_rows_are_the_same_from_every_form(tmp_path):
    rows = [
        {"instruction": "Solve {problem}.", "dataset_name": "gsm8k", "subject": "Algebra"},
        {"instruction": HARD_TEXT, "dataset_name": "sst2", "subject": None},
    ]
    lines = ["instruction,dataset_name,subject", "Solve {problem}.,gsm8k,Algebra"]
    lines.append('"' + HARD_TEXT.replace('"', '""') + '",sst2,')
    forms = [write(tmp_path, "rows.csv", "\r\n".join(lines)), tmp_path / "rows.parquet", tmp_path / "saved"]
    forms.append(write(tmp_path, "rows.jsonl", "\n".join(map(json.dumps, rows))))
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), forms[1])
    datasets.Dataset.from_list(rows).save_to_disk(str(forms[2]))
    expected = [
        InstructionRow("Solve {problem}.", "gsm8k", subject="Algebra"),
        InstructionRow(HARD_TEXT, "sst2"),
    ]
    for path in forms:
        assert read_instruction_rows(path) == expected, path.name


def test_a_folder_that_is_no_saved_data_set_and_one_of_splits_are_told(tmp_path):
    with pytest.raises(UserError, match=r"not a folder that datasets' save_to_disk wrote .*Give the path of a \.jsonl"):
        read_rows(tmp_path)
    one = datasets.Dataset.from_list([{"a": 1}])
    datasets.DatasetDict({"train": one, "test": one}).save_to_disk(str(tmp_path / "both"))
    with pytest.raises(UserError, match=r"holds the splits train, test; give the folder of one, as .*both/train"):
        read_rows(tmp_path / "both")
    assert read_rows(tmp_path / "both" / "test") == [{"a": 1}]


def test_rows_of_tasks_are_made_and_read_back(tmp_path, capsys):
    for name, rows in (("train", 6), ("test", 2)):
        lines = [
            {"problem": f"{name} {i}", "answer": str(i), "subject": ("Algebra", "Geometry")[i % 2], "unique_id": str(i)}
            for i in range(rows)
        ]
        files = {"train": "math_train.jsonl", "test": "math500_test.jsonl"}
        write(tmp_path, files[name], "\n".join(map(json.dumps, lines)))
    out, data = tmp_path / "rows.jsonl", ("--local-dir", str(tmp_path))
    assert prepare_data(["--task", "math500", "--by", "subject", *data, "--out", str(out)]) == 0
    task = get_task("math-500")
    assert read_instruction_rows(out) == [
        InstructionRow(task.default_instruction, "math-500", subject=subject) for subject in ("Algebra", "Geometry")
    ]
    template = ("--tags", "problem", "--instruction", "Solve {problem}")
    assert prepare_data(["--task", "gsm8k", "--task", "math-500", *template, "--out", str(out)]) == 0
    assert [row.tags for row in read_instruction_rows(out)] == [("problem",)] * 2
    for wrong, told in (
        (["--task", "gsm8k", "--tags", "text"], "--tags text: the columns of gsm8k are problem"),
        (["--task", "math-500", "--by", "level", *data], "no train example of math-500 has one"),
        (["--task", "nothing"], "nothing"),
    ):
        assert prepare_data([*wrong, "--out", str(out)]) == 2
        assert told in capsys.readouterr().err
    assert prepare_data(["--task", "gsm8k", "--out", str(tmp_path / "rows.txt")]) == 2
    kept = out.read_text()
    for instruction in (" ", "", "a\udce9"):  # the last is what a Latin-1 terminal's é comes as
        assert prepare_data(["--task", "gsm8k", "--instruction", instruction, "--out", str(out)]) == 2
        assert "row 1: the column 'instruction'" in capsys.readouterr().err
        assert out.read_text() == kept


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ({"instruction": "x"}, "row 2: the column 'dataset_name' is missing; the row has instruction"),
        ({"instruction": None, "dataset_name": "sst2"}, "row 2: the column 'instruction' is empty"),
        ({"instruction": " ", "dataset_name": "sst2"}, "row 2: the column 'instruction' is ' '"),
        ({"instruction": 5, "dataset_name": "sst2"}, "row 2: the column 'instruction' is 5"),
        ({"instruction": "x", "dataset_name": "sst2", "tags": "text"}, "row 2: the column 'tags' is 'text'"),
        ({"instruction": "x", "dataset_name": "sst2", "answer": []}, "row 2: the column 'answer' is \\[\\]"),
        ({"instruction": "x", "dataset_name": "sst2", "answer": {"text": "a"}}, "row 2: the column 'answer' is {"),
        ({"instruction": "x", "dataset_name": "sst2", "tags": 5}, "row 2: the column 'tags' is 5"),
    ],
)
def test_faults_of_instruction_rows(tmp_path, row, told):
    good = {"instruction": "Label it.", "dataset_name": "sst2"}
    path = write(tmp_path, "rows.jsonl", json.dumps(good) + "\n" + json.dumps(row) + "\n")
    with pytest.raises(UserError, match=told):
        read_instruction_rows(path)

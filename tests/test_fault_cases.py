"""The public faults of endpoints, files and command lines, and others of their kinds: each runs the real thing."""

import ast
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

import evaluate
from prewrite.config import CustomTaskSettings, TaskModelSettings
from prewrite.engine import task_endpoint
from prewrite.engine.chat_template import render_request
from prewrite.engine.task_model import TaskModel
from prewrite.engine.task_wire import retry_after_seconds
from prewrite.errors import UserError
from prewrite.tasks.examples import Empty
from prewrite.tasks.files import read_instruction_rows, read_rows
from prewrite.tasks.loading import load_examples
from prewrite.tasks.own import task_from_settings
from prewrite.types import Answer, Call
from tests.fault_server import FaultServer, Reply, completion, echo

FOLDER = Path(os.environ.get("PREWRITE_CASES") or Path(__file__).parents[2] / "shared" / "cases")
FILE = FOLDER / "faults.jsonl"
CASES = [json.loads(line) for line in FILE.read_text(encoding="utf-8").splitlines()] if FILE.is_file() else []
ROOT = Path(__file__).parents[1]
OFF = {"enable_thinking": False}


def cases(kind: str) -> list[Any]:
    found = [pytest.param(case, id=str(case["n"])) for case in CASES if case["kind"] == kind]
    return found or [pytest.param({}, marks=pytest.mark.skip(reason=f"no {FILE}; set PREWRITE_CASES to its folder"))]


@pytest.fixture(autouse=True)
def _quick_backoff(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_endpoint, "_FIRST_BACKOFF", 0.01)


def ask(reply: Reply, choices: tuple[str, ...] = (), **settings: Any) -> tuple[Answer, FaultServer, TaskModel]:
    """The answer to one call that always gets this reply, with one retry."""
    with FaultServer(lambda body, tried: reply) as server:
        own = TaskModelSettings(model="task", base_url=server.base_url, max_retries=1, **settings)
        with TaskModel(own, base_url=server.base_url) as model:
            return model.ask([Call("q", choices)])[0], server, model


def body(content: Any = None, finish_reason: Any = "stop", **message: Any) -> str:
    return json.dumps({"choices": [{"message": {"content": content, **message}, "finish_reason": finish_reason}]})


@pytest.mark.parametrize("case", cases("reply"))
def test_a_reply(case: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    reply, expected = Reply(body=json.dumps(case["body"])), case["expected"]
    if expected == "CallFailed, retry":
        answer, server, _ = ask(reply)
        assert answer.text is None
        assert len(server.bodies) == 2
    elif expected == "positive, or the probe tells":
        assert ask(reply, chat_template_kwargs=OFF)[0].text == "positive"
        with pytest.raises(UserError, match=r"reasoning_content.*enable_thinking"):
            probe(lambda body, tried: reply)
    elif expected == "evaluation file written":
        assert evaluated(lambda body, tried: reply, tmp_path) == 0
        assert json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))
    else:
        assert ask(reply)[0].text == expected


@pytest.mark.parametrize("case", cases("retry_after"))
def test_a_retry_after(case: dict[str, Any]) -> None:
    assert retry_after_seconds(case["value"], now=1.7e9) == case["expected"]


@pytest.mark.parametrize("case", cases("http"))
def test_a_refusal(case: dict[str, Any]) -> None:
    with pytest.raises(UserError, match=r"request_fields.*max_tokens.*max_completion_tokens"):
        probe(lambda body, tried: Reply(status=case["status"], body=case["text"]))


@pytest.mark.parametrize("case", cases("cli"))
def test_a_command_line(case: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "p.txt").write_text("Say it.\n")
    arguments = ["--prompts", str(tmp_path / "p.txt"), "--task", "sentiment", *case["args"]]
    done = subprocess.run([sys.executable, "evaluate.py", *arguments], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 2
    assert case["args"][-1] not in done.stdout + done.stderr
    assert "api_key_env" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("case", cases("csv"))
def test_a_csv(case: dict[str, Any], tmp_path: Path) -> None:
    left, times, right = case["build"].split("'")[1], 140_000, case["build"].rsplit("'", 2)[1]
    (tmp_path / "rows.csv").write_text(ast.literal_eval(f"'{left}'") + "x" * times + ast.literal_eval(f"'{right}'"))
    assert [len(row["text"]) for row in read_rows(tmp_path / "rows.csv")] == [times]


@pytest.mark.parametrize("case", cases("parquet"))
def test_a_parquet_file(case: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"text": [f"text {i}" for i in range(100)]}), path)
    whole = path.read_bytes()
    path.write_bytes(whole[:4] + b"\xff" * 36 + whole[40:])
    with pytest.raises(UserError, match=r"rows\.parquet: not a parquet file that can be read"):
        read_rows(path)


@pytest.mark.parametrize("case", cases("jsonl"))
def test_a_gold(case: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"rows\.jsonl: row 1: the column 'label' is"):
        golds(tmp_path, case["line"], case["task"])


@pytest.mark.parametrize("case", cases("instructions_csv"))
def test_an_instruction_csv(case: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text(case["text"])
    assert [row.answer for row in read_instruction_rows(tmp_path / "rows.csv")] == [None]


@pytest.mark.parametrize("case", cases("request"))
def test_a_request(case: dict[str, Any]) -> None:
    with pytest.raises(UserError, match="row 1: it holds the control token"):
        render_request(FakeTokenizer(case["special_tokens"]), case["instruction"], {}, where="row 1")


class FakeTokenizer:
    """What `render_request` reads of a tokenizer; a token a character."""

    chat_template = "template"

    def __init__(self, all_special_tokens: list[str], render: Callable[[str], str] = "<bos>{}<eos>".format):
        self.all_special_tokens, self._render = all_special_tokens, render

    def apply_chat_template(self, messages: list[dict[str, str]], **_: Any) -> str:
        return self._render(messages[0]["content"])

    def __call__(self, text: str, **_: Any) -> dict[str, list[int]]:
        return {"input_ids": list(map(ord, text))}


def probe(behaviour: Callable[[dict[str, Any], int], Reply], **settings: Any) -> list[dict[str, Any]]:
    with FaultServer(behaviour) as server:
        own = TaskModelSettings(model="task", base_url=server.base_url, max_retries=0, **settings)
        with TaskModel(own, base_url=server.base_url) as model:
            model.probe()
        return server.bodies


def evaluated(behaviour: Callable[[dict[str, Any], int], Reply], folder: Path, *arguments: str) -> int:
    """The exit code of an evaluation of a small open question with this endpoint; it writes out.json."""
    (folder / "p.txt").write_text("Say it.\n")
    rows = [json.dumps({"text": f"Capital {i}?", "label": "Paris"}) for i in range(3)]
    (folder / "rows.jsonl").write_text("\n".join(rows) + "\n")
    with FaultServer(behaviour) as server:
        config = json.loads((ROOT / "configs" / "quickstart.json").read_text())
        config["custom_tasks"] = [
            {
                "name": "capitals", "kind": "open_question", "fields": {"text": "Question"}, "target": "label",
                "train_file": str(folder / "rows.jsonl"), "test_file": str(folder / "rows.jsonl"),
                "default_instruction": "Answer.",
            }
        ]  # fmt: skip
        (folder / "c.json").write_text(json.dumps(config))
        given = ["--prompts", str(folder / "p.txt"), "--task", "capitals", "--config", str(folder / "c.json")]
        served = ["--model", "task", "--base-url", server.base_url, "--out", str(folder / "out.json")]
        return evaluate.main([*given, *served, *arguments])


def golds(folder: Path, line: str, kind: str, empty: Empty = "refuse") -> list[Any]:
    (folder / "rows.jsonl").write_text(line + "\n", encoding="utf-8")
    file = str(folder / "rows.jsonl")
    task = task_from_settings(CustomTaskSettings.model_validate({
        "name": "own", "kind": kind, "fields": {"text": "Text"}, "target": "label", "train_file": file,
        "test_file": file, "default_instruction": "Say it.", "labels": ["0", "1"] if kind == "classification" else [],
    }))  # fmt: skip
    return [example.target for example in load_examples(task, "test", empty=empty)]


@pytest.mark.parametrize(
    ("choice", "kind", "tries"),
    [
        (body("half an ans", "error"), "broken off", 2),
        (body("half", "abort"), "broken off", 2),
        (body("half", ["stop"]), "broken off", 2),
        (body("", "SAFETY"), "content filter", 1),
        (body(None, "tool_calls"), "tool call", 1),
        (body(None, refusal="I can't say whether it is positive."), "refusal", 1),
        (body([{"type": "image_url"}]), "unreadable reply", 2),
        ('{"object": "error", "message": "no such thing", "code": 400}', "error in a 200 reply", 1),
        ('{"choices": [{"error": {"code": "429"}, "message": {"content": "x"}}]}', "error in a 200 reply", 2),
        ("[" * 100_000, "unreadable reply", 2),
        ('{"choices": ' + "9" * 5000 + "}", "unreadable reply", 2),
        (body(None, reasoning="positive"), "answer in reasoning_content", 1),
    ],
)
def test_what_is_no_answer_is_a_failed_call_with_its_reason(choice: str, kind: str, tries: int) -> None:
    answer, server, model = ask(Reply(body=choice))
    assert answer.text is None
    assert answer.error is not None
    assert answer.error.startswith(kind)
    assert len(server.bodies) == tries
    assert model.stats.failures == {kind: 1}


@pytest.mark.parametrize(
    ("choice", "settings", "answer"),
    [
        ("\ufeff" + body("yes"), {}, Answer("yes", finish_reason="stop")),
        (body("yes", "eos"), {}, Answer("yes", finish_reason="stop")),
        (body("yes", None), {}, Answer("yes")),
        (body("half", "MAX_TOKENS"), {}, Answer("half", finish_reason="length")),
        (body(["a ", {"type": "thinking"}, {"type": "text", "text": "b"}]), {}, Answer("a b", finish_reason="stop")),
        (body("\n", reasoning="yes"), {"chat_template_kwargs": OFF}, Answer("yes", finish_reason="stop")),
        (body("no", reasoning="yes"), {"chat_template_kwargs": OFF}, Answer("no", finish_reason="stop")),
        (body("", "length", reasoning_content="hmm"), {}, Answer("", finish_reason="length")),
    ],
)  # fmt: skip
def test_what_is_an_answer(choice: str, settings: dict[str, Any], answer: Answer) -> None:
    assert ask(Reply(body=choice), **settings)[0] == answer


@pytest.mark.parametrize(
    ("usage", "tokens"),
    [("null", 0), ('"12"', 12), ("-3", 0), ("7.0", 7), ("NaN", 0), ("1e400", 0), ("{}", 0), ("true", 1), ('"many"', 0)],
)
def test_a_usage_field_is_a_count_or_nothing(usage: str, tokens: int) -> None:
    text = body("yes")[:-1] + f', "usage": {{"prompt_tokens": {usage}, "completion_tokens": {usage}}}}}'
    answer, _, model = ask(Reply(body=text))
    assert answer.text == "yes"
    assert (model.stats.prompt_tokens, model.stats.completion_tokens) == (tokens, tokens)


def test_headers_beyond_8_kb_are_read() -> None:
    assert ask(Reply(body=completion("yes"), headers={"x-policy": "p" * 60_000}))[0].text == "yes"


@pytest.mark.parametrize(
    "value", ["Mon, 01 Jan 2024 99:00:00 GMT", "9" * 5000, "Fri, 31 Dec 9999 23:59:59 -9999", "1e999"]
)
def test_an_absurd_retry_after_is_survived(value: str) -> None:
    assert 0.0 <= retry_after_seconds(value, now=1.7e9) <= 120.0


def test_request_fields_rename_and_leave_out() -> None:
    fields = {"max_tokens": "max_completion_tokens", "temperature": None, "n": None}
    (sent,) = probe(echo, request_fields=fields, vllm_fields=False)
    assert sent.keys() == {
        "model",
        "messages",
        "top_p",
        "max_completion_tokens",
        "presence_penalty",
        "frequency_penalty",
    }
    assert sent["max_completion_tokens"] == 512


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Unsupported value: 'temperature' does not support 0 with this model.", '{"temperature": null}'),
        ('{"error": {"message": "Unknown parameter: \\"n\\""}}', '{"n": null}'),
        ("max_tokens 512 exceeds the context length of 256", "lower task_model.max_tokens"),
        ("max_tokens is too large: 512", "lower task_model.max_tokens, or raise the endpoint's own limit"),
        ("This model's maximum context length is 1024 tokens, your query has 2000.", "by data.max_words"),
        ("Extra inputs are not permitted: chat_template_kwargs", "leave task_model.chat_template_kwargs empty"),
        ("Unrecognized request argument supplied: min_p", "vllm_fields to false"),
    ],
)
def test_a_refused_field_names_the_setting_that_helps(text: str, words: str) -> None:
    with pytest.raises(UserError) as told:
        probe(lambda body, tried: Reply(status=400, body=text))
    assert words in str(told.value)


def test_an_evaluation_is_written_though_its_report_cannot_be_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Closed:
        encoding = "ascii"

        def write(self, text: str) -> int:
            raise BrokenPipeError

    monkeypatch.setattr(sys, "stdout", Closed())
    with pytest.raises(BrokenPipeError):
        evaluated(lambda body, tried: Reply(body=completion("Paris")), tmp_path)
    assert json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    "arguments",
    [
        ["--api-key-env", "hf_s3cret"],
        ["--base-url", "s3cret"],
        ["--base-url", "user:s3cret@127.0.0.1:9/v1"],
        ["--api-kee", "s3cret"],
        ["--api-kee=s3cret"],
        ["--api-key-env", "S3CRET_NOT_SET"],
    ],
)
def test_no_argument_fault_prints_a_key(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code = evaluated(echo, tmp_path, *arguments)
    except SystemExit as left:
        code = left.code
    shown = capsys.readouterr()
    assert code == 2
    assert "s3cret" not in (shown.out + shown.err).lower()


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("a.csv", "text,label,text\na,b,c\n", "the column 'text' stands twice"),
        ("a.csv", 'text,label\na,b\n"c,d\n', "row 2 is no CSV .from line 3.: a cell opens .*double the quotes"),
        ("a.jsonl", '{"a": 1}\n{"a": ' + "9" * 5000 + "}\n", "line 2 is not JSON"),
        ("a.jsonl", '{"a": 1}\n' + "[" * 100_000, "line 2 is not JSON"),
        ("a.jsonl", '{"a": 1, "a": 2}\n', "line 1 .*'a' stands twice"),
    ],
)
def test_a_file_that_cannot_be_read_is_told_with_its_row(tmp_path: Path, name: str, content: str, told: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(UserError, match=told):
        read_rows(tmp_path / name)


@pytest.mark.parametrize("offset", [8, 100, 300, -200, -60, -30])
def test_a_damaged_parquet_file_is_a_message(tmp_path: Path, offset: int) -> None:
    path = tmp_path / "rows.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"text": [f"text {i}" for i in range(100)]}), path)
    whole = bytearray(path.read_bytes())
    start = offset % len(whole)
    whole[start : start + 20] = b"\xff" * 20
    path.write_bytes(whole)
    with pytest.raises(UserError, match=r"rows\.parquet: not a parquet file"):
        read_rows(path)


@pytest.mark.parametrize(
    ("kind", "gold", "read"),
    [
        ("math", "1945.0", "1945"),
        ("math", "0.5", "0.5"),
        ("classification", "1.0", "1"),
        ("open_question", '[1945.0, "\'45"]', ("1945", "'45")),
    ],
)
def test_a_whole_number_is_itself(tmp_path: Path, kind: str, gold: str, read: Any) -> None:
    assert golds(tmp_path, f'{{"text": "a", "label": {gold}}}', kind) == [read]


@pytest.mark.parametrize("gold", ["NaN", "null", "Infinity", '{"a": 1}', '["Paris", null]', "[]", '" "', '[["Paris"]]'])
@pytest.mark.parametrize("kind", ["math", "open_question", "classification"])
def test_a_gold_that_is_none_is_refused(tmp_path: Path, kind: str, gold: str) -> None:
    with pytest.raises(UserError, match="row 1: the column 'label' is"):
        golds(tmp_path, f'{{"text": "a", "label": {gold}}}', kind)


def test_empty_texts_and_golds_are_counted_and_refused_or_dropped(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cells = (("a", "1"), (" ", "1"), ("b", "2"), ("", "1"), ("c", " "))
    lines = "\n".join(json.dumps({"text": text, "label": gold}) for text, gold in cells)
    with pytest.raises(UserError) as caught:
        golds(tmp_path, lines, "math")
    assert "row 2: the column 'text' is empty; data.empty=drop leaves" in str(caught.value)
    assert "(2 rows: row 2, row 4)" in str(caught.value)
    assert "row 5: the column 'label' is empty" in str(caught.value)
    assert golds(tmp_path, lines, "math", "drop") == ["1", "2"]
    assert "3 rows with an empty text or gold are left out (data.empty): rows.jsonl: row 2, row 4, row 5" in caplog.text
    lines = "\n".join(lines.split("\n")[:4])
    assert golds(tmp_path, lines, "math", "keep") == ["1", "1", "2", "1"]
    assert "2 of 4 rows have an empty text (the first: own_test-2)" in caplog.text


def test_blank_optional_cells_are_absent(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text(
        '{"instruction": "Solve", "dataset_name": "gsm8k", "subject": " ", "level": 3.0, "tags": NaN, "answer": NaN}\n'
    )
    (row,) = read_instruction_rows(tmp_path / "rows.jsonl")
    assert (row.subject, row.level, row.tags, row.answer) == (None, "3", (), None)

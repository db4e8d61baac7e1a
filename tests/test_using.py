"""The programs of docs/using.md and README.md send what was measured."""

import importlib
import json
import re
from pathlib import Path

import pytest

from tests.fault_server import FaultServer, Reply, completion, query_of

ROOT = Path(__file__).parent.parent
PROGRAMS: dict[str, str] = dict(
    re.findall(r"```python (\w+)\n(.*?)```", (ROOT / "docs" / "using.md").read_text(encoding="utf-8"), re.DOTALL)
)
REQUEST = {
    "model": "task",
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Is it good? \\boxed{}\nSentence: A fine film."},
    ],
    "temperature": 0.0,
    "top_p": 1.0,
    "max_tokens": 512,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "n": 1,
    "top_k": -1,
    "min_p": 0.0,
    "repetition_penalty": 1.0,
    "chat_template_kwargs": {"enable_thinking": False},
    "structured_outputs": {"choice": ["negative", "positive"]},
}
USE = {"query": "Is it good? \\boxed{}\nSentence: {text}", "sample_request": REQUEST}


def test_there_is_a_program_for_each_package() -> None:
    assert sorted(PROGRAMS) == ["dspy", "langchain_openai", "openai"]


@pytest.mark.parametrize("package", PROGRAMS)
def test_the_program_sends_what_was_measured(
    package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    module = pytest.importorskip(package, reason=f"NOT RUN: {package} is not installed (pip install {package})")
    (tmp_path / "best.json").write_text(json.dumps({"sst2": {"use": USE}}))
    monkeypatch.chdir(tmp_path)
    with FaultServer(lambda body, tried: Reply(body=completion("negative"))) as server:
        exec(PROGRAMS[package], {package: module, "json": importlib.import_module("json"), "URL": server.base_url})
    (body,) = server.bodies
    wanted = json.loads(json.dumps(REQUEST))
    wanted["messages"][-1]["content"] = "Is it good? \\boxed{}\nSentence: A dull film."
    assert {name: body.get(name) for name in wanted} == wanted
    assert query_of(body).endswith("Sentence: A dull film.")
    assert capsys.readouterr().out.strip() == "negative"

"""YAML configs: YAML 1.2's core schema, and hostile files refused in one message."""

import json
import math
import time

import pytest

from prewrite.config.loading import load_config
from prewrite.config.yaml_file import read_yaml
from prewrite.errors import UserError

MINIMAL = """\
# as they are written
policy: {model: some/model}
data:
  tasks: [sentiment]
task_model:
  model: some/model
training:
  max_steps: 2
  learning_rate: 1e-6
"""


def refusal(tmp_path, text: str) -> str:
    path = tmp_path / "config.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UserError) as caught:
        load_config(path)
    return str(caught.value)


@pytest.mark.parametrize("suffix", [".yaml", ".yml", ".YAML"])
def test_yaml_reads_as_the_same_json(tmp_path, suffix):
    path = tmp_path / f"config{suffix}"
    path.write_text("\ufeff" + MINIMAL, encoding="utf-8")
    data = {
        "policy": {"model": "some/model"},
        "data": {"tasks": ["sentiment"]},
        "task_model": {"model": "some/model"},
        "training": {"max_steps": 2, "learning_rate": 1e-6},
    }
    (tmp_path / "config.json").write_text(json.dumps(data), encoding="utf-8")
    assert load_config(path) == load_config(tmp_path / "config.json")
    assert load_config(path, ["max_steps=7"]).training.max_steps == 7


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-6", 1e-6), ("2.0e-05", 2e-5), (".5", 0.5), ("-3", -3), ("012", 12), ("0o14", 12), ("0xfF", 255),
        ("yes", "yes"), ("no", "no"), ("on", "on"), ("off", "off"), ("y", "y"), ("true", True), ("False", False),
        ("null", None), ("~", None), ("", None), ("'1e-6'", "1e-6"), ('"true"', "true"), ("1_000", "1_000"),
        ("2026-11-29", "2026-11-29"), ("1:30", "1:30"), ("e-6", "e-6"), ("Qwen/Qwen3-14B", "Qwen/Qwen3-14B"),
        ("-.inf", -math.inf), ("|\n  two\n  lines\n", "two\nlines\n"), (">-\n  one\n  line\n", "one line"),
        ("[1, x, [y]]", [1, "x", ["y"]]), ('{"a":1,"b":"c\\/d"}', {"a": 1, "b": "c/d"}), ("<<", "<<"),
    ],
)  # fmt: skip
def test_values_are_those_of_the_core_schema(text, value):
    read = read_yaml(f"key: {text}")["key"]
    assert read == value
    assert type(read) is type(value)
    assert math.isnan(read_yaml("key: .nan")["key"])


def test_a_word_for_a_bool_is_refused(tmp_path):
    message = refusal(tmp_path, MINIMAL.replace("{model: some/model}", "{model: m, gradient_checkpointing: yes}"))
    assert 'policy.gradient_checkpointing: given "yes"' in message
    assert "true/false without quotes" in message


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("training:\n  max_steps: 1\n  max_steps: 2\n", "line 3, column 3: key 'max_steps' is given twice"),
        ("'seed': 1\n\"seed\": 2\n", "key 'seed' is given twice"),
        ("a: {b: 1, b: 2}", "key 'b' is given twice"),
        ("a: !!python/object/apply:os.system [ls]", "line 1, column 4: a tag"),
        ("a: !!str 3", "a tag"),
        ("!x\na: 1", "a tag"),
        ("a: &bomb [x, x]\nb: [*bomb, *bomb]", "line 1, column 4: an anchor or alias"),
        ("a: *nowhere", "an anchor or alias"),
        ("&x a: 1", "an anchor or alias"),
        ("? [a]\n: 1", "a list or a mapping as a key"),
        ("a: 1\n---\na: 2", "a second document"),
        ("%YAML 1.1\n---\na: yes", "read by YAML 1.2"),
        ("a: b: c", "line 1, column 5"),
        ("a:\n\t- b", "line 2, column 1"),
        ("a: 'never closed", "line 1"),
        ("a: \x00", "#x0000"),
        ("a: " + "9" * 5000, "4300 digits"),
        ("- " * 30000 + "x", "nested more than 20 deep"),
        ("[" * 20000, "nested more than 20 deep"),
        ("{a: " * 20000, "nested more than 20 deep"),
        ("", "holds null; the rule is one mapping of sections, as policy: ...: begin with a copy of a file in"),
        ("# nothing\n", "holds null"),
        ("- a\n- b", "holds a list"),
        ("just words", "holds a text"),
    ],
)
def test_hostile_and_broken_files_get_one_message(tmp_path, text, said):
    start = time.monotonic()
    message = refusal(tmp_path, text)
    assert said in message
    assert str(tmp_path / "config.yaml") in message
    assert len(message.splitlines()) == 1
    assert len(message) < 600
    assert time.monotonic() - start < 10

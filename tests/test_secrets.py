"""No argument and no config fault prints a key; what is refused is told all the same."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import evaluate
import train
from prewrite.errors import UserError
from prewrite.secrets import hidden, shown
from tests.launching import ROOT

KEYS = ("sk-x", "sk-proj-S3CRETs3cret", "hf_s3cret", "ghp_s3cretS3CRET0", "Zx81Kd02Lw93Qp47Vn56Tb18Rm20")
CONFIG = json.loads((ROOT / "configs" / "quickstart.json").read_text(encoding="utf-8"))


def told(
    program: str, arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> str:
    """What the program says on its way out with exit code 2."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(sys, "argv", [program, *arguments])
    monkeypatch.setattr("signal.signal", lambda *_: None)
    try:
        code = train.main() if program == "train.py" else evaluate.main()
    except SystemExit as left:
        code = left.code
    shown = capsys.readouterr()
    assert code == 2
    assert "Traceback" not in shown.err
    assert "pydantic" not in shown.err
    return shown.out + shown.err


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["--set", "api_key=KEY"], "--set api_key: unknown key; did you mean task_model.api_key_env?"),
        (["--set", "task_model.api_key=KEY"], "task_model.api_key: unknown key"),
        (["--set", "api_key_env=KEY"], "no environment variable's name"),
        (["--set", 'api_key_env=["KEY"]'], "task_model.api_key_env: given a list of 1"),
        (["--set", "task_model.temperature=KEY"], "task_model.temperature: given"),
        (["--set", "temperature=KEY"], "stands in several sections"),
        (["--set", "scoring=KEY"], "'forced_choice' or 'free_text'"),
        (["--set", "run_name.api_key=KEY"], "is no section"),
        (["--set", "task_model=KEY"], "task_model: given"),
        (["--set", 'task_model={"api_key": "KEY"}'], "task_model.api_key: unknown key"),
        (["--set", "KEY"], "the rule is key=value"),
        (["--set", "KEY=1"], "unknown key"),
        (["--set", "KEY.max_steps=1"], "unknown key"),
        (["--set", "loss_type=KEY"], "loss_type"),
        (["--set", 'data.tasks=["KEY"]'], "is no task"),
        (["--set", "policy.model=KEY"], "policy.model"),
        (["--set", "base_url=http://me:KEY@host/v1"], "base_url"),
        (["--set", "base_url=http://host:KEY/v1"], "base_url"),
        (["--set", "base_url=http://[KEY]/v1"], "base_url"),
        (["--set", 'server_args=["--api-key", "KEY"]'], "`server_args` hold a key"),
        (["--api-key", "KEY"], "unknown arguments: --api-key"),
        (["--api-key=KEY"], "unknown arguments: --api-key"),
        (["KEY"], "unknown arguments: words that belong to no option"),
        (["--local_rank", "KEY"], "argument --local_rank"),
        (["--help=KEY"], "argument -h/--help"),
        (["--config", "KEY"], "cannot be read"),
        (["--conf", "KEY"], "unknown arguments: --conf"),
    ],
)
def test_train_repeats_no_key(
    key: str, given: list[str], words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)  # read at import
    arguments = ["--config", "configs/quickstart.json", *(word.replace("KEY", key) for word in given)]
    message = told("train.py", arguments, monkeypatch, capsys)
    assert words in message
    assert key not in message


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["--scoring", "KEY"], "invalid choice"),
        (["--limit", "KEY"], "a whole number, 1 or more, is wanted"),
        (["--limit=KEY"], "a whole number, 1 or more, is wanted"),
        (["--api-key-env", "KEY"], "no environment variable's name"),
        (["--api-key", "KEY"], "unknown arguments: --api-key"),
        (["--api-key=KEY"], "unknown arguments: --api-key"),
        (["KEY"], "words that belong to no option"),
        (["--base-url", "http://me:KEY@host/v1"], "`base_url` is no plain address"),
        (["--task", "KEY"], "is no task"),
        (["--config", "KEY"], "cannot be read"),
        (["--model", "KEY", "--base-url", "http://127.0.0.1:9/v1"], "nothing answers"),
    ],
)
def test_evaluate_repeats_no_key(
    key: str,
    given: list[str],
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "p.txt").write_text("Say it.\n")
    known = ["--prompts", str(tmp_path / "p.txt"), "--task", "sentiment", "--model", "task"]
    message = told("evaluate.py", [*known, *(word.replace("KEY", key) for word in given)], monkeypatch, capsys)
    assert words in message
    assert key not in message


@pytest.mark.parametrize(
    "given", [["--scoring", "hunter2"], ["--api-key=hunter2"], ["hunter2"], ["--limit", "hunter2"]]
)
def test_a_key_that_looks_like_none_is_a_word_of_the_command_line(
    given: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for program, needed in (("evaluate.py", ["--prompts", "p", "--task", "t"]), ("train.py", ["--config", "c"])):
        assert "hunter2" not in told(program, [*needed, *given], monkeypatch, capsys)


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ({"api_key": "hunter2"}, "task_model.api_key: unknown key"),
        ({"api_key_env": 20261129}, "task_model.api_key_env: given a value of 8 characters"),
        ({"api_key_env": {"value": "hunter2"}}, "task_model.api_key_env: given an object of 1 keys"),
        ({"chat_template_kwargs": {"authToken": ["hunter2"]}}, "given a list of 1"),
        ({"chat_template_kwargs": {"token": None}}, "given a value of 4 characters"),
        ([{"api_key": "hunter2"}], "task_model: given a list of 1"),
        ("Bearer hunter2", "task_model: given"),
    ],
)
def test_a_config_file_with_a_key_is_refused_without_it(
    section: object,
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    whole = {**CONFIG, "task_model": {**CONFIG["task_model"], **section} if isinstance(section, dict) else section}
    (tmp_path / "c.json").write_text(json.dumps(whole))
    message = told("train.py", ["--config", str(tmp_path / "c.json")], monkeypatch, capsys)
    assert words in message
    assert not {"hunter2", "20261129"} & set(message.replace('"', " ").split())


@pytest.mark.parametrize(
    "text",
    [
        "runs/quickstart-20261129-101530: already holds a run",
        "the task sst2 and sk_tasks, ask-me, task-x, risk-free",
        "Qwen/Qwen3-30B-A3B-Instruct-2507-FP8, DeepseekV3ForCausalLM, meta-llama/Llama-3.1-8B",
        "/models/hf_cache/models--x/snapshots/0123456789abcdef0123456789abcdef01234567/config.json",
        "HF_HOME, hf_hub, policy.model, --api-key-env, 12345678901234567890123456789",
        "http://127.0.0.1:8000/v1",
    ],
)
def test_what_is_no_key_stays(text: str) -> None:
    assert hidden(text) == text


def test_a_key_is_hidden_wherever_a_message_has_it() -> None:
    told = str(UserError("the server said: Incorrect API key sk-very-secret; http://a:b@c/v1 Bearer abc"))
    assert told == (
        "the server said: Incorrect API key <hidden: 14 characters>; http://<hidden: 4 characters>c/v1 "
        "Bearer <hidden: 3 characters>"
    )


def test_a_value_is_shown_where_no_secret_is_named() -> None:
    assert shown("training.max_steps", "4") == '"4"'
    assert shown("task_model.max_tokens", True) == "true"
    assert shown("x.openai_api_key", "abc") == "text of 3 characters, which is not repeated here"
    assert shown("data.instruction", "x" * 200) == '"' + "x" * 79


def test_a_key_in_an_argument_of_the_program_itself() -> None:
    """By a start of the program: nothing imported on the way says more."""
    for program in ("train.py", "evaluate.py"):
        done = subprocess.run(
            [sys.executable, program, "--api-key=sk-x", "--set", "sk-x"], cwd=ROOT, capture_output=True, text=True
        )
        assert done.returncode == 2
        assert "sk-x" not in done.stdout + done.stderr

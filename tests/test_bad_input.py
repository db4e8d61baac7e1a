"""What train.py refuses: one message that says what to put right, exit code 2, before a model loads."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fault_server import FaultServer, Reply
from tests.launching import MODEL, SMALL, finish, launched, start, train_here, with_settings

Refuse = Callable[..., str]
MODEL_FILES = ("config.json", "tokenizer_config.json", "tokenizer.json")
NO_ENDPOINT = ("base_url=http://127.0.0.1:9/v1", "max_retries=0")


def the_one_message(code: int, stderr: str) -> str:
    assert code == 2, stderr
    assert "Traceback" not in stderr
    assert stderr.count("train.py: ") == 1, stderr
    return stderr


@pytest.fixture
def refused(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Refuse:
    """The message of the quickstart with these settings. train.py's main runs in this process: torch loads once."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)  # who asks the hub waits for no answer

    def refuse(*settings: str) -> str:
        # Where nothing listens: what is not refused ends there, and does not train.
        code = train_here(*SMALL, *with_settings(f"output_dir={tmp_path}", *NO_ENDPOINT, *settings))
        return the_one_message(code, capsys.readouterr().err)

    return refuse


def test_a_bad_config_is_told_before_a_model_loads(tmp_path: Path) -> None:
    """system-001, by a start of the program."""
    config = tmp_path / "config.json"
    config.write_text('{"learning_rat": 1e-6, "training": {"max_steps": "4"}}')
    code, _, stderr = finish(start([sys.executable, "train.py", "--config", str(config)]), timeout=60)
    message = the_one_message(code, stderr)
    assert "did you mean training.learning_rate?" in message
    assert "training.max_steps" in message
    assert "policy: missing" in message


@pytest.mark.slow
def test_a_fault_that_one_rank_meets_is_told_once_and_the_launcher_passes_the_code_on(tmp_path: Path) -> None:
    settings = with_settings(*NO_ENDPOINT, f"output_dir={tmp_path}")
    command = launched(2, "train.py", *SMALL, *settings)
    code, _, stderr = finish(start(command, ranks=2), timeout=240)
    assert "nothing answers" in the_one_message(code, stderr)


def test_a_ctrl_c_and_the_launchers_sigterm_at_once_are_one_interrupt() -> None:
    both = "{signal.SIGINT, signal.SIGTERM}"
    code = (
        "import os, signal, train\n"
        f"for one in {both}: signal.signal(one, train._interrupt)\n"
        f"signal.pthread_sigmask(signal.SIG_BLOCK, {both})\n"
        f"for one in {both}: os.kill(os.getpid(), one)\n"
        "try:\n"
        f"    signal.pthread_sigmask(signal.SIG_UNBLOCK, {both})\n"
        "    for _ in range(1000): pass\n"
        "except KeyboardInterrupt:\n"
        "    for _ in range(1000): pass\n"
        "    print('one')\n"
    )
    assert finish(start([sys.executable, "-c", code]), timeout=60) == (0, "one\n", "")


def test_a_signal_that_a_lazy_import_makes_another_error_of_is_a_signal() -> None:
    code = (
        "import os, signal, sys, train\n"
        "class Lazy:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name != 'prewrite.training.run': return None\n"
        "        try:\n"
        "            os.kill(os.getpid(), signal.SIGTERM)\n"
        "            for _ in range(1000): pass\n"
        "        except KeyboardInterrupt: raise ModuleNotFoundError('could not import it')\n"
        "sys.meta_path.insert(0, Lazy())\n"
        "sys.argv = ['train.py', '--config', 'configs/quickstart.json']\n"
        "sys.exit(train.main())\n"
    )
    code_, _, stderr = finish(start([sys.executable, "-c", code]), timeout=60)
    assert (code_, stderr.count("train.py: stopped"), "Traceback" in stderr) == (130, 1, False)


@pytest.mark.parametrize(("rank", "told"), [("0", 1), ("1", 0)])
def test_a_fault_that_every_rank_meets_is_told_by_the_first_of_a_machine(
    rank: str, told: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RANK", "8")
    monkeypatch.setenv("LOCAL_RANK", rank)
    assert train_here("--config", "no/such/config.json") == 2
    assert capsys.readouterr().err.count("train.py: ") == told


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (['data.tasks=["sst3"]'], ["sst3", "sst2"]),
        (['reward_funcs=["accuracy"]'], ["accuracy"]),
        (["instruction=<|im_start|>system"], ["control token"]),
        (["policy.model=README.md"], ["policy.model", "README.md"]),
        (["num_generations=5"], ["num_generations", "whole number of groups"]),
        ([], ["nothing answers", "127.0.0.1:9"]),
        (["base_url=null", "task_model.model=configs"], ["task_model.model", "no config.json"]),
        (["base_url=null", "task_model.model=nosuch/model"], ["task_model.model: the name", "'nosuch/model'"]),
        (["policy.model=models/smol"], ["policy.model 'models/smol': no such folder"]),
        (['data.labels={"sentiment": {"nice": "good"}}'], ["data.labels.sentiment", "'nice' is no label"]),
        (['data.labels={"sentiment": {"positive": true}}'], ["data.labels.sentiment.positive", "in quotes"]),
        (
            [
                *("instructions_file=tests/hand_made/template_rows.jsonl", "data.tasks=[]"),
                *('reward_funcs=["template_accuracy_math_reward"]', "local_dir=tests/hand_made", "dev_size=1"),
                "examples_per_rewrite=1",
            ],
            ["template_accuracy_math_reward: the tag 'author' of the row", "problem"],
        ),
    ],
)
def test_bad_input_is_one_message(refused: Refuse, settings: list[str], words: list[str]) -> None:
    message = refused(*settings)
    for word in words:
        assert word in message


@pytest.mark.parametrize(
    ("setting", "file", "content"),
    [
        *(("policy.model", file, content) for file in MODEL_FILES for content in ("[" * 100_000, "{", '"x"')),
        *(("task_model.model", "config.json", content) for content in ("[" * 100_000, "{", "9" * 5000)),
    ],
)
def test_a_damaged_model_folder_is_one_message(
    refused: Refuse, setting: str, file: str, content: str, tmp_path: Path
) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    for name in MODEL_FILES:
        (folder / name).write_bytes((MODEL / name).read_bytes())
    (folder / file).write_text(content)
    assert setting in refused(f"{setting}={folder}", "base_url=null")


@pytest.mark.parametrize("reply", [Reply(status=500, body="broken"), Reply(body="<html>nonsense</html>")])
def test_an_endpoint_without_a_usable_answer_is_refused(refused: Refuse, reply: Reply) -> None:
    with FaultServer(lambda body, tried: reply, dialects=()) as server:
        message = refused(f"base_url={server.base_url}", "task_model.model=task", "max_retries=1")
    assert "no usable answer" in message


def test_a_run_is_never_written_over(refused: Refuse, tmp_path: Path) -> None:
    (tmp_path / "quickstart").mkdir()
    (tmp_path / "quickstart" / "log.jsonl").write_text("{}\n")
    assert "already holds a run" in refused()


def test_a_start_that_failed_leaves_its_name_free(refused: Refuse) -> None:
    for _ in range(2):
        assert "nothing answers" in refused("base_url=http://127.0.0.1:9/v1", "max_retries=0")


def test_a_secret_in_the_config_is_neither_accepted_nor_repeated(refused: Refuse, tmp_path: Path) -> None:
    for setting in (
        "base_url=http://user:s3cret@127.0.0.1:9/v1",
        "base_url=http://127.0.0.1:9/v1?api-key=s3cret",
        "api_key_env=sk-s3cret",
    ):
        message = refused(setting)
        assert "api_key_env" in message
        assert "s3cret" not in message
    assert not (tmp_path / "quickstart").exists()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (["data.instruction=  "], "`instruction` is empty"),
        (["reward_weights=[0]"], "nothing could be learned"),
        (['data.tasks=["sst2", "sst2"]'], "names one twice"),
        (["data.tasks=sst2"], """as in --set 'data.tasks=["sst2"]'"""),
        (["run_name= "], "not the name of a folder: give one name, as first_try, without /"),
        (["run_name=../../x"], "the folder that it lies in is output_dir"),
        (["method=solve"], "the rule: Input should be 'grpo' or 'sft' ('solve' is a value of objective)"),
        (["objective=sft"], "('sft' is a value of method)"),
        (["scale_rewards=sequence"], "('sequence' is a value of loss.importance_sampling_level)"),
        (["num_generations=5"], "config configs/quickstart.json: 4 rollouts a generation"),
        (['reward_funcs=[":f"]'], "named package.module:function"),
        (["attn_implementation=nonsense"], "Input should be 'packed', 'sdpa' or 'eager'"),
        (["sleep_level=2"], "rollout.sleep_level is 2: vLLM sleeps on a GPU alone; set it to 0"),
        (["max_steps=0", "num_races=8", "max_task_calls=1"], "give max_task_calls 22 at least, or steps"),
        (["num_train_examples=3"], "sentiment train: 3 examples, fewer than reward.examples_per_rewrite 4"),
    ],
)
def test_settings_that_mean_nothing_are_refused(refused: Refuse, settings: list[str], words: str) -> None:
    assert words in refused(*settings)


def task_of_ones_own(folder: Path, rows: list[dict[str, str]]) -> list[str]:
    """Settings of a task whose train and test rows these are."""
    for name, part in (("train", rows[1:]), ("test", rows[:1])):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in part))
    task = {
        "name": "sums", "kind": "math", "fields": {"problem": "Problem"}, "target": "answer",
        "train_file": str(folder / "train.jsonl"), "test_file": str(folder / "test.jsonl"),
        "default_instruction": "Add.",
    }  # fmt: skip
    return [f"custom_tasks=[{json.dumps(task)}]", 'data.tasks=["sums"]', 'reward_funcs=["accuracy_math_reward"]']


SUMS = [{"problem": f"{i} + 1?", "answer": str(i + 1)} for i in range(20)]


def test_a_row_without_its_answer_is_named_with_its_column(refused: Refuse, tmp_path: Path) -> None:
    """system-046."""
    rows = [*SUMS[:3], {"problem": "What is 5 + 5?"}, *SUMS[3:]]
    message = refused(*task_of_ones_own(tmp_path, rows))
    assert "train.jsonl: row 3: the column 'answer' is missing" in message


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("max_prompt_length=8", "tokens; rollout.max_prompt_length is 8"),
        ("dev_size=120", "20 different train examples are too few for data.dev_size 120"),
        ("dev_size=17", "beside reward.examples_per_rewrite 4: set data.dev_size to 10"),
    ],
)
def test_a_filter_that_leaves_no_row_is_named(refused: Refuse, tmp_path: Path, setting: str, words: str) -> None:
    """system-052. No request is left out for its length: the first that is too long is refused."""
    rows = [{"problem": "test?", "answer": "0"}, *SUMS]
    assert words in refused(*task_of_ones_own(tmp_path, rows), setting)

"""Reading and ranking what `evaluate.py --prompts` is given."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from prewrite.errors import UserError
from prewrite.evaluation.prompts import Prompts
from prewrite.evaluation.prompts import read_prompts as read_groups
from prewrite.evaluation.sources import prompt_files
from tests.launching import ROOT

INITIAL = "Classify the review."


def rollout(rewrite: str, reward: Any, dataset_name: str = "sst2", instruction: str = INITIAL) -> dict[str, Any]:
    return {
        "step": 1,
        "dataset_name": dataset_name,
        "instruction": instruction,
        "rewrite": rewrite,
        "reward": reward,
    }


def look(rewrite: str, score: Any, n: int = 10, task: str = "sst2") -> dict[str, Any]:
    return {"rewrite": rewrite, "task": task, "step": 1, "n": n, "score": score, "verdicts": []}


def write(path: Path, objects: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(item) + "\n" for item in objects), encoding="utf-8")
    return path


def read_prompts(*given: Any) -> Prompts:
    """The only group of a file."""
    (prompts,) = read_groups(*given)
    return prompts


def texts(prompts: Prompts) -> list[str]:
    return [candidate.instruction for candidate in prompts.candidates]


def test_missing_rewards_are_never_chosen(tmp_path: Path) -> None:  # system-062, system-063
    rewards = [float("nan"), None, 0.4, 0.9, float("inf"), "1.0", True]
    log = write(tmp_path / "log.jsonl", [rollout(f"rewrite {reward}", reward) for reward in rewards])
    assert "NaN" in log.read_text()
    assert texts(read_prompts(log, "sst2")) == ["rewrite 0.9", "rewrite 0.4"]


def test_a_reward_that_failed_once_is_no_part_of_the_mean(tmp_path: Path) -> None:
    log = write(tmp_path / "log.jsonl", [rollout("a", 0.6), rollout("a", None), rollout("a", 1.0), rollout("b", 0.7)])
    best = read_prompts(log, "sst2").candidates[0]
    assert (best.instruction, best.score, best.observations) == ("a", pytest.approx(0.8), 2)


def test_dev_score_before_mean_reward(tmp_path: Path) -> None:
    log = write(tmp_path / "log.jsonl", [rollout("a", 1.0), rollout("b", 0.2), rollout("c", 0.5), rollout("d", 0.9)])
    # b's later line has all examples of its first; d's belongs to another task; a NaN is no score
    looks = [
        look("b", 0.5, 10),
        look("c", 0.6),
        look("b", 0.8, 30),
        look("d", 1.0, task="gsm8k"),
        look("a", float("nan")),
    ]
    write(tmp_path / "dev.jsonl", looks)
    prompts = read_prompts(log, "sst2")
    assert texts(prompts) == ["b", "c", "a", "d"]
    assert [c.ranked_by for c in prompts.candidates] == ["dev score", "dev score", "mean reward", "mean reward"]
    assert prompts.candidates[0].provenance() == "dev score 0.800 over 30 examples"
    assert prompts.initial == INITIAL


def test_equal_dev_scores_fall_back_on_the_reward(tmp_path: Path) -> None:
    log = write(tmp_path / "log.jsonl", [rollout("a", 0.1), rollout("b", 0.9)])
    write(tmp_path / "dev.jsonl", [look("a", 0.5), look("b", 0.5)])
    assert texts(read_prompts(log, "sst2")) == ["b", "a"]


def test_only_rows_of_the_task_count(tmp_path: Path) -> None:
    log = write(tmp_path / "log.jsonl", [rollout("a", 0.1, "SST-2"), rollout("b", 0.9, "gsm8k", "Solve it.")])

    def canonical(name: str) -> str:
        return name.lower().replace("-", "")

    own = read_prompts(log, "sst2", canonical)
    assert (texts(own), own.initial, own.ranking_tasks, own.notes) == (["a"], INITIAL, ("sst2",), ())
    other = read_prompts(log, "aime24", canonical)
    assert texts(other) == ["b", "a"]
    assert other.ranking_tasks == ("gsm8k", "sst2")
    assert any("no row of the log is for aime24" in note for note in other.notes)
    assert any("2 instructions" in note for note in other.notes)


def test_neither_empty_rewrites_nor_the_initial_instruction_are_candidates(tmp_path: Path) -> None:
    log = write(tmp_path / "log.jsonl", [rollout("", 0.9), rollout(f" {INITIAL}\n", 0.8), rollout("a", 0.1)])
    assert texts(read_prompts(log, "sst2")) == ["a"]
    log = write(tmp_path / "only.jsonl", [rollout("", 0.9), rollout(INITIAL, 0.8), rollout("a", None)])
    with pytest.raises(UserError, match="3 rollouts, but no rewrite"):
        read_prompts(log, "sst2")


def test_a_cut_last_line_is_told_with_its_number(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """system-050: blank lines, CRLF, and the last line of a run that was killed."""
    log = write(tmp_path / "log.jsonl", [rollout("a", 0.1), rollout("b", 0.2)])
    with log.open("a", encoding="utf-8", newline="") as file:
        file.write('\r\n\r\n{"step": 2, "rewri')
    assert texts(read_prompts(log, "sst2")) == ["b", "a"]
    assert "line 5" in caplog.text


def test_the_log_keeps_any_text_whatever_the_locale_says(tmp_path: Path) -> None:
    """system-054: what the journal writes is what `--prompts` reads, where the default encoding is ASCII."""
    text = "漢字 👩‍🚀 e\u0301 \u2028 {x} é"
    code = """
import json, pathlib, sys
from prewrite.config.loading import load_config
from prewrite.evaluation.prompts import read_prompts
from prewrite.reporting.journal import Journal
from prewrite.types import InstructionRow, Rollout, Sample
text = json.loads(sys.argv[2])
journal = Journal(load_config("configs/quickstart.json", ["output_dir=" + sys.argv[1], "run_name=run"]))
rollout = Rollout(Sample((), (), (), text, "stop"), InstructionRow(text + "!", "sst2"), 0, text, 1.0, {}, 0.0)
journal.write_rollouts([rollout], step=1, stage=0, seed=1, gaps=[None])
(prompts,) = read_prompts(journal.folder / "log.jsonl", "sst2")
print(json.dumps([prompts.candidates[0].instruction, prompts.initial]))
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path), json.dumps(text)],
        cwd=ROOT,
        env={**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout) == [text, text + "!"]


def test_a_broken_line_in_the_middle_is_refused(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    log.write_text(json.dumps(rollout("a", 0.1)) + "\n{oops\n" + json.dumps(rollout("b", 0.1)) + "\n")
    with pytest.raises(UserError, match="line 2"):
        read_prompts(log, "sst2")


def test_a_run_that_trained_nothing_is_read_by_its_best_against_what_its_first_stage_began_with(tmp_path: Path) -> None:
    entry = {"task": "sst2", "instruction": "Third.", "baseline": {"instruction": "Third."}}
    stages = [{"baseline": INITIAL, "instruction": "Second."}, {"baseline": "Second.", "instruction": "Third."}]
    for name, earlier in (("staged", stages), ("plain", [])):
        (tmp_path / name).mkdir()
        best = entry | {"earlier": earlier} | ({} if earlier else {"baseline": {"instruction": INITIAL}})
        (tmp_path / name / "best.json").write_text(json.dumps({"sst2": best}))
        (file,) = prompt_files([tmp_path / name])
        prompts = read_prompts(file, "sst2")
        assert (prompts.initial, texts(prompts)) == (INITIAL, ["Third."])
    assert len(prompt_files([tmp_path])) == 2
    write(tmp_path / "plain" / "log.jsonl", [rollout("a", 0.5)])
    assert [file.name for file in prompt_files([tmp_path])] == ["log.jsonl", "best.json"]
    (tmp_path / "none").mkdir()
    with pytest.raises(UserError, match="no run folder, nor a folder of runs"):
        prompt_files([tmp_path / "none"])


def test_a_checkpoint_is_no_run(tmp_path: Path) -> None:
    step = tmp_path / "first" / "checkpoints" / "step_000004"
    step.mkdir(parents=True)
    (step / "config.json").write_text('{"architectures": ["A"]}')
    (step / "best.json").write_text("{}")
    (tmp_path / "first" / "config.json").write_text("{}")
    run = f"of the run {tmp_path / 'first'}: give the run's folder to --prompts"
    for path, told in (
        (step.parent, f"this folder holds the checkpoints {run}, or one of these folders to --rewriter or --model"),
        (step, f"this is a checkpoint {run}, or this folder to --rewriter or --model"),
        (step / "best.json", f"this is a file of a checkpoint {run}, or its folder to --rewriter or --model"),
    ):
        with pytest.raises(UserError) as caught:
            prompt_files([path])
        assert str(caught.value) == f"{path}: {told}"


@pytest.mark.parametrize("name", ["log.jsonl", "list.txt"])
@pytest.mark.parametrize("text", ["", "\n  \n"])
def test_an_empty_file_is_refused(tmp_path: Path, name: str, text: str) -> None:  # system-064
    (tmp_path / name).write_text(text)
    with pytest.raises(UserError, match=r"holds no|0 rows"):
        read_prompts(tmp_path / name, "sst2")


def test_lists_keep_their_order_and_lose_repeats(tmp_path: Path) -> None:
    text = tmp_path / "list.txt"
    text.write_bytes("\ufeffBe brief.\r\n\r\n Think first. \r\nBe brief.\r\n".encode())
    assert texts(read_prompts(text, "sst2")) == ["Be brief.", "Think first."]
    rows = [{"instruction": "Two\nlines", "dataset_name": "sst2"}, {"instruction": "One"}, {"instruction": "One"}]
    prompts = read_prompts(write(tmp_path / "list.jsonl", rows), "sst2")
    assert texts(prompts) == ["Two\nlines", "One"]
    assert prompts.initial is None


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("list.jsonl", '{"prompt": "a"}\n', "row 1: the key `instruction` is missing"),
        ("list.jsonl", '{"instruction": "a"}\n{"instruction": 3}\n', "row 2: the key `instruction` holds no text"),
        ("list.jsonl", '["a"]\n', "line 1 is a list"),
        ("list.jsonl", '{"instruction": 3}\n{"instruction": "a"}\n{"prompt": "b"}\n', "(?s)row 1: .*row 3: "),
        ("list.jsonl", '3\n{"instruction": "a"}\n{"b" 1}\n4\n', "(?s)line 1 .*line 3 .*line 4 "),
        ("best.json", "[]", "no best.json of a run"),
        ("best.json", '{"sst2": {"instruction": "a"}}', "no best.json of a run"),
        ("config.json", '{"run_name": "a"}', "no best.json of a run: a row has .*; give a run's folder"),
        ("best.json", "{", "no JSON that can be read"),
        ("list.toml", "{}", "its ending is '.toml'"),
        ("only.txt", "# nothing else", "it holds no instruction"),
        ("binary.txt", b"\xff\xfe\x00", "cannot be read"),
    ],
)
def test_faults_are_told(tmp_path: Path, name: str, content: str | bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(UserError, match=message.replace("[", r"\[")) as caught:
        read_prompts(tmp_path / name, "sst2")
    assert "Error" not in str(caught.value)


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such file"):
        read_prompts(tmp_path / "none.jsonl", "sst2")


def test_what_the_run_chose_stands_first_then_estimates(tmp_path: Path) -> None:
    log = write(tmp_path / "log.jsonl", [rollout(text, 0.5) for text in "abc"])
    judged = [
        look("a", 0.9) | {"estimate": 0.6},
        look("b", 0.7) | {"estimate": 0.7},
        look("c", 0.7) | {"estimate": 0.8},
    ]
    write(tmp_path / "dev.jsonl", [*judged, look("a", 1.0) | {"role": "test"}])
    assert texts(read_prompts(log, "sst2")) == ["c", "b", "a"]
    (tmp_path / "best.json").write_text(json.dumps({"sst2": {"instruction": "b", "task": "sst2"}}))
    prompts = read_prompts(log, "sst2")
    assert texts(prompts) == ["b", "c", "a"]
    assert prompts.candidates[0].ranked_by == "chosen by the run"
    for broken in ("", "[]", '{"sst2": 3}', "[" * 100_000):
        (tmp_path / "best.json").write_text(broken)
        assert texts(read_prompts(log, "sst2")) == ["c", "b", "a"]


def test_a_row_name_that_is_no_text_names_no_row(tmp_path: Path) -> None:
    line = {"dataset_name": "sst2", "instruction": "Begin.", "rewrite": "Better.", "reward": 0.5}
    (tmp_path / "log.jsonl").write_text("".join(json.dumps(line | {"row": row}) + "\n" for row in ({"a": 1}, [1])))
    group = read_prompts(tmp_path / "log.jsonl", "sst2")
    assert [(c.instruction, c.observations) for c in group.candidates] == [("Better.", 2)]

"""`python -m prewrite.rewrite`: a trained rewriter in use."""

import json
from pathlib import Path

import pytest

import evaluate
from prewrite.config import RolloutSettings
from prewrite.evaluation.prompts import read_prompts
from prewrite.export.__main__ import main as export
from prewrite.rewrite import command
from prewrite.rewrite.__main__ import main
from prewrite.rewrite.command import Written, _written, as_jsonl
from prewrite.training.rollout import build_requests
from prewrite.types import InstructionRow, Sample
from tests.fault_server import FaultServer, Reply, completion
from tests.launching import MODEL, ROOT, finish
from tests.loaded import start_loaded
from tests.test_export import run_of

INSTRUCTION = "Classify the sentiment of the sentence as positive or negative."
META = "Rewrite this instruction as a question. Reply with the new instruction only."
ROW = InstructionRow(INSTRUCTION, "sentiment")


def sample(text: str, finish_reason: str = "stop") -> Sample:
    return Sample((), (), (), text, finish_reason)


def test_rewrites_are_cleaned_and_faults_left_out_as_in_training(tmp_path):
    samples = [
        sample('Sure! Here is the rewritten instruction:\n"Is it positive or negative?"'),
        sample("Is it positive or negative?"),
        sample("Is the sentence good", "length"),
        sample("<think>hm</think>"),
        sample("Rewrite this instruction as a question, please."),  # quotes the request
        sample("Positive or negative?"),
    ]
    written = _written(ROW, samples, META)
    assert written == Written(ROW, ("Is it positive or negative?", "Positive or negative?"), 3)
    path = tmp_path / "rewrites.jsonl"
    path.write_text(as_jsonl([written]), encoding="utf-8")
    (prompts,) = read_prompts(path, "sentiment")
    assert [one.instruction for one in prompts.candidates] == list(written.rewrites)
    assert prompts.initial == INSTRUCTION
    assert json.loads(path.read_text().splitlines()[0])["rewrite_of"] == INSTRUCTION


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--instructions", " "], "the text is empty"),
        (["--instructions", "nowhere.jsonl"], "there is no such file"),
        (["--instructions", "BAD"], "the column 'instruction' is missing"),
        (["--instructions", "Do it.", "--set", "rollout.temperature=1"], "there is no config to set it in"),
        (["--instructions", "Do it.", "--config", "nowhere.json"], "cannot be read"),
        (["--instructions", "Do it.", "--out", "/nowhere/x.jsonl"], "cannot be written"),
        (["--instructions", "Do \udcff."], "--instructions: the column 'instruction' holds half a character"),
        (["--instructions", "tests"], "'tests' is there, and no .jsonl, .csv, .parquet file"),
        (["--instructions", "Do it.", "--rewriter", ""], "--rewriter '': give a model's folder"),
        (["--instructions", "Do it.", "--rewriter", "m" * 300], "there is no such folder"),
        (["--instructions", "Do it.", "--rewriter", "NO_WEIGHTS"], "holds no weights"),
        (["--instructions", "Do it.", "--rewriter", "NO_TOKENIZER"], "tokenizer"),
        (["--instructions", "Do it."], "nowhere/model"),
    ],
)
def test_faults_are_one_message_before_a_model_loads(tmp_path, capsys, monkeypatch, arguments, said):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)  # read at import
    bad = tmp_path / "bad.jsonl"
    bad.write_text('{"text": "x"}\n', encoding="utf-8")
    places = {"BAD": bad, "NO_WEIGHTS": tmp_path / "bare", "NO_TOKENIZER": tmp_path / "mute"}
    for folder in (places["NO_WEIGHTS"], places["NO_TOKENIZER"]):
        folder.mkdir()
        (folder / "config.json").write_text('{"model_type": "llama"}')
    (places["NO_TOKENIZER"] / "model.safetensors").write_bytes(b"")
    given = [str(places.get(word, word)) for word in arguments]
    monkeypatch.chdir(ROOT)
    assert main(["--rewriter", "nowhere/model", "--out", str(tmp_path / "out.jsonl"), *given]) == 2
    out, err = capsys.readouterr()
    assert said in err
    assert out == ""
    assert not (tmp_path / "out.jsonl").exists()


def test_nothing_usable_is_told_and_nothing_written():
    with pytest.raises(Exception, match="none of the completions holds a rewrite"):
        as_jsonl([Written(ROW, (), 4)])


def test_evaluate_rewrites_and_shows_before_and_after(tmp_path, monkeypatch, capsys):
    """The rewriter is a stand-in; `test_a_checkpoint_of_a_run_rewrites_with_the_runs_own_request` has a real one."""
    rows = [{"instruction": INSTRUCTION, "dataset_name": "sentiment"}]
    (tmp_path / "rows.jsonl").write_text(json.dumps(rows[0]) + "\n")
    asked = []

    def rewrite(arguments):
        asked.append((arguments.rewriter, arguments.instructions))
        return [Written(ROW, ("Positive or negative?",), 0)]

    monkeypatch.setattr(command, "rewrite", rewrite)
    with FaultServer(lambda body, tried: Reply(body=completion("positive"))) as server:
        given = ["--rewriter", "CKPT", "--prompts", str(tmp_path / "rows.jsonl"), "--limit", "10"]
        assert evaluate.main([*given, "--model", "task", "--base-url", server.base_url]) == 0
    assert asked == [("CKPT", str(tmp_path / "rows.jsonl"))]
    written = json.loads((tmp_path / "evaluation_sentiment_first_10.json").read_text())["rows"]
    assert [row["instruction"] for row in written] == [INSTRUCTION, "Positive or negative?"]
    assert "-> Positive or negative?" in capsys.readouterr().out
    (tmp_path / "list.txt").write_text("Be brief.\n")
    given = ["--rewriter", "CKPT", "--prompts", str(tmp_path / "list.txt"), "--task", "sentiment"]
    assert evaluate.main([*given, "--model", "task", "--base-url", "http://127.0.0.1:9/v1"]) == 2
    assert "--rewriter rewrites a list" in capsys.readouterr().err
    given = [
        "--rewriter",
        "",
        "--prompts",
        str(tmp_path / "rows.jsonl"),
        "--model",
        "task",
        "--base-url",
        "http://h/v1",
    ]
    monkeypatch.undo()
    assert evaluate.main(given) == 2
    assert "--rewriter '': give a model's folder" in capsys.readouterr().err


PLACES = ("France", "Italy", "Spain", "Japan", "Peru", "Kenya", "Egypt", "Cuba", "Chile", "India", "Nepal", "Norway")


def greedy_by_transformers(model: Path, requests: list[list[int]], max_new_tokens: int) -> list[Sample]:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    lm = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(model, padding_side="left")
    batch = tokenizer.pad({"input_ids": requests}, return_tensors="pt")
    made = lm.generate(**batch, do_sample=False, max_new_tokens=max_new_tokens)[:, batch["input_ids"].shape[1] :]
    texts = tokenizer.batch_decode(made, skip_special_tokens=True)
    ended = (made == tokenizer.eos_token_id).any(dim=1).tolist()
    return [sample(text, "stop" if end else "length") for text, end in zip(texts, ended, strict=True)]


@pytest.mark.slow
def test_an_exported_model_rewrites_with_its_runs_own_request_as_transformers_does(tmp_path: Path) -> None:
    """The folder is exported from a checkpoint that holds a tied head twice (system-029)."""
    from transformers import AutoTokenizer

    run = run_of(tmp_path, str(MODEL), both_heads=True)
    config = {
        "policy": {"model": str(MODEL), "dtype": "float32"},
        "data": {"tasks": ["sentiment"]},
        "task_model": {"model": "m"},
        "rollout": {"meta_instruction": META, "max_completion_length": 64, "max_prompt_length": 128},
        "training": {"max_steps": 1},
    }
    (run / "config.json").write_text(json.dumps(config), encoding="utf-8")
    model = tmp_path / "exported"
    assert export([str(run), "--out", str(model)]) == 0
    others = ("Name a colour.", "Translate the word into French.", "Add the two numbers.")
    rows = [INSTRUCTION, *others, *(f"Name the capital of {place}." for place in PLACES)]
    assert len(rows) == 16
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps({"instruction": row}) + "\n" for row in rows))
    out = tmp_path / "rewrites.jsonl"
    arguments = ["--rewriter", str(model), "--config", str(run / "config.json")]
    arguments += ["--instructions", str(tmp_path / "rows.jsonl"), "--out", str(out)]
    code, stdout, stderr = finish(start_loaded("-m", "prewrite.rewrite", *arguments), timeout=500)
    assert code == 0, stderr
    assert f"written: {out}" in stdout
    settings = RolloutSettings(**config["rollout"])
    instructions = [InstructionRow(row, "none") for row in rows]
    requests = build_requests(instructions, AutoTokenizer.from_pretrained(model), settings)
    expected = greedy_by_transformers(model, requests, settings.max_completion_length)
    assert sum(one.finish_reason == "stop" for one in expected) >= 12, "texts that are too long are not compared"
    wanted = [_written(row, [one], META) for row, one in zip(instructions, expected, strict=True)]
    assert [json.loads(line)["instruction"] for line in out.read_text().splitlines()] == [
        text for one in wanted for text in one.rewrites
    ]

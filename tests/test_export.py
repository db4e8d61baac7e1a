"""`python -m prewrite.export`: a folder that others load as it is, its card, and the way to the hub."""

import json
import shutil
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

from prewrite.export.__main__ import main
from prewrite.training.checkpoint import MANIFEST, facts_of
from tests.hub_server import HubServer
from tests.launching import finish, start

TEXT = "</div>\n---\nbase_model: evil/model\n```\n# not a heading"


def run_of(tmp_path: Path, model: str, *, both_heads: bool = False) -> Path:
    """A run folder whose one checkpoint is this model; both_heads: its tied head is written out as well."""
    run = tmp_path / "run"
    checkpoint = run / "checkpoints" / "step_000003"
    shutil.copytree(model, checkpoint)
    if both_heads:
        weights = load_file(checkpoint / "model.safetensors")
        assert "lm_head.weight" not in weights
        weights["lm_head.weight"] = weights["model.embed_tokens.weight"].clone()
        save_file(weights, checkpoint / "model.safetensors", metadata={"format": "pt"})
    (checkpoint / "state.json").write_text(json.dumps({"step": 3, "ranks": 1, "lines": {}, "score": None, "data": {}}))
    (checkpoint / "progress.json").write_text("{}")
    (checkpoint / "rank_00000.pt").write_bytes(b"of the training")
    files = {path.name: facts_of(path) for path in sorted(checkpoint.iterdir())}
    (checkpoint / MANIFEST).write_text(json.dumps(files))
    settings = {"policy": {"model": "some-org/base-model"}, "task_model": {"model": "task"}, "run_name": "sst2 <b>"}
    (run / "config.json").write_text(json.dumps(settings | {"rollout": {"meta_instruction": "Rewrite."}, "seed": 7}))
    (run / "metrics.jsonl").write_text("".join(json.dumps({"step": i, "reward_mean": i / 4}) + "\n" for i in (1, 2, 3)))
    (run / "totals.json").write_text(json.dumps({"steps": 3, "task_calls": 1234.0, "seconds": 7200.0}))
    baseline = {"instruction": "Classify.", "score": 0.5, "interval": [0.4, 0.6]}
    test = {"proven": True, "p_value": 0.012, "wins": 9, "losses": 1, "n": 20}
    entry = {"instruction": TEXT, "score": 0.75, "interval": [0.65, 0.85], "baseline": baseline, "test": test}
    (run / "best.json").write_text(json.dumps({"sst2": entry}))
    accuracy = {"value": 0.7, "interval": {"low": 0.6, "high": 0.8}}
    measured = {"task": "sst2", "test_split": "sst2_dev", "rows": [{"role": "best", "summary": {"accuracy": accuracy}}]}
    (run / "evaluation_sst2.json").write_text(json.dumps(measured))
    return run


@pytest.mark.parametrize("both_heads", [False, True], ids=["tied", "tied, and both written"])  # system-027, system-029
def test_the_folder_is_the_model_tied_head_once_with_all_that_goes_with_it(
    tmp_path: Path, shallow_model: str, both_heads: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    run, out = run_of(tmp_path, shallow_model, both_heads=both_heads), tmp_path / "out"
    assert main([str(run), "--out", str(out)]) == 0
    assert f"written: {out}" in capsys.readouterr().out
    weights = load_file(out / "model.safetensors")
    assert "lm_head.weight" not in weights
    assert {weight.dtype for weight in weights.values()} == {torch.bfloat16}
    config = json.loads((out / "config.json").read_text())
    assert (config["tie_word_embeddings"], config["dtype"]) == (True, "bfloat16")
    ours, told = AutoModelForCausalLM.from_pretrained(out, output_loading_info=True)
    assert not told["missing_keys"], "a tied head is not missing"
    assert not told["unexpected_keys"]
    theirs = AutoModelForCausalLM.from_pretrained(shallow_model, dtype=torch.bfloat16)
    ids = torch.arange(3, 40).unsqueeze(0)
    assert torch.equal(ours(ids).logits, theirs(ids).logits)
    before, after = AutoTokenizer.from_pretrained(shallow_model), AutoTokenizer.from_pretrained(out)
    turn = [{"role": "user", "content": "Rewrite: café, 3 < 4"}]
    assert after.apply_chat_template(turn, add_generation_prompt=True) == before.apply_chat_template(
        turn, add_generation_prompt=True
    )
    assert (after.eos_token_id, after.pad_token_id) == (before.eos_token_id, before.pad_token_id)
    generation = GenerationConfig.from_pretrained(out)
    assert generation.eos_token_id == GenerationConfig.from_pretrained(shallow_model).eos_token_id is not None
    assert not [path for path in out.iterdir() if path.suffix in (".pt", ".bin")], "nothing of the training is in it"


def test_an_untied_head_is_kept(tmp_path: Path, shallow_model: str) -> None:
    lm = AutoModelForCausalLM.from_pretrained(shallow_model, tie_word_embeddings=False)
    with torch.no_grad():
        lm.lm_head.weight = torch.nn.Parameter(lm.model.embed_tokens.weight.flip(0).clone())
    untied = tmp_path / "untied"
    shutil.copytree(shallow_model, untied)
    lm.save_pretrained(untied)
    assert main([str(untied), "--out", str(tmp_path / "out")]) == 0
    head = load_file(tmp_path / "out" / "model.safetensors")["lm_head.weight"]
    assert torch.equal(head, lm.lm_head.weight.to(torch.bfloat16))
    assert "A language model that rewrites" in (tmp_path / "out" / "README.md").read_text()


def test_the_card_tells_the_runs_figures_and_nothing_breaks_out_of_it(tmp_path: Path, shallow_model: str) -> None:
    run, out = run_of(tmp_path, shallow_model), tmp_path / "out"
    assert main([str(run / "checkpoints" / "step_000003"), "--out", str(out)]) == 0
    card = (out / "README.md").read_text()
    head, body = card.split("\n---\n", 1)
    assert head.count("base_model") == 1
    assert 'base_model: "some-org/base-model"' in head
    for told in (
        *("| steps | 3 |", "| task calls | 1,234 |", "| hours | 2.00 |", "| seed | 7 |", "checkpoint `step_000003`"),
        *(
            "| initial | 50.0 [40.0, 60.0] |",
            "| best | 75.0 [65.0, 85.0] |",
            "run `sst2 b`",
            "mean reward, last 3 steps",
        ),
        *("9 won, 1 lost, one-sided p 0.012: better, proven", "    Rewrite."),
    ):
        assert told in body, told
    for line in TEXT.splitlines():
        assert f"    {line}" in body.splitlines()
        assert line not in body.splitlines()
    assert str(tmp_path) not in card


def test_faults_are_one_message_and_leave_nothing(
    tmp_path: Path, shallow_model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run = run_of(tmp_path, shallow_model)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    damaged = tmp_path / "damaged"
    shutil.copytree(shallow_model, damaged)
    (damaged / "model.safetensors").write_bytes(b"cut")
    cases = [
        ([str(run), "--out", str(tmp_path / "full")], "nothing is written over"),
        ([str(tmp_path / "nowhere"), "--out", str(tmp_path / "out")], "neither a run folder"),
        ([str(damaged), "--out", str(tmp_path / "out")], "no causal language model"),
        ([str(run), "--out", "/proc/nowhere/out"], "cannot be written"),
    ]
    for arguments, said in cases:
        assert main(arguments) == 2
        assert said in capsys.readouterr().err
    (run / "checkpoints" / "step_000003" / "config.json").write_text("{}")
    assert main([str(run), "--out", str(tmp_path / "out")]) == 2
    assert "config.json has 2 bytes" in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["damaged", "full", "run"]


def push_command(run: Path, out: Path) -> list[str]:
    return [str(run), "--out", str(out), "--push-to-hub", "me/rewriter", "--revision", "v2"]


def test_a_push_sends_every_file_to_the_branch(
    tmp_path: Path, shallow_model: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run, out = run_of(tmp_path, shallow_model), tmp_path / "out"
    monkeypatch.setenv("HF_TOKEN", "hf_right")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DISABLE_XET", True)
    with HubServer() as hub:
        monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", hub.address)  # read at import
        assert main(push_command(run, out)) == 0
    stdout = capsys.readouterr().out
    assert f"pushed: {hub.address}/me/rewriter/commit/" in stdout
    assert ("POST", "/api/models/me/rewriter/branch/v2") in hub.asked
    assert {path for _, path in hub.files} >= {"model.safetensors", "README.md", "generation_config.json"}
    for (revision, path), content in hub.files.items():
        assert revision == "v2"
        assert content == (out / path).read_bytes(), path
    assert {path for _, path in hub.files} == {path.name for path in out.iterdir()}


def test_a_hub_that_refuses_is_told_before_the_model_is_read(tmp_path: Path, shallow_model: str) -> None:
    run, out = run_of(tmp_path, shallow_model), tmp_path / "out"
    with HubServer() as hub:
        environment = {"HF_ENDPOINT": hub.address, "HF_TOKEN": "hf_" + "wrong" * 7, "HF_HUB_DISABLE_XET": "1"}
        command = [sys.executable, "-m", "prewrite.export", *push_command(run, out)]
        code, stdout, stderr = finish(start(command, **environment), timeout=200)
    assert code == 2
    assert "--push-to-hub me/rewriter: " in stderr
    assert "401" in stderr
    assert "Look at the name, at HF_TOKEN" in stderr
    assert "wrong" not in stderr + stdout
    assert "Traceback" not in stderr
    assert not out.exists()

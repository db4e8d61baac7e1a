"""LoRA adapters: their settings and faults, merging, and peft's folders in and out. On ranks: test_ranks.py."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoTokenizer, GPT2Config, LlamaConfig, LlamaForCausalLM

from prewrite.config import LoraSettings, PolicySettings, TaskModelSettings, TrainingSettings
from prewrite.config.loading import load_config
from prewrite.engine import task_server
from prewrite.engine.adapter import Adapter, refuse_adapter, whole_weights
from prewrite.engine.deepspeed_config import refuse_no_bitsandbytes
from prewrite.errors import UserError
from prewrite.evaluation.arguments import parse_arguments
from prewrite.evaluation.setup import _model_len
from prewrite.export.__main__ import main as export
from prewrite.model_folder import adapter_base, refuse_no_model
from prewrite.rewrite import __main__ as rewrite_program
from prewrite.rewrite import command as rewrite_command
from prewrite.types import Sample
from tests.launching import SMALL, train_here, with_settings

QUICKSTART = Path("configs/quickstart.json")
IDS = torch.arange(3, 40).unsqueeze(0)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        (["policy.lora.r=0"], r"policy\.lora\.r: given 0"),
        (["policy.lora.alpha=0.5"], r"policy\.lora\.alpha: given 0\.5"),
        (["policy.lora.dropout=1"], r"policy\.lora\.dropout: given 1"),
        (["policy.lora.rank=8"], r"policy\.lora\.rank: unknown key"),
        (["policy.lora.lora_alpha=8"], r"policy\.lora\.lora_alpha: unknown key; here it is policy\.lora\.alpha"),
        (["policy.lora.target_modules=[]"], r"policy\.lora\.target_modules: given a list of 0"),
        (['policy.lora.target_modules=["all-linear", "q_proj"]'], "stands for all of them"),
        (['policy.lora={"target_modules": ["a"], "modules_to_save": ["a"]}'], "take one of the two"),
        (["policy.load_in_4bit=true"], "load_in_4bit without lora.*give policy.lora"),
        (["policy.load_in_4bit=true", "policy.lora={}", "zero_stage=3"], "load_in_4bit with zero_stage=3.*ZeRO-1"),
        (["policy.load_in_4bit=true", "policy.lora={}", "offload_optimizer=true"], "load_in_4bit with offload_opt"),
        (["policy.lora={}", "beta=0.1", "sync_ref_model=true"], "sync_ref_model with policy.lora"),
    ],
)
def test_settings_that_are_none_or_contradict_one_another(settings: list[str], told: str) -> None:
    with pytest.raises(UserError, match=told):
        load_config(QUICKSTART, settings)


def test_a_setting_of_the_adapter_makes_it() -> None:
    assert load_config(QUICKSTART).policy.lora is None
    assert load_config(QUICKSTART, ["policy.lora={}"]).policy.lora == LoraSettings()
    config = load_config(QUICKSTART, ["policy.lora.r=4", "alpha=8", "policy.lora.target_modules=all-linear"])
    assert config.policy.lora == LoraSettings(r=4, alpha=8)


@pytest.mark.parametrize(
    ("lora", "told"),
    [
        ({"target_modules": ["q_prj"]}, r"target_modules: 'q_prj' is no linear module .*did you mean q_proj\?.*o_proj"),
        ({"target_modules": ["self_attn"]}, "'self_attn' is a LlamaAttention, no linear module"),
        ({"target_modules": ["q_proj", "lm_head"]}, "'lm_head' is tied to the embedding"),
        ({"modules_to_save": ["lm_head"]}, "'lm_head' is tied to the embedding"),
        ({"modules_to_save": ["mlp"]}, "'mlp' is a LlamaMLP, no module with weights of its own"),
        ({"modules_to_save": ["embed_token"]}, r"did you mean embed_tokens\?"),
        ({"r": 577}, r"lora\.r: given 577; .* rank above 576, the smaller side of model\.layers\.0\.mlp\.down_proj"),
        (
            {"r": 200, "target_modules": ["k_proj"]},
            r"r: given 200; .* above 192, .* model\.layers\.0\.self_attn\.k_proj",
        ),
        ({"modules_to_save": ["norm"]}, r"'norm' is the end of model.layers.0.input_layernorm too: write model.norm"),
    ],
)
def test_modules_and_ranks_that_the_model_has_not_are_told_before_it_loads(
    lora: dict[str, Any], told: str, shallow_model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(AutoModelForCausalLM, "from_pretrained", None)
    with pytest.raises(UserError, match=told):
        refuse_adapter(PolicySettings(model=shallow_model, lora=LoraSettings(**lora)))
    whole = LoraSettings(r=576, modules_to_save=["model.norm", "k_proj"])
    refuse_adapter(PolicySettings(model=shallow_model, lora=whole))


def test_a_model_whose_layers_are_no_linear_modules_is_refused(tmp_path: Path) -> None:
    GPT2Config(n_layer=1, n_embd=8, n_head=2).save_pretrained(tmp_path)
    with pytest.raises(UserError, match="c_attn is a Conv1D"):
        refuse_adapter(PolicySettings(model=str(tmp_path), lora=LoraSettings()))


def test_a_weight_in_4_bits_is_not_trained_whole(shallow_model: str) -> None:
    pytest.importorskip("bitsandbytes", reason="requirements-qlora.txt")
    saves = LoraSettings(target_modules=["q_proj"], modules_to_save=["k_proj"])
    with pytest.raises(UserError, match="'k_proj' is a Linear, no module with weights of its own, not in 4 bits"):
        refuse_adapter(PolicySettings(model=shallow_model, lora=saves, load_in_4bit=True))


def test_what_needs_bitsandbytes_is_refused_in_words_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    whole, in_4_bits = PolicySettings(model="any"), PolicySettings(model="any", lora=LoraSettings(), load_in_4bit=True)
    plain, of_8_bits = TrainingSettings(max_steps=1), TrainingSettings(max_steps=1, optim="adamw_8bit")
    refuse_no_bitsandbytes(whole, plain)
    for settings, training, named in (
        (in_4_bits, plain, r"policy\.load_in_4bit:"),
        (whole, of_8_bits, r"training\.optim=adamw_8bit:"),
        (in_4_bits, of_8_bits, r"policy\.load_in_4bit and training\.optim=adamw_8bit:"),
    ):
        with pytest.raises(UserError, match=named + r" .*pip install -r requirements-qlora\.txt"):
            refuse_no_bitsandbytes(settings, training)


def test_the_program_ends_with_exit_code_2_and_one_message(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], shallow_model: str
) -> None:
    given = with_settings(f"output_dir={tmp_path}", f"policy.model={shallow_model}")
    assert train_here(*SMALL, *given, *with_settings('policy.lora.target_modules=["v_prj"]')) == 2
    out, err = capsys.readouterr()
    assert "did you mean v_proj?" in err
    assert "Traceback" not in err
    assert "starting a vLLM server" not in out
    assert list(tmp_path.iterdir()) == []


def small_model(**own: Any) -> Any:
    shape = {"hidden_size": 8, "intermediate_size": 12, "num_hidden_layers": 2, "num_attention_heads": 2}
    torch.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig(vocab_size=50, **shape, **own))


def test_a_merged_weight_by_hand_and_the_frozen_one_as_it_was() -> None:
    lm = small_model().to(torch.bfloat16)
    adapter = Adapter(lm, LoraSettings(r=1, alpha=2, target_modules=["q_proj"]), seed=1)
    layer = lm.model.layers[1].self_attn.q_proj
    base, a, b = layer.base_layer.weight, layer.lora_A["default"].weight, layer.lora_B["default"].weight
    assert {a.dtype, b.dtype} == {torch.bfloat16}, "all weights are of one type"
    for weight, value in ((base, -2.0), (a, 1 + 2**-6), (b, 1 + 2**-6)):
        weight.data.fill_(value)
    weights = {whole.name: whole for whole in whole_weights(lm)}
    assert list(weights) == [name for name, _ in small_model().named_parameters()]
    merged = weights["model.layers.1.self_attn.q_proj.weight"].value()
    # -2 + 2 / 1 x (1 + 2^-6)^2 = 2^-4 + 2^-11, which bfloat16 has; the product it has not, and would make 2^-4 of it.
    assert merged.dtype == torch.bfloat16
    assert merged.unique().tolist() == [2**-4 + 2**-11]
    assert base.unique().tolist() == [-2.0]
    assert len(adapter.trained) == 4
    untouched = weights["model.layers.0.mlp.down_proj.weight"]
    assert untouched.value().data_ptr() == untouched.parts[0].data_ptr(), "without a copy"


def test_adapters_begin_alike_with_a_seed_and_leave_the_generator_alone() -> None:
    models = [small_model() for _ in range(3)]
    state = torch.get_rng_state()
    adapters = [Adapter(lm, LoraSettings(), seed=seed) for lm, seed in zip(models, (1, 1, 2), strict=True)]
    assert torch.equal(torch.get_rng_state(), state)
    first, again, other = (adapter.initial for adapter in adapters)
    assert all(torch.equal(one, two) for one, two in zip(first, again, strict=True))
    assert not all(torch.equal(one, two) for one, two in zip(first, other, strict=True))


@pytest.fixture(params=["tied", "untied"])
def adapted(request: pytest.FixtureRequest, tmp_path: Path, shallow_model: str) -> tuple[Path, Path, torch.Tensor]:
    """A base model's folder, a run with a checkpoint of an adapter on it that was trained, and its logits (float32)."""
    base, run = tmp_path / "base", tmp_path / "run"
    tied = request.param == "tied"
    own = {} if tied else {"tie_word_embeddings": False}
    lm: Any = AutoModelForCausalLM.from_pretrained(shallow_model, dtype=torch.float32, **own)
    saved = ["embed_tokens"]
    if not tied:
        lm.lm_head.weight = torch.nn.Parameter(lm.model.embed_tokens.weight.detach().flip(0).clone())
        saved = ["lm_head", "model.norm"]
    lm.save_pretrained(base)
    AutoTokenizer.from_pretrained(shallow_model).save_pretrained(base)
    lm = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    assert (lm.lm_head.weight is lm.model.embed_tokens.weight) == tied
    before = lm(IDS).logits
    adapter = Adapter(lm, LoraSettings(r=2, alpha=8, modules_to_save=saved), seed=1)
    checkpoint = run / "checkpoints" / "step_000001"
    checkpoint.mkdir(parents=True)
    generator = torch.Generator().manual_seed(1)
    for weight in adapter.trained.values():
        weight.data += 0.02 * torch.randn(weight.shape, generator=generator)
    adapter.save(checkpoint, {name: weight.data for name, weight in adapter.trained.items()})
    AutoTokenizer.from_pretrained(shallow_model).save_pretrained(checkpoint)
    (checkpoint / "rank_00000.pt").touch()
    (run / "metrics.jsonl").write_text('{"step": 1, "reward_mean": 0.5}\n')
    logits = lm(IDS).logits
    assert (logits - before).abs().mean() > 0.1
    with adapter.off():
        torch.testing.assert_close(lm(IDS).logits, before)
    assert torch.equal(lm(IDS).logits, logits), "on again"
    assert {name for name, weight in lm.named_parameters() if weight.requires_grad} == {
        name.removeprefix("base_model.model.") for name in adapter.trained
    }
    return base, checkpoint, logits.detach()


def test_the_folder_loads_in_peft_with_equal_logits_and_goes_on(adapted: tuple[Path, Path, torch.Tensor]) -> None:
    import peft  # takes seconds, and every worker imports this file

    base, folder, logits = adapted
    theirs = peft.AutoPeftModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    torch.testing.assert_close(theirs(IDS).logits, logits, rtol=0, atol=1e-5)
    names = [name for name in load_file(folder / "adapter_model.safetensors") if "lora" not in name]
    lm: Any = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    saved = sorted({"model.norm"} if any("norm" in name for name in names) else set())
    saved += ["lm_head"] if saved else ["embed_tokens"]
    again = Adapter(lm, LoraSettings(r=2, alpha=8, modules_to_save=saved), seed=7, weights=folder)
    torch.testing.assert_close(lm(IDS).logits, logits, rtol=0, atol=0)
    first = list(again.trained).index("base_model.model.model.layers.0.self_attn.q_proj.lora_B.default.weight")
    assert not again.initial[first].any(), "what a reset goes back to is not the checkpoint"


def test_an_export_is_an_adapter_or_merged_the_whole_model(
    adapted: tuple[Path, Path, torch.Tensor], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import peft

    base, checkpoint, logits = adapted
    run, whole = checkpoint.parent.parent, tmp_path / "whole"
    assert export([str(checkpoint), "--out", str(tmp_path / "adapter")]) == 0
    names = {path.name for path in (tmp_path / "adapter").iterdir()}
    assert names >= {"adapter_config.json", "adapter_model.safetensors", "tokenizer.json", "README.md"}
    assert "rank_00000.pt" not in names
    card = (tmp_path / "adapter" / "README.md").read_text()
    assert 'library_name: "peft"' in card
    theirs = peft.AutoPeftModelForCausalLM.from_pretrained(tmp_path / "adapter", dtype=torch.float32)
    torch.testing.assert_close(theirs(IDS).logits, logits, rtol=0, atol=1e-5)

    assert export([str(checkpoint), "--out", str(whole), "--merge"]) == 0
    assert not (whole / "adapter_config.json").exists()
    merged, told = AutoModelForCausalLM.from_pretrained(whole, dtype=torch.float32, output_loading_info=True)
    assert not told["missing_keys"]
    assert {weight.dtype for weight in load_file(whole / "model.safetensors").values()} == {torch.bfloat16}
    # Merged in float32 and rounded once, as the push does it.
    lm: Any = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    saved = ["embed_tokens"] if lm.config.tie_word_embeddings else ["lm_head", "model.norm"]
    Adapter(lm, LoraSettings(r=2, alpha=8, modules_to_save=saved), seed=1, weights=checkpoint)
    pushed = {weight.name: weight.value().to(torch.bfloat16).float() for weight in whole_weights(lm)}
    found = dict(merged.named_parameters())
    assert set(found) == set(pushed)
    assert max(float((found[name] - weight).abs().max() / weight.abs().max()) for name, weight in pushed.items()) < 5e-3
    assert (merged(IDS).logits - logits).abs().mean() < 0.1
    assert export([str(base), "--out", str(tmp_path / "no"), "--merge"]) == 2
    assert "holds no adapter" in capsys.readouterr().err
    assert run.is_dir()


def test_a_rewriter_that_is_an_adapter_is_merged_in_the_runs_own_type(
    adapted: tuple[Path, Path, torch.Tensor], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """vLLM is handed a model folder as any other; that it rewrites with one is tested elsewhere."""
    _, checkpoint, logits = adapted
    settings = json.loads(QUICKSTART.read_text())
    settings["policy"] |= {"dtype": "float32", "lora": {}}
    (checkpoint.parent.parent / "config.json").write_text(json.dumps(settings))
    found: list[Any] = []

    class Stub:
        def __init__(self, policy: PolicySettings, *others: Any, seed: int):
            lm: Any = AutoModelForCausalLM.from_pretrained(policy.model, dtype="auto")
            found.extend([policy.model, lm(IDS).logits])

        def sample(self, requests: list, counts: list, greedy: bool) -> list:
            return [[Sample((), (), (), "Positive or negative?", "stop")]]

        def close(self) -> None:
            pass

    monkeypatch.setattr(rewrite_command, "Sampler", Stub)
    out = tmp_path / "out.jsonl"
    given = ["--rewriter", str(checkpoint), "--instructions", "Classify the sentiment.", "--out", str(out)]
    assert rewrite_program.main(given) == 0
    folder, found_logits = found
    torch.testing.assert_close(found_logits, logits, rtol=0, atol=1e-4)
    assert not Path(folder).exists(), "it lasts as long as it is needed"
    assert json.loads(out.read_text())["instruction"] == "Positive or negative?"


def test_a_server_for_an_adapter_serves_the_merged_model_under_the_adapters_name(
    adapted: tuple[Path, Path, torch.Tensor], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, checkpoint, _ = adapted
    started: list[list[str]] = []

    def start(command: list[str], **_: Any) -> None:
        started.append(command)
        assert (Path(command[command.index("--model") + 1]) / "config.json").is_file()
        raise UserError("seen")

    monkeypatch.setattr(task_server, "start_guarded", start)
    server = task_server.TaskServer(TaskModelSettings(model=str(checkpoint)), log_path=tmp_path / "log")
    with pytest.raises(UserError, match="seen"), server:
        pass
    (command,) = started
    assert command[command.index("--served-model-name") + 1] == str(checkpoint)
    assert not Path(command[command.index("--model") + 1]).exists()
    assert _model_len(parse_arguments(["--model", str(checkpoint)])) is None


@pytest.mark.parametrize(
    ("config", "told"),
    [
        (
            '{"base_model_name_or_path": "nowhere/at/all"}',
            "is an adapter, and its base model 'nowhere/at/all': no such",
        ),
        ('{"base_model_name_or_path": null}', "base_model_name_or_path is None"),
        ("{", "no JSON that names base_model_name_or_path"),
    ],
)
def test_an_adapter_without_its_base_is_told(
    config: str, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "adapter"
    folder.mkdir()
    (folder / "adapter_config.json").write_text(config)
    out = ["--out", str(tmp_path / "out.jsonl")]
    assert rewrite_program.main(["--rewriter", str(folder), "--instructions", "Do it.", *out]) == 2
    assert told in capsys.readouterr().err


def test_an_adapter_of_another_model_is_not_merged_in_part(
    adapted: tuple[Path, Path, torch.Tensor], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, checkpoint, _ = adapted
    file = checkpoint / "adapter_model.safetensors"
    weights = load_file(file)
    of_more_layers = {name.replace("layers.0.", "layers.7."): weight.clone() for name, weight in weights.items()}
    of_other_names = {name.replace("model.layers.", "transformer.h."): weight for name, weight in weights.items()}
    for held in (weights | of_more_layers, of_other_names):
        save_file(held, file)
        assert export([str(checkpoint), "--out", str(tmp_path / "whole"), "--merge"]) == 2
        assert re.search(r"another model: \d+ weights are in one alone, as \S+lora_A", capsys.readouterr().err)
    save_file({name: weight.repeat(*[1] * (weight.dim() - 1), 2) for name, weight in weights.items()}, file)
    assert export([str(checkpoint), "--out", str(tmp_path / "whole"), "--merge"]) == 2
    assert "size mismatch" in capsys.readouterr().err
    assert not (tmp_path / "whole").exists()


def test_a_policy_that_is_an_adapter_is_told_the_way(tmp_path: Path) -> None:
    (tmp_path / "adapter_config.json").write_text('{"base_model_name_or_path": "some/base"}')
    assert adapter_base(str(tmp_path)) == "some/base"
    with pytest.raises(UserError, match=r"an adapter on 'some/base', and a whole model is wanted: .*export .* --merge"):
        refuse_no_model("policy.model", str(tmp_path))

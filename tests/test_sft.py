"""SFT: which rows are read and refused, packed against padded rows, the loop, and a whole run."""

import contextlib
import json
import logging
import shutil
from array import array
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from transformers import AutoModelForCausalLM, LlamaConfig

from prewrite import plugins
from prewrite.algorithm.batching import collate_rows
from prewrite.config import Config, LossSettings, TrainingSettings
from prewrite.config.loading import dump_config, load_config, make_config
from prewrite.engine.distributed import World
from prewrite.engine.length import refuse_too_long
from prewrite.engine.policy import LogprobModel
from prewrite.errors import UserError
from prewrite.export.card import model_card
from prewrite.plugins import TooSlow
from prewrite.report.folder import read_folder
from prewrite.report.page import write_report
from prewrite.reporting.journal import Journal
from prewrite.tasks.chats import read_chats
from prewrite.tasks.check import check
from prewrite.training import engines
from prewrite.training.callbacks import EarlyStopping
from prewrite.training.objectives.solve_data import load_problems
from prewrite.training.progress import Progress
from prewrite.training.sft import SFTTrainer, SFTUpdater
from prewrite.training.sft_data import SFTStage, load_sft_stage, rewrites_of
from prewrite.types import TokenRow
from tests.launching import train_here
from tests.test_chat_template import tokenizer
from tests.their_files import open_r1

CPU = torch.device("cpu")
CHAT = (
    "{% for m in messages %}<turn>{{ m['role'][0] }}{{ m['content'] }}</turn>{% endfor %}"
    "{% if add_generation_prompt %}<turn>a{% endif %}"
)
SHAPE = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": 132,
}


@pytest.fixture(scope="module", autouse=True)
def _world() -> Iterator[None]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def config(tmp_path: Path, *overrides: str, **sections: Mapping[str, Any]) -> Config:
    whole: dict[str, Any] = {
        "method": "sft",
        "output_dir": str(tmp_path),
        "policy": {"model": "policy"},
        "data": {"chats": str(tmp_path / "rows.jsonl"), "dev_size": 2},
        "training": {"max_steps": 1, "per_device_train_batch_size": 2},
    }
    for section, settings in sections.items():
        whole[section] = {**whole.get(section, {}), **settings}
    return make_config(whole, overrides, "config")


def write_rows(tmp_path: Path, *rows: object) -> Path:
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def pairs(count: int) -> list[dict[str, str]]:
    return [{"prompt": f"say {number}", "completion": f"{number}{number}"} for number in range(count)]


def text_of(row: TokenRow) -> str:
    return "".join(tokenizer(CHAT).convert_ids_to_tokens(list(row.token_ids)))


def trained_text_of(row: TokenRow) -> str:
    ids = [token for token, on in zip(row.token_ids, row.is_trained, strict=True) if on]
    return "".join(tokenizer(CHAT).convert_ids_to_tokens(ids))


def loaded(settings: Config) -> SFTStage:
    return load_sft_stage(settings, tokenizer(CHAT))


# --- settings ---


@pytest.mark.parametrize(
    ("section", "settings", "words"),
    [
        ("loss", {"beta": 0.1}, r"loss\.beta is not read by method=sft"),
        ("rollout", {"temperature": 0.7}, r"rollout\.temperature is not read by method=sft"),
        ("reward", {"examples_per_rewrite": 3}, r"reward\.examples_per_rewrite is not read by method=sft"),
        ("training", {"max_steps": 0}, "no steps with method=sft: nothing would be learned"),
        ("training", {"num_iterations": 2}, r"training\.num_iterations is not read by method=sft"),
        ("data", {"instruction_suffix": "x"}, r"data\.instruction_suffix is read with data\.tasks alone"),
        ("sft", {"completion": "x {answer}"}, r"sft\.completion is read with data\.tasks alone"),
        ("sft", {"completion": "x"}, r"`completion` 'x' holds neither \{solution\} nor \{answer\}"),
        ("sft", {"completion": "{soluton} {answer}"}, r"\{soluton\} stands for nothing; did you mean \{solution\}\?"),
        ("data", {"tasks": ["sst2"]}, "in SFT `tasks`, `chats` or `hub`: one of them"),
        ("data", {"chats": None, "instructions_file": "x"}, r"data\.instructions_file is not read by method=sft"),
        ("data", {"chats": None, "tasks": ["sst2"], "eval_chats": "x"}, "`eval_chats`, where .* leave it out"),
    ],
)
def test_settings_that_sft_does_not_read_are_refused(tmp_path: Path, section: str, settings: dict, words: str) -> None:
    with pytest.raises(UserError, match=words):
        config(tmp_path, **{section: settings})


def test_a_run_of_sft_is_one_stage_and_grpo_reads_no_settings_of_it(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="num_stages is not read by method=sft: a run of SFT is one stage"):
        config(tmp_path, "num_stages=2")
    with pytest.raises(UserError, match=r"sft\.top_rewrites is read with data\.chats, a run folder, alone"):
        config(tmp_path, "top_rewrites=9", data={"chats": None, "tasks": ["arithmetic"]})
    with pytest.raises(UserError, match=r"sft\.max_length is read by method=sft alone, and this is grpo"):
        load_config("configs/quickstart.json", ["max_length=3"])
    with pytest.raises(UserError, match=r"data\.chats is read by method=sft alone, and this is grpo"):
        load_config("configs/quickstart.json", ["chats=x", "data.tasks=[]"])


def test_no_sampler_and_no_task_server_is_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("it is started")

    for name in ("Sampler", "TaskServer"):
        monkeypatch.setattr(engines, name, refuse)
    monkeypatch.setattr(engines.TaskModel, "probe", refuse)
    monkeypatch.setattr(engines, "Policy", lambda *_, **__: "the policy")
    with engines.open_engines(config(tmp_path), World(0, 1, CPU), None, ()) as opened:
        assert (opened.policy, opened.sampler) == ("the policy", None)


# --- rows ---


def test_rows_are_read_from_every_kind_of_file_and_mean_the_same(tmp_path: Path) -> None:
    said = [("say 0", "00"), ("say 1", "11")]
    chats = [
        {"messages": [{"role": "user", "content": a}, {"role": "assistant", "content": b, "tool_calls": None}]}
        for a, b in said
    ]
    (tmp_path / "a.csv").write_text("prompt,completion\n" + "".join(f"{a},{b}\n" for a, b in said))
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(chats), tmp_path / "a.parquet")
    turns = [{"prompt": row["messages"][:1], "completion": row["messages"][1:]} for row in chats]
    settings = config(tmp_path).data
    paths = [tmp_path / "a.csv", tmp_path / "a.parquet"]
    found = [[chat.turns for chat in read_chats(path, settings)] for path in paths]
    found += [[chat.turns for chat in read_chats(write_rows(tmp_path, *rows), settings)] for rows in (chats, turns)]
    assert found == [found[0]] * 4
    assert [[(turn.role, turn.content) for turn in turns] for turns in found[0]] == [
        [("user", a), ("assistant", b)] for a, b in said
    ]


@pytest.mark.parametrize("system", [None, "S"])
def test_of_a_prompt_that_is_a_chat_nothing_is_trained(tmp_path: Path, system: str | None) -> None:
    said = [{"role": role, "content": role[0] + "1"} for role in ("user", "assistant", "user")]
    rows: list[dict[str, Any]] = [{"prompt": said, "completion": str(number)} for number in range(2)]
    rows.append({"prompt": said[:2], "completion": [said[2], {"role": "assistant", "content": "2"}]})
    rows.append({"messages": [*said, {"role": "assistant", "content": "3"}]})
    write_rows(tmp_path, *rows)
    stage = loaded(config(tmp_path, rollout={"system_prompt": system}))
    trained = sorted(trained_text_of(row) for row in (*stage.train, *stage.held_out))
    assert trained == ["0</turn>", "1</turn>", "2</turn>", "a1</turn>3</turn>"]


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"text": "x"}, r"row 2: a row has `messages`, or `prompt` and `completion`, one of the two; .* has text"),
        ({"messages": [], "prompt": "x"}, "one of the two"),
        ({"prompt": "x"}, "row 2: completion is None; it must be a text or a list of turns"),
        ({"prompt": None, "completion": "x"}, r"row 2: a row has .*, one of the two; this one has completion\.$"),
        ({"prompt": "x", "completion": 3}, "completion is 3; it must be a text"),
        ({"messages": "x"}, "messages is 'x'; it must be a list of turns"),
        ({"messages": [{"role": "user"}]}, "messages is {'role': 'user'}; it must have a role and a content"),
        ({"messages": [{"role": "user", "content": [{"text": "x"}]}]}, "both texts"),
        ({"messages": [{"role": "user", "content": "x"}]}, 'no turn of the role "assistant"'),
        ({"messages": [{"role": "assistant", "content": "x"}]}, "the assistant speaks first"),
        ({"prompt": "x", "completion": " "}, "completion: it has no words"),
        (
            {"prompt": "x", "completion": [{"role": "assistant", "content": "x", "tool_calls": [1]}]},
            "it has tool_calls, which is not read here",
        ),
        ({"prompt": "\ud800", "completion": "x"}, "half a character"),
    ],
)
def test_a_bad_row_is_told_with_its_file_and_number(tmp_path: Path, row: dict, words: str) -> None:
    path = write_rows(tmp_path, *pairs(1), row, *pairs(1))
    with pytest.raises(UserError, match=words) as told:
        read_chats(path, config(tmp_path).data)
    assert str(told.value).startswith(f"{path}: row 2")


def test_every_bad_row_is_in_one_message_before_a_model_loads(
    tmp_path: Path, shallow_model: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    dist.destroy_process_group()  # a run makes its own
    rows = [*pairs(3), {"prompt": "x"}, *[{"prompt": 3}] * 20]
    settings = {"chats": str(write_rows(tmp_path, *rows)), "dev_size": 1}
    file = tmp_path / "config.json"
    whole = {"method": "sft", "policy": {"model": shallow_model}, "data": settings, "training": {"max_steps": 1}}
    file.write_text(json.dumps(whole))
    try:
        monkeypatch.setattr("prewrite.engine.policy.load_lm", lambda _: pytest.fail("the model is loaded"))
        assert train_here("--config", str(file), "--set", f"output_dir={tmp_path}") == 2
    finally:
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    told = capsys.readouterr().err
    assert told.count("rows.jsonl: row ") == 12
    assert "rows.jsonl: row 4: completion is None" in told
    assert "and 9 faults more." in told
    assert not (tmp_path / "run").exists()


def test_a_fault_of_the_template_is_told_once_and_one_without_end_at_the_first_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_rows(tmp_path, *pairs(9))
    with pytest.raises(
        UserError, match=r"rows\.jsonl: row 1: the chat template .* UndefinedError.*\nSo it is with all 9"
    ):
        load_sft_stage(config(tmp_path), tokenizer("{{ messages[9]['content'] + 'x' }}"))
    monkeypatch.setattr(plugins, "_TEMPLATE_SECONDS", 0.2)
    loops = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
    with pytest.raises(
        TooSlow, match=r"rows\.jsonl: row 1: the chat template of policy\.model: it takes more than 0\.2"
    ):
        load_sft_stage(config(tmp_path), tokenizer(loops))


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        (
            {"method": "sft", "sft": {"max_length": 8193}},
            r"^sft\.max_length = 8193: policy\.model '.*' takes 8192 tokens",
        ),
        ({"method": "sft", "sft": {"max_length": 8192}}, ""),
        (
            {"objective": "solve", "rollout": {"max_prompt_length": 8000, "max_completion_length": 193}},
            r"^rollout\.max_prompt_length \+ max_completion_length = 8193: policy\.model '.*' takes 8192 tokens",
        ),
        ({"objective": "solve", "rollout": {"max_prompt_length": 8000, "max_completion_length": 192}}, ""),
    ],
)
def test_texts_longer_than_the_model_takes_are_refused_before_it_loads(
    shallow_model: str, settings: dict[str, Any], told: str
) -> None:
    whole = {"policy": {"model": shallow_model}, "data": {"tasks": ["arithmetic"]}, "training": {"max_steps": 1}}
    with pytest.raises(UserError, match=told) if told else contextlib.nullcontext():
        refuse_too_long(make_config(whole | settings, (), "config"))


def test_the_check_of_a_configs_data_reads_its_chats(tmp_path: Path, shallow_model: str) -> None:
    write_rows(tmp_path, *pairs(3))
    other = tmp_path / "eval.jsonl"
    other.write_text('{"prompt": "x"}\n')
    data = {"eval_chats": str(other)}
    told, faults = check(config(tmp_path, policy={"model": shallow_model}, data=data))
    assert told == [f"{tmp_path / 'rows.jsonl'}: 3 chats"]
    assert [fault.partition("; it must")[0] for fault in faults] == [f"{other}: row 1: completion is None"]


def test_rows_that_are_all_empty_are_told_by_the_filter_that_left_them_out(tmp_path: Path) -> None:
    path = write_rows(tmp_path, {"prompt": "x", "completion": ""})
    with pytest.raises(UserError, match=r"rows\.jsonl: 0 rows\. .* the filter data\.empty drop removed every row"):
        read_chats(path, config(tmp_path, data={"empty": "drop"}).data)


def test_empty_and_long_rows_are_refused_or_left_out_and_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    long = {"prompt": "say 9", "completion": "9" * 50}
    write_rows(tmp_path, *pairs(5), {"prompt": "x", "completion": ""}, long)
    limit = {"max_length": 40}
    with pytest.raises(UserError, match="row 6: completion: it has no words"):
        loaded(config(tmp_path, sft=limit))
    with pytest.raises(
        UserError, match=r"row 7: it has 61 tokens; sft\.max_length is 40: raise it, or set data\.too_lo"
    ):
        loaded(config(tmp_path, sft=limit, data={"empty": "drop"}))
    with caplog.at_level(logging.WARNING):
        stage = loaded(config(tmp_path, sft=limit, data={"empty": "drop", "too_long": "drop"}))
    assert "data.empty drop: 1 of 7 rows left out" in caplog.text
    assert "data.too_long drop: 1 of 6 rows are longer than sft.max_length 40" in caplog.text
    assert sorted(map(text_of, (*stage.train, *stage.held_out))) == [
        f"<turn>usay {n}</turn><turn>a{n}{n}</turn>" for n in range(5)
    ]


def test_rows_are_held_out_by_seed_or_file_apart_from_the_others_and_capped(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_rows(tmp_path, *pairs(10), *pairs(2))
    stages = [loaded(config(tmp_path, f"seed={seed}")) for seed in (1, 1, 2)]
    first, again, other = ([*map(text_of, stage.held_out)] for stage in stages)
    assert first == again != other
    for stage in stages:
        assert not {*map(text_of, stage.held_out)} & {*map(text_of, stage.train)}
    eval_file = tmp_path / "eval.jsonl"
    eval_file.write_text("".join(json.dumps(row) + "\n" for row in pairs(4)[2:]))
    settings = {"eval_chats": str(eval_file), "max_train_rows": 7}
    stage = loaded(config(tmp_path, data=settings, rollout={"system_prompt": "S"}))
    assert [*map(text_of, stage.held_out)] == [
        f"<turn>sS</turn><turn>usay {n}</turn><turn>a{n}{n}</turn>" for n in (2, 3)
    ]
    assert len(stage.train) == 7
    assert "2 of 12 rows are also held out: left out of training" in caplog.text
    with pytest.raises(UserError, match=r"data\.dev_size=12 rows are to be held out, and there are 12"):
        loaded(config(tmp_path, "data.dev_size=12"))


def test_a_tasks_solutions_are_imitated_as_solving_asks_for_them(tmp_path: Path) -> None:
    data = {"chats": None, "tasks": ["arithmetic"], "dev_size": 20, "instruction_suffix": "Go.", "max_train_rows": 9}
    stage = loaded(config(tmp_path, data=data, sft={"completion": "({solution}) \\boxed{{answer}}"}))
    assert (len(stage.train), len(stage.held_out)) == (9, 20)
    rows = [json.loads(line) for line in Path("prewrite/tasks/data/arithmetic_train.jsonl").read_text().splitlines()]
    expected = {
        f"<turn>u{row['problem']}\nGo.</turn><turn>a({row['solution']}) \\boxed{{{row['answer']}}}</turn>"
        for row in rows
    }
    assert {*map(text_of, (*stage.train, *stage.held_out))} <= expected
    asked, _ = load_problems(config(tmp_path, data=data), tokenizer(CHAT))
    for problem, row in zip(asked, stage.train, strict=True):
        assert list(row.token_ids)[: row.is_trained.index(1)] == list(problem.request), "SFT reads what GRPO asks"
    with pytest.raises(
        UserError, match=r"sentiment: problem .*: it has no solution, and sft\.completion is '{solution}'"
    ):
        loaded(config(tmp_path, data={"chats": None, "tasks": ["sentiment"]}))


def test_the_best_rewrites_of_a_run_are_answers_to_its_own_requests(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "earlier"
    folder.mkdir()
    meta = ["rollout.meta_instruction=Make it better.", "rollout.system_prompt=S"]
    (folder / "config.json").write_text(dump_config(load_config("configs/quickstart.json", meta)))
    log = [
        {"dataset_name": task, "row": task, "instruction": f"{task}?", "rewrite": text, "reward": reward}
        for task in ("sentiment", "sst2")
        for text, reward in (("poor", 0.1), ("good", 0.9), ("judged", 0.5), (f"{task}?", 0.4), ("", 0.0))
    ]
    (folder / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in log))
    judged = {"task": "sentiment", "row": "sentiment", "rewrite": "judged", "score": 0.8, "n": 9, "role": "greedy"}
    (folder / "dev.jsonl").write_text(json.dumps(judged) + "\n")
    best = {"sst2": {"task": "sst2", "instruction": "sst2?", "baseline": {"instruction": "sst2?"}}}
    (folder / "best.json").write_text(json.dumps(best))
    chats = rewrites_of(folder, 2)
    assert [[(turn.role, turn.content) for turn in chat.turns] for chat in chats] == [
        [("system", "S"), ("user", "Make it better.\n\nsentiment?"), ("assistant", text)] for text in ("judged", "good")
    ]
    assert "sst2: no rewrite is better than 'sst2?': left out" in caplog.text
    stage = loaded(config(tmp_path, data={"chats": str(folder), "dev_size": 1}, sft={"top_rewrites": 3}))
    texts = {text_of(row) for row in (*stage.train, *stage.held_out)}
    head = "<turn>sS</turn><turn>uMake it better.\n\nsentiment?</turn><turn>a"
    assert texts == {f"{head}{text}</turn>" for text in ("judged", "good", "poor")}


def test_a_run_of_solving_has_no_rewrites_to_imitate(tmp_path: Path, shallow_model: str) -> None:
    folder = tmp_path / "earlier"
    folder.mkdir()
    shutil.copyfile("configs/solve_tiny.json", folder / "config.json")
    (folder / "log.jsonl").write_text('{"step": 1, "problem": "sum-1", "rewrite": "so 3", "reward": 1.0}\n' * 3)
    settings = config(tmp_path, policy={"model": shallow_model}, data={"chats": str(folder), "dev_size": 1})
    with pytest.raises(
        UserError, match=r"earlier: a run that wrote no rewrites, as one of solving: .*prewrite\.generate"
    ):
        loaded(settings)
    assert [fault.partition(",")[0] for fault in check(settings)[1]] == [f"{folder}: a run that wrote no rewrites"]


# --- loss and gradient ---


class PlainPolicy:
    """A policy's part in an update, in plain torch: it adds gradients up over micro-batches, and steps."""

    def __init__(self, attention: str = "packed", rank: int = 0, size: int = 1, dropout: float = 0.0):
        torch.manual_seed(0)
        shape = LlamaConfig(num_key_value_heads=2, attention_dropout=dropout, **SHAPE)
        lm = AutoModelForCausalLM.from_config(shape, attn_implementation=attention, dtype=torch.float32)
        self.lm, self.world = lm, World(rank, size, CPU)
        self.model = LogprobModel(lm, temperature=1.0, chunk_tokens=16)
        self.computes_padding = attention != "packed"
        self.optimizer = torch.optim.AdamW(lm.parameters())

    def logprobs(self, batch, num_chunks: int, *, entropy_grad: bool = False):
        return self.model(batch, num_chunks, entropy_grad)

    def backward(self, loss: torch.Tensor, *, last: bool) -> None:
        loss.backward()

    def step(self, learning_rate: float) -> float:
        self.gradients = [weight.grad.clone() for weight in self.lm.parameters()]
        self.optimizer.param_groups[0]["lr"] = learning_rate
        self.optimizer.step()
        self.optimizer.zero_grad()
        return float(torch.cat([one.flatten() for one in self.gradients]).norm())


def rows_of_many_lengths() -> list[TokenRow]:
    """Chats of one and of several answers."""
    torch.manual_seed(1)
    rows = []
    for parts in ((3, 5), (1, 1), (7, 2, 4, 3), (2, 9)):
        trained = b"".join(bytes([place % 2]) * length for place, length in enumerate(parts))
        rows.append(TokenRow(array("i", torch.randint(1, 132, (len(trained),)).tolist()), trained))
    return rows


def one_step(policy: PlainPolicy, rows: list[TokenRow], **training: Any) -> tuple[float, list[torch.Tensor]]:
    settings = TrainingSettings(max_steps=1, logprob_chunk_tokens=16, **training)
    updater = SFTUpdater(policy, None, LossSettings(), settings, max_completion_length=8, rollouts_per_step=len(rows))  # type: ignore[arg-type]
    (update,) = updater.updates(collate_rows(rows, pad_token_id=0), lambda: 0.0, 1)
    return update.metrics["loss"], policy.gradients


def plain_loss(rows: Sequence[TokenRow]) -> tuple[float, list[torch.Tensor]]:
    """The mean of -log p over all trained tokens, and its gradient, by transformers' own forward, row by row."""
    lm, total = PlainPolicy("eager").lm, torch.zeros(())
    for row in rows:
        ids = torch.tensor(list(row.token_ids))
        labels = torch.where(torch.tensor(list(row.is_trained)).bool(), ids, -100)[1:]
        total = total + F.cross_entropy(lm(ids[None]).logits[0, :-1], labels, reduction="sum")
    loss = total / sum(sum(row.is_trained) for row in rows)
    loss.backward()
    return float(loss.detach()), [weight.grad for weight in lm.parameters()]


def test_packed_rows_give_the_loss_and_gradient_of_each_row_by_itself() -> None:
    """And those of transformers' own forward."""
    rows = rows_of_many_lengths()
    packed_loss, packed = one_step(PlainPolicy(), rows, max_tokens_per_micro_batch=64)
    loss, gradients = one_step(PlainPolicy("eager"), rows, per_device_train_batch_size=1)
    two, of_two = one_step(PlainPolicy(), rows, max_tokens_per_micro_batch=20)
    assert (packed_loss, two) == pytest.approx((loss, loss), abs=1e-4)
    torch.testing.assert_close(packed, gradients, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(of_two, gradients, rtol=1e-4, atol=1e-4)
    of_transformers, plain = plain_loss(rows)
    assert loss == pytest.approx(of_transformers, abs=1e-4)
    torch.testing.assert_close(gradients, plain, rtol=1e-4, atol=1e-4)


def test_a_row_does_not_see_the_others_of_its_pack() -> None:
    rows, policy = rows_of_many_lengths(), PlainPolicy()
    other = TokenRow(type(rows[0].token_ids)("i", [9] * len(rows[0].token_ids)), rows[0].is_trained)
    found = [policy.logprobs(collate_rows(pack, pad_token_id=0), 3)[0] for pack in (rows, [other, *rows[1:]])]
    torch.testing.assert_close(found[0][1:], found[1][1:], rtol=0, atol=1e-6)
    assert not torch.allclose(found[0][0], found[1][0])


def test_the_shares_of_two_ranks_add_up_to_the_step() -> None:
    rows = rows_of_many_lengths()
    whole, gradients = one_step(PlainPolicy(), rows, per_device_train_batch_size=1)
    shares = [one_step(PlainPolicy(rank=rank, size=2), rows, per_device_train_batch_size=1) for rank in (0, 1)]
    assert sum(loss for loss, _ in shares) == pytest.approx(whole, abs=1e-5)
    added = [a + b for a, b in zip(*(gradient for _, gradient in shares), strict=True)]
    torch.testing.assert_close(added, gradients, rtol=1e-4, atol=1e-5)


# --- the loop ---


def trainer(
    settings: Config, progress: Progress, policy: PlainPolicy, *callbacks: Any, start: Any = "new"
) -> SFTTrainer:
    opened = SimpleNamespace(
        world=policy.world,
        policy=policy,
        sampler=None,
        reference=None,
        tokenizer=SimpleNamespace(pad_token_id=0),
        journal=Journal(settings, start),
        generators=None,
        opened=0.0,
    )
    return SFTTrainer(loaded(settings), opened, progress, callbacks)  # type: ignore[arg-type]


def lines(settings: Config) -> list[dict[str, Any]]:
    path = Path(settings.output_dir, settings.run_name, "metrics.jsonl")
    found = [json.loads(line) for line in path.read_text().splitlines()]
    return [{key: value for key, value in line.items() if "second" not in key} for line in found]


def test_the_held_out_loss_is_looked_at_before_during_and_after_and_falls(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_rows(tmp_path, *[row | {"completion": "yes"} for row in pairs(10)])
    training = {"max_steps": None, "num_train_epochs": 5, "learning_rate": 0.01}
    settings = config(tmp_path, "eval_steps=8", training=training)
    totals = trainer(
        settings, Progress(), PlainPolicy(), EarlyStopping(1, 0.0)
    ).run()  # which a falling loss is no case of
    steps = lines(settings)
    assert totals["steps"] == 20, "8 rows, 2 a step, 5 passes"
    assert [line["step"] for line in steps] == [*range(21)]
    assert [line["step"] for line in steps if "dev_loss" in line] == [0, 8, 16, 20]
    assert steps[0]["dev_loss"] == pytest.approx(plain_loss(loaded(settings).held_out)[0], abs=1e-5)
    assert steps[-1]["dev_loss"] < steps[0]["dev_loss"] - 0.5
    assert (steps[4]["epoch"], steps[20]["epoch"]) == (1.0, 5.0)
    assert {"loss", "grad_norm", "learning_rate", "tokens", "entropy"} <= set(steps[1])
    told = capsys.readouterr().out
    assert f"loss of 2 held-out rows: {steps[0]['dev_loss']:.4f} before, {steps[20]['dev_loss']:.4f} after" in told
    assert f"before training, on held-out examples: loss {steps[0]['dev_loss']:.3f}" in told
    assert "step 20/20 | epoch 5.00 | loss " in told
    assert "reward" not in told
    card = model_card("tuned", "step_000020", read_folder(Path(settings.output_dir, settings.run_name)))
    losses = f"{steps[0]['dev_loss']:.3f}, {steps[20]['dev_loss']:.3f}"
    assert f"| held-out loss, before and after | {losses} |" in card
    assert "rewrite" not in card.replace("prewrite", "")
    page = write_report([Path(settings.output_dir, settings.run_name)]).read_text(encoding="utf-8")
    assert "Held-out loss" in page
    assert "There is no best.json yet" not in page


def test_a_look_is_taken_without_dropout_and_training_goes_on_with_it(tmp_path: Path) -> None:
    write_rows(tmp_path, *pairs(6))
    policy = PlainPolicy("eager", dropout=0.5)
    policy.model.train()
    looks = [trainer(config(tmp_path, f"run_name=look{number}"), Progress(), policy)._look() for number in (1, 2)]
    assert looks[0] == looks[1]
    assert policy.model.training


def test_a_run_goes_on_with_the_rows_that_were_next(tmp_path: Path) -> None:
    write_rows(tmp_path, *pairs(9))
    whole, cut = (
        config(tmp_path, f"run_name={name}", "max_steps=6", "learning_rate=0.01") for name in ("whole", "cut")
    )
    trainer(whole, Progress(), PlainPolicy()).run()
    policy = PlainPolicy()
    first = trainer(cut, Progress(), policy)
    first.total_steps = 3
    first.run()
    progress = Progress.from_json(first.progress.to_json())
    trainer(cut, progress, policy, start="resume").run()
    kept = [line for line in lines(cut) if not (line["step"] == 3 and "dev_loss" in line)]
    assert kept == [line for line in lines(whole) if line["step"] != 3]


def test_early_stopping_watches_the_held_out_loss(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_rows(tmp_path, *pairs(9))
    settings = config(tmp_path, "max_steps=30", "eval_steps=1", "learning_rate=1e-9", "early_stopping_patience=3")
    stopping = EarlyStopping(3, 0.01)
    trainer(settings, Progress(), PlainPolicy(), stopping).run()
    assert lines(settings)[-1]["step"] == 3
    first = lines(settings)[0]["dev_loss"]
    assert f"3 looks running brought nothing better than {first:.3f}" in capsys.readouterr().out


def test_a_row_whose_loss_is_not_finite_stops_the_run(tmp_path: Path) -> None:
    policy, rows = PlainPolicy(), rows_of_many_lengths()
    with torch.no_grad():
        policy.lm.get_input_embeddings().weight[rows[2].token_ids[0]] = torch.nan
    with pytest.raises(
        UserError, match=r"step 1: .* the row's own loss is nan in row 2.*, counted from 0 in the step's"
    ):
        one_step(policy, rows, per_device_train_batch_size=1)


def test_open_r1s_rows_are_imitated_as_they_are(tmp_path: Path) -> None:
    file = open_r1(tmp_path, count=8)["train_file"]
    stage = loaded(config(tmp_path, data={"chats": file}))
    assert (len(stage.train), len(stage.held_out)) == (6, 2)
    texts = [trained_text_of(row) for row in stage.train]
    assert all(text.startswith("<think>") and "I" in text and "boxed" in text for text in texts), texts

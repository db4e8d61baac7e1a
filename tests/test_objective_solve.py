"""Solving: which problems are trained on, how they read, what they earn, which are set aside; the table of looks."""

import contextlib
import json
import random
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from safetensors.torch import load_file

from prewrite.config import Config, CustomTaskSettings
from prewrite.config.loading import load_config
from prewrite.engine.distributed import World
from prewrite.engine.policy import load_tokenizer
from prewrite.errors import UserError
from prewrite.report.page import write_report
from prewrite.reporting.journal import Journal
from prewrite.reporting.looks import look_table
from prewrite.tasks import get_task
from prewrite.training.engines import open_engines
from prewrite.training.objectives.solve import Solve
from prewrite.training.objectives.solve_data import load_solve_data, mix, user_turn
from prewrite.training.progress import Progress
from prewrite.types import Example, Sample
from tests.launching import finish, with_settings
from tests.loaded import start_loaded
from tests.test_chat_template import tokenizer
from tests.their_files import notebook, open_r1, trl_math

WORLD = World(0, 1, torch.device("cpu"))
CHAT = "{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}\n{% endfor %}"


@pytest.fixture(scope="module", autouse=True)
def _world() -> Iterator[None]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def config(tmp_path: Path, **sections: dict[str, Any]) -> Config:
    whole: dict[str, Any] = {
        "objective": "solve",
        "output_dir": str(tmp_path),
        "policy": {"model": "policy"},
        "data": {"tasks": ["arithmetic"], "dev_size": 20},
        "reward": {"reward_funcs": ["accuracy_reward", "think_answer_format_reward"], "reward_weights": [1.0, 0.5]},
        "training": {"max_steps": 1},
        "selection": {"eval_examples": 6},
    }
    for section, settings in sections.items():
        whole[section] = {**whole.get(section, {}), **settings}
    return Config.model_validate(whole)


def loaded(settings: Config):
    return load_solve_data(settings, tokenizer(CHAT))


def text_of(request) -> str:
    return "".join(tokenizer(CHAT).convert_ids_to_tokens(request))


def sample(text: str) -> Sample:
    return Sample((1,), (5, 6), (-1.0, -1.0), text, "stop")


def objective(settings: Config, journal: Journal | None = None, progress: Progress | None = None) -> Solve:
    return Solve(settings, loaded(settings), WORLD, journal, progress or Progress())


def solved(problem: Example) -> str:
    return f"<think>so</think><answer>\\boxed{{{problem.target}}}</answer>"


def test_a_request_is_system_prompt_problem_and_suffix(tmp_path: Path) -> None:
    data = loaded(config(tmp_path, rollout={"system_prompt": "Think."}, data={"instruction_suffix": "Take modulo 7."}))
    problem = data.train[0]
    asked = problem.example.fields["problem"]
    assert text_of(problem.request) == f"<system>Think.\n<user>{asked}\nTake modulo 7.\n"
    gpqa = Example("1", {"text": "It rained.", "premise": "p"}, "2")
    task = SimpleNamespace(fields={"text": "Sentence", "premise": "Premise"})
    assert user_turn(task, gpqa, "") == "Sentence: It rained.\nPremise: p"  # type: ignore[arg-type]


def test_a_template_that_drops_the_system_prompt_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"rollout\.system_prompt: the chat template .* drops"):
        load_solve_data(config(tmp_path, rollout={"system_prompt": "Think."}), tokenizer("{{ messages[-1].content }}"))


def test_problems_are_held_out_by_seed_filtered_and_capped(tmp_path: Path) -> None:
    data = loaded(config(tmp_path))
    train, held_out = ({one.example.id for one in part} for part in (data.train, data.held_out))
    assert (len(train), len(held_out)) == (480, 6)
    assert not train & held_out
    other = loaded(config(tmp_path).model_copy(update={"seed": 2}))
    assert {one.example.id for one in other.held_out} != held_out
    digits = loaded(config(tmp_path, data={"answer_pattern": "[0-9]", "max_train_rows": 11}))
    assert len(digits.train) == 11
    assert all(re.fullmatch("[0-9]", str(one.example.target)) for one in (*digits.train, *digits.held_out))
    with pytest.raises(UserError, match=r"0 rows.*answer_pattern='abc' \(of 500 rows\)"):
        loaded(config(tmp_path, data={"answer_pattern": "abc"}))
    with pytest.raises(UserError, match="dev_size=500 problems are to be held out, and 500 are left"):
        loaded(config(tmp_path, data={"dev_size": 500}))


def test_problems_too_long_for_a_request_are_left_out_and_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data = loaded(config(tmp_path, rollout={"max_prompt_length": 40}))
    assert 0 < len(data.train) < 480
    assert max(len(one.request) for one in (*data.train, *data.held_out)) <= 40
    assert "problems are longer than rollout.max_prompt_length=40: left out" in caplog.text


def test_a_mixture_keeps_its_proportions_and_repeats_nothing() -> None:
    pools = [[f"a{n}" for n in range(90)], [f"b{n}" for n in range(20)]]

    def counts(weights, most) -> tuple[int, int]:
        mixed = mix(pools, weights, most, seed=3)
        assert len(set(mixed)) == len(mixed)
        found = Counter(one[0] for one in mixed)
        return found["a"], found["b"]

    assert counts(None, None) == (90, 20)
    assert counts([3.0, 1.0], None) == (60, 20)  # b is used up: 20 of it, and three times as many of a
    assert counts([1.0, 1.0], 8) == (4, 4)
    assert counts([0.6, 0.2], 4) == (3, 1)  # 4 x 0.6 / 0.8 is 2.9999999999999996 in floats
    assert counts([1e308, 1e308], None) == (20, 20)
    assert counts([1e-300, 1e300], None) == (1, 20)
    assert sum(counts(None, 10)) == 10
    assert mix(pools, None, None, seed=3) != mix(pools, None, None, seed=4)


def test_what_one_task_holds_out_another_does_not_train_on(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    sums = [{"problem": f"What is {n} + 100?", "answer": str(n + 100)} for n in range(30)]
    shipped = loaded(config(tmp_path))
    repeats = [problem.example for problem in (shipped.held_out[0], shipped.train[0])]
    for name, rows in {
        "own": [*sums, *({**one.fields, "answer": one.target} for one in repeats)],
        "test": [{"problem": "What is 1000 + 1?", "answer": "1001"}],
    }.items():
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    own = {
        "name": "own", "kind": "math", "fields": {"problem": "Question"}, "target": "answer",
        "train_file": str(tmp_path / "own.jsonl"), "test_file": str(tmp_path / "test.jsonl"),
        "default_instruction": "Solve.",
    }  # fmt: skip
    settings = config(tmp_path, data={"tasks": ["arithmetic", "own"], "dev_size": 6})
    settings = settings.model_copy(update={"custom_tasks": [CustomTaskSettings.model_validate(own)]})
    data = loaded(settings)
    trained = [problem.example.fields["problem"] for problem in data.train]
    assert len(set(trained)) == len(trained)
    assert not set(trained) & {problem.example.fields["problem"] for problem in data.held_out}
    assert {problem.task.name for problem in data.held_out} == {"arithmetic", "own"}
    assert "problems stand in another task's rows too: left out of training" in caplog.text


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"reward": {"reward_funcs": ["accuracy_math_reward", "tag_count_reward"]}}, "trains on solve"),
        ({"data": {"tasks": ["sentiment"]}}, "accuracy_reward compares mathematical values, and the task sentiment"),
        (
            {"reward": {"reward_funcs": ["tag_count_reward"], "reward_weights": None}, "data": {"set_aside_passes": 1}},
            "set_aside_passes: a problem is solved where accuracy_reward says so",
        ),
        (
            {"reward": {"reward_funcs": ["tests.trl_rewards:of_instructions"], "reward_weights": None}},
            "it takes 'instruction', and the rows have",
        ),
    ],
)
def test_what_cannot_be_solved_is_refused_before_a_model_loads(tmp_path: Path, change: dict, told: str) -> None:
    with pytest.raises(UserError, match=told):
        loaded(config(tmp_path, **change))


@pytest.mark.parametrize(
    ("reward", "gold", "told"),
    [
        ("accuracy_reward", "the answer is 3?", "none of the first 20 golds can be read as one"),
        ("levenshtein_reward", "3", "compares with a problem's `solution`, and none has one"),
        ("accuracy_reward", "3", ""),
    ],
)
def test_a_reward_without_anything_to_compare_with_is_refused(
    tmp_path: Path, reward: str, gold: str, told: str
) -> None:
    rows = [{"problem": f"What is {n}?", "answer": gold} for n in range(50)]
    (tmp_path / "own.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    own = CustomTaskSettings(
        name="own",
        kind="math",
        fields={"problem": "Problem"},
        target="answer",
        train_file=str(tmp_path / "own.jsonl"),
        test_size=5,
        default_instruction="Solve.",
    )
    rewards = {"reward_funcs": [reward, "format_reward"], "reward_weights": None}
    settings = config(tmp_path, data={"tasks": ["own"]}, reward=rewards).model_copy(update={"custom_tasks": [own]})
    with pytest.raises(UserError, match=told) if told else contextlib.nullcontext():
        loaded(settings)


def test_a_setting_of_the_other_objective_is_refused_and_no_task_model_is_needed(tmp_path: Path) -> None:
    file = tmp_path / "c.json"
    whole = {
        "objective": "solve",
        "policy": {"model": "m"},
        "data": {"tasks": ["gsm8k"], "instruction": "Solve.", "answer_pattern": "(", "task_weights": [1.0, 2.0]},
        "training": {"max_steps": 1},
    }
    file.write_text(json.dumps(whole))
    with pytest.raises(UserError) as told:
        load_config(file)
    assert "`answer_pattern` '(' is no regular expression" in str(told.value)
    assert "2 `task_weights` for 1 `tasks`" in str(told.value)
    assert "task_model" not in str(told.value)
    whole["data"] = {"tasks": ["gsm8k"], "instruction": "Solve."}
    file.write_text(json.dumps(whole))
    with pytest.raises(UserError, match=r"data\.instruction is read by objective=rewrite alone, and this is solve"):
        load_config(file)
    whole["data"] = {"tasks": ["gsm8k"]}
    file.write_text(json.dumps(whole))
    with pytest.raises(UserError, match=r"budget\.max_task_tokens is read by objective=rewrite alone"):
        load_config(file, ["max_task_tokens=1000"])
    with pytest.raises(
        UserError, match=r"data\.set_aside_passes is read by objective=solve alone, and this is rewrite"
    ):
        load_config(file, ["objective=rewrite", "task_model.model=m", "data.set_aside_passes=1"])


def test_every_reward_scores_the_answer_to_the_problem_asked(tmp_path: Path) -> None:
    solve = objective(config(tmp_path, reward={"reward_kwargs": {}}))
    solve.request(3, 0, draw=0)
    solve.request(5, 1, draw=0)
    right, wrong = solve.rows[3], solve.rows[5]
    texts = [(0, solved(right)), (0, f"It is {right.target}."), (1, "<think>x</think><answer>no</answer>")]
    marks = solve.score([solve.read(9, group, 0, sample(text)) for group, text in texts], draw=0)
    assert [mark.parts for mark in marks] == [
        {"accuracy_reward": 1.0, "think_answer_format_reward": 1.0},
        {"accuracy_reward": 1.0, "think_answer_format_reward": 0.0},
        {"accuracy_reward": 0.0, "think_answer_format_reward": 0.5},
    ]
    assert wrong.target != "no"


def test_a_problem_that_all_or_none_solve_is_left_out_for_some_passes(tmp_path: Path) -> None:
    settings = config(tmp_path, data={"max_train_rows": 4, "set_aside_passes": 1})
    progress = Progress()
    solve = objective(settings, progress=progress)
    requests = [one.request for one in solve.data.train]

    def batch(solved_by: list[int], of: int = 2) -> list[int]:
        """One pass over the four problems, each solved by so many of its samples; the problems that were asked."""
        asked = [
            requests.index(solve.request(solve.choose(index, index, progress.draws), index, progress.draws))
            for index in range(4)
        ]
        read = [
            solve.read(index, index, progress.draws, sample(solved(solve.rows[asked[index]]) if n < count else "?"))
            for index, count in enumerate(solved_by)
            for n in range(of)
        ]
        solve.score(read, progress.draws)
        progress.place, progress.draws = progress.place + 4, progress.draws + 1
        return asked

    assert batch([2, 0, 1, 1]) == [0, 1, 2, 3]
    assert progress.set_aside == {0: 2, 1: 2}
    again = Progress.from_json(progress.to_json())
    assert again.set_aside == progress.set_aside
    second = batch([1, 1, 1, 1])
    assert set(second) == {2, 3}, "the two that tell nothing are replaced by the others"
    assert batch([2, 2, 2, 2]) == [0, 1, 2, 3], "they are back"
    assert batch([1, 1, 1, 1]) == [0, 1, 2, 3], "where all are set aside, each is asked all the same"


class Teacher:
    """Stands in for the sampler: right and well-formed once `learned`, before that the number alone or nothing."""

    ranks_per_engine = 1

    def __init__(self, data) -> None:
        self.by_request = {tuple(one.request): one.example for one in data.held_out}
        self.learned = False

    def sample(self, requests, counts, *, greedy=False, on_finished) -> None:
        for index, (request, count) in enumerate(zip(requests, counts, strict=True)):
            example = self.by_request[tuple(request)]
            for copy in range(count):
                plain = f"It is {example.target}" if greedy and index % 2 else "No idea"
                on_finished(index, copy, sample(solved(example) if self.learned else plain))


def test_looks_are_one_table_on_the_console_in_the_journal_and_in_the_report(tmp_path: Path) -> None:
    settings = config(tmp_path, selection={"num_sampled": 2})
    journal = Journal(settings)
    solve = objective(settings, journal)
    teacher = Teacher(solve.data)
    before = solve.evaluate(0, teacher)  # type: ignore[arg-type]
    teacher.learned = True
    after = solve.evaluate(5, teacher)  # type: ignore[arg-type]
    assert before == {
        "dev_greedy/arithmetic": 0.5,
        "dev_accuracy_reward/arithmetic": 0.5,
        "dev_think_answer_format_reward/arithmetic": 0.0,
        "dev_sampled/arithmetic": 0.0,
    }
    assert (after["dev_greedy/arithmetic"], after["dev_sampled/arithmetic"]) == (1.5, 1.5)  # 1 x 1 + 0.5 x 1
    resumed = objective(settings, journal)
    assert resumed.summary().splitlines()[:5] == [
        "arithmetic, 6 greedy answers to held-out problems: the mean of each reward",
        "  step   total  accuracy_reward  think_answer_format_reward",
        "     0   0.500            0.500                       0.000",
        "     5   1.500            1.000                       1.000",
        "  gain  +1.000           +0.500                      +1.000",
    ]
    assert "arithmetic, 12 sampled answers" in resumed.summary()
    page = write_report([journal.folder]).read_text(encoding="utf-8")
    assert "6 greedy answers to held-out problems" in page
    assert "<td>5</td><td>1.500</td><td>1.000</td><td>1.000</td>" in page
    assert "There is no best.json yet" not in page


def test_a_table_of_looks_takes_what_a_broken_journal_holds() -> None:
    looks = [{"rewards": {"a": None}, "step": 1}, {"rewards": 3}, {"step": 2}, {"rewards": {"a": "x"}, "step": []}]
    assert look_table(looks).splitlines()[2:] == ["     1       -", "    []       -", "  gain       -"]
    assert look_table([]) == ""


def test_no_task_server_is_started_and_nobody_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from prewrite.training import engines

    class Loading(Exception):
        pass

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a task server is started")

    def loading(*_: object, **__: object) -> None:
        raise Loading

    monkeypatch.setattr(engines, "TaskServer", refuse)
    monkeypatch.setattr(engines.TaskModel, "probe", refuse)
    monkeypatch.setattr(engines, "Policy", loading)
    with pytest.raises(Loading), open_engines(config(tmp_path), WORLD, None, ()):
        pass


def test_a_chat_template_of_the_users_own_is_taken_as_text_or_file(tmp_path: Path, shallow_model: str) -> None:
    from prewrite.config import PolicySettings

    file = tmp_path / "chat.jinja"
    file.write_text(CHAT)
    for given in (CHAT, str(file)):
        made = load_tokenizer(PolicySettings(model=shallow_model, chat_template=given))
        assert made.chat_template == CHAT
    with pytest.raises(UserError, match=r"policy\.chat_template: .*nowhere.* as a file it cannot be read"):
        load_tokenizer(PolicySettings(model=shallow_model, chat_template=str(tmp_path / "nowhere")))


def test_the_embedded_problems_are_right_and_apart() -> None:
    rows = [
        json.loads(line)
        for split in ("train", "test")
        for line in (Path("prewrite/tasks/data") / f"arithmetic_{split}.jsonl").read_text().splitlines()
    ]
    assert len({row["problem"] for row in rows}) == len(rows) == 700
    for row in random.Random(0).sample(rows, 200):
        a, b = map(int, re.findall(r"\d+", row["problem"]))
        assert int(row["answer"]) in (a + b, a - b, a * b)
        assert 0 < int(row["answer"]) < 100
    assert get_task("arithmetic").kind == "math"


@pytest.mark.slow
def test_a_whole_run_learns_from_problems_without_a_task_server(tmp_path: Path, shallow_model: str) -> None:
    """An adapter, with a reference, on the files of a TRL trainer, a notebook and open-r1, by rewards of theirs."""
    own = [trl_math(tmp_path), notebook(tmp_path), open_r1(tmp_path)]
    names = [task["name"] for task in own]
    rewards = ["accuracy_reward", "repetition_penalty_reward"] + [
        f"tests.trl_rewards:{name}" for name in ("correctness", "whole_number", "strict_form")
    ]
    settings = (
        *(f"custom_tasks={json.dumps(own)}", f"data.tasks={json.dumps(names)}", "dev_size=4"),
        *(f"output_dir={tmp_path}", f"policy.model={shallow_model}", "max_steps=2", "eval_steps=1", "num_sampled=2"),
        *("eval_examples=4", "num_generations=4", "per_device_train_batch_size=12", "max_completion_length=16"),
        *("set_aside_passes=1", "max_train_rows=3", "task_weights=[1,1,1]", f"reward_funcs={json.dumps(rewards)}"),
        *("reward_weights=[1.0,0.5,1,1,1]", "trust_remote_code=true"),
        *("policy.lora.r=4", "policy.lora.alpha=8", "beta=0.04", "learning_rate=1e-3"),
    )
    program = start_loaded("train.py", "--config", "configs/solve_tiny.json", *with_settings(*settings))
    code, stdout, stderr = finish(program)
    assert code == 0, stdout[-3000:] + stderr[-3000:]
    run = tmp_path / "solve_tiny"
    assert not (run / "task_server.log").exists()
    assert "policy.trust_remote_code is on" in stdout
    looks = [json.loads(line) for line in (run / "dev.jsonl").read_text().splitlines()]
    assert [(look["step"], look["sampling"], look["n"]) for look in looks] == [
        (step, sampling, n) for step in (0, 1, 2) for sampling, n in (("greedy", 4), ("sampled", 8)) for _ in names
    ]
    assert {look["task"] for look in looks} == set(names)
    assert look_table(looks) in stdout
    rollouts = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    assert len(rollouts) == 24
    assert {row["problem"].partition("_train-")[0] for row in rollouts} == set(names)
    assert all(set(row["reward_parts"]) == set(rewards) for row in rollouts)
    checkpoint = run / "checkpoints" / "step_000002"
    assert not list(checkpoint.glob("model*"))
    adapter = load_file(checkpoint / "adapter_model.safetensors")
    assert len(adapter) == 4 * 7 * 2
    assert any(weight.any() for name, weight in adapter.items() if "lora_B" in name), "it has moved"
    assert json.loads((checkpoint / "adapter_config.json").read_text())["base_model_name_or_path"] == shallow_model
    kept = json.loads((run / "checkpoints" / "step_000002" / "progress.json").read_text())
    assert kept["set_aside"], "four layers solve nothing"
    steps = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert steps[-1]["step"] == 2
    assert max(step["sampler_gap"] for step in steps[1:]) < 1e-4
    assert all(f"dev_accuracy_reward/{name}" in steps[-1] for name in names)

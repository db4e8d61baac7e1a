"""From samples to reward parts, through a real client: who is asked what, on which examples."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from transformers import AutoTokenizer

from prewrite.asking import MINI_BATCH, SUBJECT_BATCH
from prewrite.asking.cleaning import clean_rewrite
from prewrite.config import Config, TaskModelSettings
from prewrite.config.loading import load_config
from prewrite.engine.task_model import TaskModel
from prewrite.errors import UserError
from prewrite.rewards import get_reward
from prewrite.tasks import get_task
from prewrite.training.objectives.base import Mark, WeightedReward
from prewrite.training.objectives.requests import Requests
from prewrite.training.objectives.rewrite import Rewrite
from prewrite.training.objectives.rewrite_data import RewriteData, load_rewrite_data
from prewrite.training.progress import Progress
from prewrite.types import Example, InstructionRow, Sample, Sampled
from tests.fault_server import FaultServer, Reply, completion, query_of
from tests.launching import MODEL

TASKS = {name: get_task(name) for name in ("gsm8k", "sst2")}
CONFIG = Config.model_validate(
    {
        "policy": {"model": "policy"},
        "data": {"tasks": ["gsm8k"]},
        "reward": {"examples_per_rewrite": 4},
        "task_model": {"model": "task", "scoring": "free_text"},
        "training": {"max_steps": 1},
    }
)
TRAIN = {
    "gsm8k": [
        Example(str(i), {"problem": f"What is {i} + 1?"}, str(i + 1), subject="odd" if i % 2 else "even")
        for i in range(40)
    ],
    "sst2": [Example(str(i), {"text": f"text {i}"}, "positive") for i in range(40)],
}


def sums_and_positive(body, tried):
    """Adds one to the number after "What is", and calls everything else positive."""
    _, found, rest = query_of(body).partition("What is ")
    return Reply(body=completion(str(int(rest.split()[0]) + 1) if found else "positive"))


@contextmanager
def scorer(*names: str) -> Iterator[tuple[Rewrite, FaultServer]]:
    with (
        FaultServer(sums_and_positive) as server,
        TaskModel(
            TaskModelSettings(model="task", max_tokens=8, concurrency=8, timeout=5.0, max_retries=1),
            base_url=server.base_url,
        ) as task_model,
    ):
        rewards = [WeightedReward(get_reward(name), 1.0, {}) for name in names]
        data = RewriteData([], [], TASKS, rewards, TRAIN, {})
        yield Rewrite(CONFIG, data, Requests(CONFIG, data.rows, None), [], task_model, None, Progress()), server


def sampled(row: InstructionRow, text: str, group: int = 0, finish_reason: str = "stop") -> Sampled:
    return Sampled(Sample((), (), (), text, finish_reason), row, group, clean_rewrite(text))


def parts(scoring: Rewrite, row: InstructionRow, *texts: str) -> list[dict]:
    return [mark.parts for mark in scoring._score([sampled(row, text) for text in texts], draw=0)]


def test_a_group_meets_the_same_examples_on_every_rank_and_others_in_every_step():
    row = InstructionRow("Solve.", "gsm8k")
    with scorer("accuracy_math_reward") as (one, server):
        assert parts(one, row, "Add.", "Sum.") == [{"accuracy_math_reward": 1.0}] * 2
        asked = {"Add.": [], "Sum.": []}
        for body in server.bodies:
            rewrite, question = query_of(body).split("\n")
            asked[rewrite].append(question)
        assert sorted(asked["Add."]) == sorted(asked["Sum."])
        assert len(asked["Add."]) == 4
        drawn = [example.id for example in one.examples(row, 0, 0, MINI_BATCH)]
        with scorer("accuracy_math_reward") as (other, _):
            assert [example.id for example in other.examples(row, 0, 0, MINI_BATCH)] == drawn
            for draw, group in ((1, 0), (0, 1)):
                assert [example.id for example in other.examples(row, group, draw, MINI_BATCH)] != drawn


def test_only_a_split_reward_narrows_the_examples_to_the_rows_subject():
    row = InstructionRow("Solve.", "gsm8k", subject="Odd")
    with scorer("accuracy_math_reward_split", "accuracy_math_reward") as (both, server):
        assert parts(both, row, "Add.") == [{"accuracy_math_reward_split": 1.0, "accuracy_math_reward": 1.0}]
        numbers = [int(query_of(body).partition("What is ")[2].split()[0]) for body in server.bodies]
        of_the_subject = [int(example.id) for example in both.examples(row, 0, 0, SUBJECT_BATCH)]
        of_all = [int(example.id) for example in both.examples(row, 0, 0, MINI_BATCH)]
        assert set(numbers) == {*of_the_subject, *of_all}
        assert all(number % 2 for number in of_the_subject)
        assert not all(number % 2 for number in of_all)
        with pytest.raises(UserError, match="subject='Geometry'"):
            parts(both, InstructionRow("Solve.", "gsm8k", subject="Geometry"), "Add.")


def test_what_no_reward_reads_is_not_asked():
    with scorer("accuracy_math_reward_split", "length_penalty") as (split, server):
        assert parts(split, InstructionRow("Solve.", "gsm8k"), "Add.") == [{"length_penalty": 0.0}]
        assert parts(split, InstructionRow("Label.", "sst2", subject="film"), "Say.") == [{"length_penalty": 0.0}]
        assert server.bodies == []


def test_a_rewrite_with_a_fault_is_worth_nothing_and_is_not_asked():
    with scorer("accuracy_math_reward") as (scoring, server):
        row = InstructionRow("Solve.", "gsm8k")
        (cut,) = scoring._score([sampled(row, "Add", finish_reason="length")], 0)
        assert cut == Mark({"accuracy_math_reward": 0.0})
        assert parts(scoring, row, "Rewrite the instruction as: add.") == [{"accuracy_math_reward": 0.0}]
        assert parts(scoring, row, f"Do this: {CONFIG.rollout.meta_instruction}") == [{"accuracy_math_reward": 0.0}]
        assert parts(scoring, row, "<think>nothing</think>") == [{"accuracy_math_reward": 0.0}]
        assert server.bodies == []


def test_a_parent_whose_request_is_too_long_gives_way_to_the_rows_own():
    requests = Requests(CONFIG, [InstructionRow("Solve.", "gsm8k")], AutoTokenizer.from_pretrained(MODEL))
    requests.parents = [["Solve it step by step."]]
    assert requests.draw(0, "1/0").parent == "Solve it step by step."
    requests.parents = [["word " * CONFIG.rollout.max_prompt_length]]
    request = requests.draw(0, "1/0")
    assert (request.parent, request.token_ids) == ("Solve.", requests.initial[0])


def test_a_template_is_asked_where_its_tags_are_right():
    row = InstructionRow("Solve.", "gsm8k", tags=("problem",))
    with scorer("template_accuracy_math_reward") as (scoring, server):
        name = "template_accuracy_math_reward"
        assert parts(scoring, row, "Add: {problem}", "Add.", "{problem} {x}") == [
            {name: 1.0},
            {name: -1.0},
            {name: -1.0},
        ]
        assert len(server.bodies) == 4
        assert all(query_of(body).startswith("Add: What is ") for body in server.bodies)


def test_tasks_of_other_kinds_side_by_side():
    rows = [InstructionRow("Solve.", "gsm8k"), InstructionRow("Label.", "sst2")]
    with scorer("accuracy_math_reward", "accuracy_classification_reward") as (scoring, _):
        marks = scoring._score([sampled(rows[0], "Add."), sampled(rows[1], "Say.", group=1)], draw=0)
        assert [mark.parts for mark in marks] == [
            {"accuracy_math_reward": 1.0},
            {"accuracy_classification_reward": 1.0},
        ]


def test_a_row_that_is_a_problem_is_asked_alone_and_held_against_its_own_answer():
    rows = [InstructionRow("What is 41 + 1?", "gsm8k", answer="42"), InstructionRow("Say.", "sst2", answer="Positive")]
    with scorer("prewrite_accuracy_reward") as (scoring, server):
        asked = [
            sampled(rows[0], "What is 41 plus 1?"),
            sampled(rows[0], "What is 40 plus 1?"),
            sampled(rows[1], "Is it good or bad?", group=1),
        ]
        found = scoring._score([*asked, sampled(rows[0], "What is 41 plus 1? It is 42.")], draw=0)
        assert [mark.parts["prewrite_accuracy_reward"] for mark in found] == [1.0, 0.0, 1.0, 0.0]
        assert sorted(map(query_of, server.bodies)) == sorted(one.output for one in asked)


@pytest.mark.parametrize(
    ("row", "reward", "settings", "told"),
    [
        (
            {},
            "accuracy_classification_reward",
            ["metric=f1"],
            r"selection\.metric=f1: it is of tasks of the kind open_q",
        ),
        (
            {"answer": "positive"},
            "prewrite_accuracy_reward",
            ["num_parents=2", "num_races=2"],
            r"selection\.num_parents, selection\.num_races: with prewrite",
        ),
        (
            *({"answer": "positive"}, "prewrite_accuracy_reward"),
            *(
                ["max_steps=0", "max_task_calls=9"],
                r"a run of no steps: with prewrite.* no best of several rewrites",
            ),
        ),
    ],
)
def test_settings_that_say_nothing_of_these_tasks_are_refused(
    row: dict, reward: str, settings: list[str], told: str, tmp_path: Path
):
    rows = [row | {"instruction": f"Is number {number} good?", "dataset_name": "sentiment"} for number in range(4)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(one) + "\n" for one in rows))
    given = ["data.tasks=[]", f"instructions_file={tmp_path}/rows.jsonl", f"reward_funcs={json.dumps([reward])}"]
    config = load_config("configs/quickstart.json", [*given, *(["dev_size=2"] if row else []), *settings])
    with pytest.raises(UserError, match=told):
        load_rewrite_data(config)


def test_what_is_asked_ahead_is_asked_once_and_counted_once():
    rows = [InstructionRow("Solve it.", "gsm8k"), InstructionRow("Solve this.", "gsm8k")]
    written = [
        sampled(rows[0], "Add one."),
        sampled(rows[0], "Think of the next number."),
        sampled(rows[1], "Add one.", group=1),
    ]
    parts, stats = {}, {}
    for ahead in (False, True):
        with scorer("accuracy_math_reward") as (one, server):
            if ahead:
                for own in written:
                    one.score_ahead(own, draw=3)
            parts[ahead] = [mark.parts for mark in one._score(written, draw=3)]
            stats[ahead] = (one.task_model.stats.calls, one.task_model.stats.cached, len(server.bodies))
            assert one._score(written[:1], draw=3)[0].parts == parts[ahead][0]
            assert one.task_model.stats.cached == stats[ahead][1] + 4, "the second time from the cache"
    assert parts[True] == parts[False] == [{"accuracy_math_reward": 1.0}] * 3
    assert stats[True] == stats[False]
    assert stats[True][2] == 12

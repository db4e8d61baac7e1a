"""How likely a forced choice made each label: from the wire to the verdict and the file of answers."""

import argparse
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from prewrite.asking.verdicts import grade
from prewrite.config import TaskModelSettings
from prewrite.engine.forced_choice import ForcedChoice
from prewrite.engine.task_model import TaskModel
from prewrite.errors import UserError
from prewrite.evaluation.setup import set_up
from prewrite.tasks import get_task
from prewrite.types import Answer, Call, Example
from scripts.benchmarks.replay import main as replay
from tests.fault_server import FaultServer, Reply, completion, forced_texts

LABELS = ("World", "Sports", "Business", "Sci/Tech")
SETTINGS: dict[str, Any] = {"policy": {"model": "m"}, "data": {"tasks": ["sst2"]}, "training": {"max_steps": 1}}


def piece(token: str, probability: float, **others: float) -> dict[str, Any]:
    """A token of a reply with all that could have stood there; probabilities in place of log-probabilities."""
    top = {token: probability, **others}
    return {
        "token": token,
        "logprob": math.log(probability),
        "top_logprobs": [{"token": name, "logprob": math.log(one)} for name, one in top.items()],
    }


def probabilities(*pieces: dict[str, Any], choices: tuple[str, ...] = LABELS) -> dict[str, float] | None:
    found = ForcedChoice("structured_outputs", choices).logprobs(list(pieces))
    return found and {choice: round(math.exp(one), 3) for choice, one in zip(choices, found, strict=True)}


def test_each_label_has_the_pieces_that_begin_it_alone():
    # World 0.5 in one piece and 0.1 in another spelling of it, Sports 0.2, Sci/Tech 0.15, Business 0.05
    first = piece("World", 0.5, Wor=0.1, Sports=0.2, Sci=0.15, Bus=0.05)
    assert probabilities(first) == {"World": 0.6, "Sports": 0.2, "Business": 0.05, "Sci/Tech": 0.15}


def test_a_label_that_leaves_later_is_found_where_it_leaves():
    # "S" has 0.6 and goes on to Sports with 0.7 and to Sci/Tech with 0.3: 0.42 and 0.18
    found = probabilities(piece("S", 0.6, World=0.3, Business=0.1), piece("ports", 0.7, **{"ci/Tech": 0.3}))
    assert found == {"World": 0.3, "Sports": 0.42, "Business": 0.1, "Sci/Tech": 0.18}


def test_what_two_labels_share_off_the_way_is_shared_out():
    found = probabilities(piece("World", 0.8, S=0.2))
    assert found is not None
    assert (found["Sports"], found["Sci/Tech"]) == (0.1, 0.1)


def test_a_label_that_begins_another_is_told_from_it():
    # "no" 0.4 ends, or goes on to "none" with 0.25
    found = probabilities(piece("no", 0.4, yes=0.6), piece("ne", 0.25, **{"": 0.75}), choices=("yes", "none"))
    assert found == {"yes": 0.6, "none": 0.1}


@pytest.mark.parametrize(
    "pieces",
    [None, [], [{"token": "World"}], [{"token": "World", "logprob": "x", "top_logprobs": []}], [piece("Weather", 1.0)]],
)
def test_what_says_nothing_of_the_choices_gives_nothing(pieces):
    assert ForcedChoice("structured_outputs", LABELS).logprobs(pieces) is None


def test_the_json_dialect_does_not_say_it():
    assert ForcedChoice("json_schema", LABELS).logprobs([piece("World", 1.0)]) is None


def with_logprobs(body: dict[str, Any], tried: int) -> Reply:
    """Obeys, and says how likely that was, where it is asked."""
    (text,) = forced_texts(body).values()
    said = {"logprobs": {"content": [piece(text, 0.75, Sports=0.25)]}} if body.get("logprobs") else {}
    return Reply(body=completion(text, **said))


def task_model(server: FaultServer, **settings: Any) -> TaskModel:
    own = TaskModelSettings(model="task", base_url=server.base_url, max_tokens=8, max_retries=0, **settings)
    return TaskModel(own, base_url=server.base_url)


def test_an_answer_brings_them_also_out_of_the_file(tmp_path: Path):
    for _ in range(2):
        with FaultServer(with_logprobs) as server, task_model(server, label_logprobs=True) as model:
            model.keep_answers(tmp_path / "answers.jsonl", rank=0, ranks=1)
            (answer,) = model.ask([Call("q", LABELS)])
            assert answer.choice_logprobs is not None
            assert np.allclose(np.exp(answer.choice_logprobs[:2]), [0.75, 0.25], atol=1e-4)
    assert server.bodies == [], "the second time it was read"


def test_nobody_asks_for_them_by_default():
    with FaultServer(with_logprobs) as server, task_model(server) as model:
        (answer,) = model.ask([Call("q", LABELS)])
    assert answer.choice_logprobs is None
    assert "logprobs" not in server.bodies[0]


def test_an_endpoint_that_does_not_say_them_is_refused_by_the_probe():
    def silent(body, tried):
        return Reply(body=completion(forced_texts(body).get("structured_outputs", "4")))

    with (
        FaultServer(silent, dialects=()) as server,
        task_model(server, label_logprobs=True) as model,
        pytest.raises(UserError, match="does not say how likely each label was"),
    ):
        model.probe(LABELS)


def test_an_endpoint_that_cannot_force_a_choice_is_refused_too():
    with (
        FaultServer(lambda body, tried: Reply(body=completion("4")), dialects=()) as server,
        task_model(server, label_logprobs=True) as model,
        pytest.raises(UserError, match="cannot force a choice, so that nothing says"),
    ):
        model.probe(LABELS)


def test_evaluating_does_not_ask_for_them(tmp_path: Path):
    config = tmp_path / "config.json"
    config.write_text(json.dumps(SETTINGS | {"task_model": {"model": "t", "label_logprobs": True}}))
    given = argparse.Namespace(
        config=config,
        model=None,
        base_url=None,
        api_key_env=None,
        rewriter=None,
        samples=None,
        scoring=None,
        overrides=[],
    )
    assert not set_up(given, []).task_model.label_logprobs


def test_a_verdict_carries_that_of_the_target():
    task = get_task("ag_news")
    example = Example("1", {"text": "t"}, "Sports")
    likely = tuple(math.log(p) for p in (0.6, 0.3, 0.05, 0.05))
    answers = [Answer("World", choice_logprobs=likely), Answer("World"), Answer(None, error="gone")]
    verdicts = grade(task, [example] * 3, answers)
    assert [verdict.target_logprob for verdict in verdicts] == [pytest.approx(math.log(0.3)), None, None]
    assert [verdict.correct for verdict in verdicts] == [False, False, None]


def test_a_table_with_probabilities_is_replayed(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    rng = np.random.default_rng(0)
    p = np.clip(rng.normal(0.5, 0.15, (40, 1)) + rng.normal(0, 0.1, (1, 40)) + rng.normal(0, 0.1, (40, 40)), 0.01, 0.99)
    right = rng.random(p.shape) < p
    head = {"task": "made_up", "meta_instructions": ["One.", "Two."]}
    lines = [
        {
            "rewrite": f"{row % 2}/{row}",
            "marks": "".join(str(int(one)) for one in right[row]),
            "target_logprobs": [round(100 * math.log(one)) for one in p[row]],
        }
        for row in range(40)
    ]
    path = tmp_path / "verdicts-made_up.jsonl"
    path.write_text("\n".join(map(json.dumps, [head, *lines])), encoding="utf-8")
    replay([str(path), "--draws", "4"])
    told = capsys.readouterr().out
    assert "| One. |" in told
    row = next(line for line in told.splitlines() if line.startswith("| 8 | 0"))
    by_right, by_probability = (float(cell) for cell in row.split("|")[2:4])
    assert by_probability > by_right


@pytest.mark.parametrize("given", [float("nan"), 5.0, 10**400])
def test_what_is_no_logprob_gives_nothing(given: float):
    pieces = [{"token": "yes", "logprob": -0.1, "top_logprobs": [{"token": "no", "logprob": given}]}]
    assert ForcedChoice("structured_outputs", ("no", "yes")).logprobs(pieces) is None

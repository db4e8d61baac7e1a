"""Forced choice in each dialect, against a stand-in that knows one of them, and against what only looks like one."""

import json
import logging
from pathlib import Path

import pytest

from prewrite.config import TaskModelSettings
from prewrite.engine.forced_choice import ForcedChoice
from prewrite.engine.task_model import TaskModel
from prewrite.errors import UserError
from prewrite.types import Call
from tests.fault_server import FaultServer, Reply, completion, forced_texts, query_of
from tests.test_evaluation_command import run, run_folder  # noqa: F401  # a fixture

LABELS = ("Sci/Tech", "a+b (c)", 'say "no"')


def task_model(server: FaultServer, **settings) -> TaskModel:
    own = TaskModelSettings(model="task", base_url=server.base_url, max_tokens=8, max_retries=0, **settings)
    return TaskModel(own, base_url=server.base_url)


def obeys(dialect: str):
    """Says what it is forced to in one dialect, and chats whatever else it is sent."""

    def behaviour(body, tried):
        return Reply(body=completion(forced_texts(body).get(dialect, "Well, that depends.")))

    return behaviour


@pytest.mark.parametrize("dialect", ["structured_outputs", "regex", "json_schema"])
def test_the_dialect_that_an_endpoint_knows_is_found_and_used(dialect):
    with FaultServer(obeys(dialect), dialects=()) as server, task_model(server) as model:
        assert model.probe(LABELS) == dialect
        (answer,) = model.ask([Call("q", LABELS)])
        assert answer.text == LABELS[0]
        assert forced_texts(server.bodies[-1]).keys() == {dialect}
        assert model.state()["dialect"] == dialect


@pytest.mark.parametrize("status", [400, 422, 500])
def test_an_endpoint_that_refuses_what_it_does_not_know_is_asked_in_the_next_dialect(status):
    def behaviour(body, tried):
        if "structured_outputs" in body or "regex" in body:
            return Reply(status=status, body='{"error": {"message": "no such thing"}}')
        return obeys("json_schema")(body, tried)

    with FaultServer(behaviour, dialects=()) as server, task_model(server) as model:
        assert model.probe(LABELS) == "json_schema"


@pytest.mark.parametrize("says", ["4", "Sci/Tech", '{"answer": "Sci/Tech"}', "quartz"])
def test_an_endpoint_that_ignores_the_field_is_found_out_and_asked_in_free_text(says, caplog):
    with (
        FaultServer(lambda body, tried: Reply(body=completion(says)), dialects=()) as server,
        task_model(server) as model,
    ):
        with caplog.at_level(logging.WARNING):
            assert model.probe(LABELS) is None
        assert "cannot force a choice" in caplog.text
        assert "FREE TEXT" in caplog.text
        (answer,) = model.ask([Call("q", LABELS)])
        assert answer.text == says
        assert not forced_texts(server.bodies[-1])


@pytest.mark.parametrize("dialect", ["structured_outputs", "regex", "json_schema", None])
def test_an_evaluation_in_each_dialect_scores_the_same(
    run_folder: Path,  # noqa: F811
    capsys: pytest.CaptureFixture[str],
    dialect: str | None,
) -> None:
    def behaviour(body, tried):
        label = "positive" if "good" in query_of(body).split("\n")[-1] else "negative"
        if dialect is None:
            return Reply(body=completion(f"I would say: {label}."))
        return Reply(body=completion(forced_texts(body).get(dialect, "Hm.").replace("negative", label)))

    with FaultServer(behaviour, dialects=(str(dialect),)) as server:
        assert run(run_folder, "--limit", "10", "--set", f"base_url={server.base_url}") == 0
    told = f"forced_choice ({dialect})" if dialect else "free_text (the endpoint cannot force a choice)"
    assert f"scoring: {told}" in capsys.readouterr().out
    written = json.loads((run_folder / "evaluation_days_first_10.json").read_text())
    assert [row["summary"]["accuracy"]["value"] for row in written["rows"]] == [1.0] * 3


def test_an_echo_of_the_query_does_not_pass():
    with FaultServer(dialects=()) as server, task_model(server) as model:
        assert model.probe(("yes", "no")) is None


def test_several_endpoints_have_one_dialect():
    with (
        FaultServer(lambda b, t: Reply(body=completion((forced_texts(b) or {"": "4"}).popitem()[1]))) as every,
        FaultServer(obeys("json_schema"), dialects=()) as one,
    ):
        urls = [one.base_url, every.base_url]
        with TaskModel(TaskModelSettings(model="task", base_url=urls, max_retries=0), base_url=urls) as model:
            assert model.probe(LABELS) == "json_schema"


def test_max_tokens_that_cut_a_choice_off_are_told_at_the_probe():
    def behaviour(body, tried):
        return Reply(body=completion('{ "answer": "Sci', finish_reason="length"))

    with (
        FaultServer(behaviour, dialects=()) as server,
        task_model(server) as model,
        pytest.raises(UserError, match="raise max_tokens"),
    ):
        model.probe(LABELS)


def test_the_same_choice_in_another_dialect_is_another_call_and_a_resume_keeps_to_its_own(tmp_path):
    path = tmp_path / "answers.jsonl"
    with FaultServer(lambda b, t: Reply(body=completion(forced_texts(b).popitem()[1]))) as server:
        with task_model(server) as model:
            model.keep_answers(path, rank=0, ranks=1)
            model.ask([Call("q", LABELS)])
            model.dialect = "json_schema"
            model.ask([Call("q", LABELS)])
            assert len(server.bodies) == 2
            state = model.state()
        with task_model(server) as again:
            with pytest.raises(UserError, match="structured_outputs, and the run began with json_schema"):
                again.keep_answers(path, rank=0, ranks=1, state=state)
            again.dialect = "json_schema"
            again.keep_answers(path, rank=0, ranks=1, state=state)
            assert again.ask([Call("q", LABELS)])[0].text == LABELS[0]
            assert len(server.bodies) == 2


@pytest.mark.parametrize("content", ["[1]", "null", '{"answer": 1}', '{"other": "Sci/Tech"}', '{"answer":', "[" * 9999])
def test_json_that_holds_no_choice_is_none(content):
    assert ForcedChoice("json_schema", LABELS).read(content) is None


def test_the_labels_of_a_regex_and_of_a_schema_are_literal():
    import re

    (pattern,) = ForcedChoice("regex", LABELS).fields().values()
    assert [label for label in (*LABELS, "SciXTech", "aab (c)") if re.fullmatch(pattern, label)] == list(LABELS)
    schema = ForcedChoice("json_schema", LABELS).fields()["response_format"]["json_schema"]["schema"]
    assert json.loads(json.dumps(schema))["properties"]["answer"]["enum"] == list(LABELS)

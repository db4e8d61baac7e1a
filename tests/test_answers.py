"""Answers are written down before they are used: nothing that was answered is asked, or counted, twice."""

import json
import multiprocessing
import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from prewrite.config import TaskModelSettings
from prewrite.engine.answers import Answers
from prewrite.engine.task_model import TaskModel
from prewrite.errors import UserError
from prewrite.types import Answer, Call
from tests.fault_server import FaultServer, Reply, completion, query_of

COUNTED = ("calls", "cached", "failed", "prompt_tokens", "completion_tokens")


@contextmanager
def model(server: FaultServer, path: Path, state: Any = None, *, rank: int = 0, ranks: int = 1) -> Iterator[TaskModel]:
    settings = TaskModelSettings(model="task", base_url=server.base_url, max_retries=0, temperature=0.0)
    with TaskModel(settings, base_url=server.base_url) as one:
        one.keep_answers(path, rank=rank, ranks=ranks, state=state)
        yield one


def calls(*queries: str) -> list[Call]:
    return [Call(query) for query in queries]


def counts(one: TaskModel) -> dict[str, int]:
    return {name: getattr(one.stats, name) for name in COUNTED}


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines() if line]  # blank where a torn one was ended


def test_an_answer_stands_in_the_file_before_it_is_used(tmp_path: Path) -> None:
    path, seen = tmp_path / "answers.jsonl", []
    with FaultServer() as server, model(server, path) as one:
        one.ask(calls("a", "b", "c"), progress=lambda done, _: seen.append((done, len(lines(path)))))
    assert [written >= done for done, written in seen] == [True] * 3
    assert sorted(line["text"] for line in lines(path)) == ["a", "b", "c"]
    assert lines(path)[0]["tokens"] == [10, 2]


def test_a_run_that_goes_back_asks_nothing_again_and_counts_as_one_that_did_not(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    steps = [calls("a", "b", "a"), calls("b", "c", "d"), calls("d", "e", "c")]
    with FaultServer() as server:
        with model(server, tmp_path / "whole.jsonl") as one:
            whole = []
            for step in steps:
                one.ask(step)
                whole.append(counts(one))
        with model(server, path) as one:
            one.ask(steps[0])
            state = json.loads(json.dumps(one.state()))
            one.ask(steps[1])  # after the checkpoint, and then it is killed
        server.bodies.clear()
        with model(server, path, state) as one:
            again = [counts(one)]
            for step in steps[1:]:
                one.ask_ahead(step)
                one.ask(step)
                again.append(counts(one))
        assert [query_of(body) for body in server.bodies] == ["e"]
    assert again == whole


def test_what_nothing_wants_any_more_is_counted_once_as_much_was_had(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    with FaultServer() as server:
        with model(server, path) as one:
            one.ask(calls("a", "b", "c"))
        with model(server, path) as one:
            one.ask(calls("c", "x"))
            assert counts(one)["calls"] == 2
            one.ask(calls("y"))
            assert counts(one)["calls"] == len(server.bodies) == 5, "all that was ever paid for"
            assert counts(one)["prompt_tokens"] == 50
            one.ask(calls("a"))
            assert (counts(one)["calls"], counts(one)["cached"]) == (5, 0), "counted already, and no answer had twice"


@pytest.mark.parametrize(
    "tail",
    [
        b'{"key": "00", "rank": 0, "te',
        b"\x80\n",
        b"[]\n",
        b'{"key": 7}\n',
        b"\n",
        b"[" * 100_000 + b"\n",
        b"[" * 100 + b"\n" + b"\0" * 100,
    ],
)
def test_half_a_line_costs_its_own_answer_alone(tmp_path: Path, tail: bytes) -> None:
    path = tmp_path / "answers.jsonl"
    with FaultServer() as server:
        with model(server, path) as one:
            one.ask(calls("a"))
        with path.open("ab") as file:
            file.write(tail)
        with model(server, path) as one:
            one.ask(calls("a", "b"))
        with model(server, path) as one:
            assert [answer.text for answer in one.ask(calls("a", "b"))] == ["a", "b"]
        assert sorted(query_of(body) for body in server.bodies) == ["a", "b"]


def test_a_line_without_a_text_is_no_answer(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    with FaultServer() as server:
        with model(server, path) as one:
            one.ask(calls("a"))
        path.write_text(path.read_text().replace('"text": "a"', '"text": null'))
        with model(server, path) as one:
            assert one.ask(calls("a"))[0].text == "a"
        assert [query_of(body) for body in server.bodies] == ["a", "a"]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("key", value) for value in (7, "zz", "\ud83d", None)),
        *(("rank", value) for value in ("0", 0.0, -1, None, False)),
        *(("text", value) for value in (7, ["a"], None)),
        *(("finish_reason", value) for value in ({"why": "stop"}, "because", 1, True)),
        *(("tokens", value) for value in ([1e300, -5], [10, -2], [10], [10, 2, 1], "12", {"a": 1, "b": 2}, 7, None)),
        *(("tokens", value) for value in (["10", "2"], [10, True], [10.5, 2], [10, 10**400], [float("inf"), 2])),
        *(("choice_logprobs", value) for value in (-0.5, ["-0.5"], [True], [0.5], [float("nan")], [-float("inf")])),
        *(("choice_logprobs", value) for value in ("", {"a": 1}, {})),
    ],
)
def test_a_line_with_a_field_of_another_kind_is_asked_again_and_told(
    tmp_path: Path, field: str, value: Any, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "answers.jsonl"
    with FaultServer() as server:
        with model(server, path) as one:
            one.ask(calls("a", "b"))
        first, second = lines(path)
        path.write_text(json.dumps({**first, field: value}) + "\n{\n\n" + json.dumps(second) + "\n")
        with model(server, path, rank=1, ranks=2):
            assert not caplog.text
        with model(server, path) as one:
            assert [answer.text for answer in one.ask(calls("a", "b"))] == ["a", "b"]
        assert caplog.messages == [f"{path}: 2 lines cannot be read, and what stood there is asked again"]
        assert len(server.bodies) == 3
        assert one.stats.prompt_tokens == 20


def test_each_rank_has_its_own_answers_and_fewer_ranks_have_them_all(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    with FaultServer() as server:
        for rank in (0, 1):
            with model(server, path, rank=rank, ranks=2) as one:
                one.ask(calls("both", f"of {rank}"))
        asked = len(server.bodies)
        assert asked == 4
        with model(server, path, rank=1, ranks=2) as one:
            one.ask(calls("both", "of 1"))
        with model(server, path) as one:
            one.ask(calls("both", "of 0", "of 1"))
        assert len(server.bodies) == asked


def test_a_failed_call_is_asked_again(tmp_path: Path) -> None:
    def twice(body: dict[str, Any], tried: int) -> Reply:
        return Reply(status=400, body="{}") if tried == 1 else Reply(body=completion("yes"))

    with FaultServer(twice) as server:
        with model(server, tmp_path / "answers.jsonl") as one:
            assert one.ask(calls("a"))[0].text is None
        with model(server, tmp_path / "answers.jsonl") as one:
            assert one.ask(calls("a"))[0].text == "yes"


def append(path: Path, rank: int) -> None:
    answers = Answers()
    answers.open(path, rank=rank, ranks=4)
    for number in range(300):
        answers.add(bytes([rank, number // 256, number % 256]), Answer("x" * 997 * (number % 7)))


def test_ranks_that_write_at_once_lose_no_line(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    forked = multiprocessing.get_context("fork")  # torch is loaded
    ranks = [forked.Process(target=append, args=(path, rank)) for rank in range(4)]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join(120)
    assert [rank.exitcode for rank in ranks] == [0] * 4
    assert sorted(line["key"] for line in lines(path)) == sorted(
        bytes([rank, number // 256, number % 256]).hex() for rank in range(4) for number in range(300)
    )


def test_where_an_answer_cannot_be_kept_it_is_not_used(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    limits, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    with FaultServer() as server:
        try:
            with model(server, path) as one:
                resource.setrlimit(resource.RLIMIT_FSIZE, (300, limits[1]))
                one.ask_ahead(calls("nobody waits for this one" * 9))
                with pytest.raises(UserError, match=r"answers\.jsonl: cannot be written \(File too large\)"):
                    one.ask(calls("a" * 400))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
            signal.signal(signal.SIGXFSZ, handler)
        with model(server, path) as one:
            assert one.ask(calls("b"))[0].text == "b"
        with model(server, path) as one:
            one.ask(calls("b"))
        assert [query_of(body) for body in server.bodies].count("b") == 1


def test_a_file_that_cannot_be_opened_is_told(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be written"):
        Answers().open(tmp_path / "nowhere" / "answers.jsonl", rank=0, ranks=1)


def test_any_text_comes_back(tmp_path: Path) -> None:
    texts = ["", "\n", "\udc80 lone", "\u2028\u0000", "é" * 5]
    first, second = Answers(), Answers()
    first.open(tmp_path / "a", rank=0, ranks=1)
    for number, text in enumerate(texts):
        first.add(bytes([number]), Answer(text, finish_reason="length"))
    second.open(tmp_path / "a", rank=0, ranks=1)
    assert [second.get(bytes([number]))[0] for number in range(len(texts))] == [
        Answer(text, finish_reason="length") for text in texts
    ]

"""Rewrites of looks and races that a run which goes on judges again."""

import json
from contextlib import nullcontext
from pathlib import Path

import pytest

from prewrite.errors import UserError
from prewrite.reporting.written import WRITTEN, Written, write_once


def test_what_was_written_is_not_written_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("prewrite.reporting.written.distributed.broadcast", lambda value: value)  # a rank alone
    monkeypatch.setattr("prewrite.reporting.written.distributed.together", lambda what: nullcontext())
    calls: list[int] = []

    def write() -> list[list[str]]:
        calls.append(len(calls))
        return [["a\ud800", ""], ["c", f"rewrite {len(calls)}"]]

    first = write_once(Written(tmp_path, 0), (0, 3, "race 1"), [2, 2], write)
    again = Written(tmp_path, 3)
    assert write_once(again, (0, 3, "race 1"), [2, 2], write) == first == [["a\ud800", ""], ["c", "rewrite 1"]]
    assert write_once(again, (0, 3, "race 1"), [1, 2], write) == [["a\ud800"], ["c", "rewrite 1"]]
    assert calls == [0]
    for place, counts in (((0, 3, "race 2"), [2, 2]), ((1, 3, "race 1"), [2, 2]), ((0, 3, "race 1"), [3, 2])):
        write_once(Written(tmp_path, 3), place, counts, write)
    assert calls == [0, 1, 2, 3], "another race, another stage, and more than there is"


def test_what_a_policy_wrote_that_is_trained_anew_does_not_count(tmp_path: Path) -> None:
    Written(tmp_path, 0).keep((0, 4, "greedy"), [["x"]])
    assert Written(tmp_path, 4).of((0, 4, "greedy"), [1]) == [["x"]]
    assert Written(tmp_path, 3).of((0, 4, "greedy"), [1]) is None


def test_lines_that_are_none_are_no_rewrites(tmp_path: Path) -> None:
    good = {"stage": 0, "step": 1, "what": "greedy", "rewrites": [["x"]]}
    bad = ["", "{", "[]", "7", json.dumps(good | {"rewrites": [[7]]}), json.dumps(good | {"step": "1"}), '{"stage": 0}']
    bad += [json.dumps(good | {"rewrites": 7}), json.dumps(good | {"what": []})]
    (tmp_path / WRITTEN).write_text("\n".join([*bad, json.dumps(good | {"what": "sampled"}), json.dumps(good)[:-9]]))
    written = Written(tmp_path, 9)
    assert written.of((0, 1, "sampled"), [1]) == [["x"]]
    assert written.of((0, 1, "greedy"), [1]) is None


def test_a_file_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    written = Written(tmp_path, 0)
    (tmp_path / WRITTEN).mkdir()
    with pytest.raises(UserError, match=r"written\.jsonl: cannot be written"):
        written.keep((0, 0, "greedy"), [["x"]])
    with pytest.raises(UserError, match=r"written\.jsonl: cannot be read"):
        Written(tmp_path, 0)

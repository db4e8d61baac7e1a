"""Rewrites of looks and races that a run which goes on judges again."""

import json
from contextlib import nullcontext
from pathlib import Path

import pytest

from prewrite.errors import UserError
from prewrite.reporting.written import WRITTEN, Written, as_before


def test_what_was_written_before_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("prewrite.reporting.written.distributed.broadcast", lambda value: value)  # a rank alone
    monkeypatch.setattr("prewrite.reporting.written.distributed.together", lambda what: nullcontext())
    ours, others = [["a\ud800", ""], ["c", "d"]], [["e", "f"], ["g", "h"]]
    assert as_before(Written(tmp_path, 0), (0, 3, "race 1"), ours) == ours
    again = Written(tmp_path, 3)
    assert as_before(again, (0, 3, "race 1"), others) == ours
    assert as_before(again, (0, 3, "race 1"), [["e"], ["g", "h"]]) == [["a\ud800"], ["c", "d"]]
    for place in ((0, 3, "race 2"), (1, 3, "race 1")):
        assert as_before(again, place, others) == others, "another race, another stage"
    more = [["e", "f", "i"], ["g", "h"]]
    assert as_before(again, (0, 3, "race 1"), more) == more
    assert as_before(Written(tmp_path, 3), (0, 3, "race 1"), more) == more, "the last ones count"


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

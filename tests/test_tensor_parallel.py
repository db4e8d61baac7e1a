"""One vLLM engine that spans two ranks."""

import json
from pathlib import Path

import pytest

from tests.launching import finish, launched, start


@pytest.mark.slow
def test_an_engine_of_two_ranks_follows_the_push_and_shares_out_its_samples(random_model: str, tmp_path: Path) -> None:
    out = tmp_path / "report.json"
    # By the launcher: a fork that ends leaves vLLM's shared memory to the next one, which then cannot start.
    command = launched(2, "tests/ranks/tensor_parallel.py", random_model, str(out))
    code, stdout, stderr = finish(start(command, ranks=2))
    assert code == 0, stdout[-3000:] + stderr[-3000:]
    report = json.loads(out.read_text())
    assert max(report["gaps"]) < 1e-4
    assert min(report["gaps_without_push"]) > 0.1
    going_on, of_second = report["going on"]
    assert going_on == of_second, "the two ranks end a rollout at the same token"
    assert any(part != whole for part, whole in zip(*going_on, strict=True))
    assert all(part == whole[: len(part)] for part, whole in zip(*going_on, strict=True))
    first, second = report["completions"]
    assert len(first) == len(second) == 4
    assert first != second

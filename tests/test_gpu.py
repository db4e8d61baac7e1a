"""On a GPU: the sampler follows the push, with the engine asleep while the policy trains and over several ranks."""

import json
from pathlib import Path

import pytest
import torch

from tests.launching import finish, launched, start
from tests.ranks.agreement import COMPILED, check_gradients, check_resets, check_weights

GPUS = torch.cuda.device_count()
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.slow,
    pytest.mark.skipif(not GPUS, reason="there is no GPU here"),
]
on_two = pytest.mark.skipif(GPUS < 2, reason="there is one GPU here")


def measure(script: str, ranks: int, model: str, out: Path, *arguments: str) -> dict:
    command = launched(ranks, f"tests/ranks/{script}.py", model, str(out), *arguments)
    code, stdout, stderr = finish(start(command, ranks=ranks))
    assert code == 0, stdout[-3000:] + stderr[-3000:]
    return json.loads(out.read_text())


@pytest.mark.parametrize("ranks", [1, pytest.param(2, marks=on_two)])
@pytest.mark.parametrize("sleep_level", ["0", "1", "2"])
def test_the_engine_computes_with_the_pushed_weights(
    ranks: int, sleep_level: str, shallow_model: str, tmp_path: Path
) -> None:
    report = measure("probe", ranks, shallow_model, tmp_path / "out.json", "bfloat16", sleep_level)
    assert COMPILED in report["gradients"]
    check_gradients(report, report["gradients"]["ZeRO-3"]["4"], in_bfloat16=True)
    check_weights(report, in_bfloat16=True)
    check_resets(report, in_bfloat16=True)
    assert report["pushed_checksums"][1:] == pytest.approx(report["trained_checksums"], rel=1e-9)
    assert report["engine_checksums"] == pytest.approx(report["pushed_checksums"], rel=1e-9)
    largest = max(max(gaps) for gaps in report["gaps"])
    assert largest < 0.3, "bfloat16 is coarse where few layers make large logits"
    assert min(report["gaps_without_push"]) > 5 * largest


@on_two
def test_an_engine_over_two_ranks(random_model: str, tmp_path: Path) -> None:
    report = measure("tensor_parallel", 2, random_model, tmp_path / "out.json", "bfloat16")
    assert max(report["gaps"]) < 0.1
    assert min(report["gaps_without_push"]) > 5 * max(report["gaps"])

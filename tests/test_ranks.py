"""The engine on real parts: DeepSpeed ZeRO-3 and vLLM on 1 and 2 CPU ranks, SmolLM2 in float32, temperature 0.7."""

import json
from pathlib import Path

import pytest
from safetensors.torch import load_file

from tests.launching import LAUNCHER, MODEL, finish, start

pytestmark = pytest.mark.slow


def measure(ranks: int, folder: Path) -> dict:
    out = folder / "probe.json"
    command = [LAUNCHER, "--num_accelerators", str(ranks), "tests/ranks/probe.py", str(out)]
    code, stdout, stderr = finish(start(command, ranks=ranks))
    assert code == 0, stdout[-3000:] + stderr[-3000:]
    return json.loads(out.read_text())


@pytest.fixture(scope="module")
def one_rank(tmp_path_factory: pytest.TempPathFactory) -> dict:
    return measure(1, tmp_path_factory.mktemp("one"))


@pytest.fixture(scope="module")
def two_ranks(tmp_path_factory: pytest.TempPathFactory) -> dict:
    return measure(2, tmp_path_factory.mktemp("two"))


def test_the_gradient_does_not_depend_on_the_cut_nor_on_the_ranks(one_rank: dict, two_ranks: dict) -> None:
    whole = one_rank["gradients"]["4"]
    assert all(values[0] > 1e-3 for values in whole.values()), "a gradient of zero proves nothing"
    tolerance = 1e-5 * max(values[0] for values in whole.values())  # of the gradient's norm, in float32
    for ranks, report in ((1, one_rank), (2, two_ranks)):
        for cut, gradients in report["gradients"].items():
            for name, values in gradients.items():
                assert values == pytest.approx(whole[name], abs=tolerance), (ranks, cut, name)


@pytest.mark.parametrize("ranks", [1, 2])
def test_the_push_is_what_makes_the_sampler_follow(ranks: int, request: pytest.FixtureRequest) -> None:
    report = request.getfixturevalue("one_rank" if ranks == 1 else "two_ranks")
    for before, without_push, after in report["gaps"]:
        assert before < 1e-4
        assert without_push > 0.1
        assert after < 1e-4
    weights = load_file(MODEL / "model.safetensors")
    on_disk = sum(float(weight.double().abs().sum()) for weight in weights.values())
    first, second = report["checksums"]
    assert first == pytest.approx(on_disk, rel=1e-9)
    assert second == pytest.approx(report["trained_checksum"], rel=1e-9)
    assert second != pytest.approx(first, rel=1e-7)


def test_ranks_write_different_rewrites(two_ranks: dict) -> None:
    first, second = two_ranks["texts"]
    assert len(first) == len(second) == 4
    assert set(first) != set(second)

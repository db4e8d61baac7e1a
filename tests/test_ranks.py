"""DeepSpeed ZeRO and vLLM on 1 and 2 CPU ranks: SmolLM2's first layers in float32 at temperature 0.7."""

import json
import sys
from pathlib import Path

import pytest
from safetensors.torch import load_file

from tests.launching import finish, launched, start
from tests.ranks.agreement import check_gradients, check_resets, check_weights

pytestmark = pytest.mark.slow


def measure(ranks: int, model: str, folder: Path) -> dict:
    out = folder / "probe.json"
    arguments = ("tests/ranks/probe.py", model, str(out))
    command = launched(ranks, *arguments) if ranks > 1 else [sys.executable, *arguments]
    code, stdout, stderr = finish(start(command, ranks=ranks))
    assert code == 0, stdout[-3000:] + stderr[-3000:]
    return json.loads(out.read_text())


@pytest.fixture(scope="module")
def one_rank(shallow_model: str, tmp_path_factory: pytest.TempPathFactory) -> dict:
    return measure(1, shallow_model, tmp_path_factory.mktemp("one"))


@pytest.fixture(scope="module")
def two_ranks(shallow_model: str, tmp_path_factory: pytest.TempPathFactory) -> dict:
    return measure(2, shallow_model, tmp_path_factory.mktemp("two"))


def test_the_gradient_does_not_depend_on_the_cut_nor_on_the_ranks(one_rank: dict, two_ranks: dict) -> None:
    whole = one_rank["gradients"]["ZeRO-3"]["4"]
    check_gradients(one_rank, whole, in_bfloat16=False)
    check_gradients(two_ranks, whole, in_bfloat16=False)


def test_a_step_leaves_all_ranks_and_a_mixed_reference_with_the_same_weights(one_rank: dict, two_ranks: dict) -> None:
    check_weights(one_rank, in_bfloat16=False)
    check_weights(two_ranks, in_bfloat16=False)


def test_a_reset_takes_every_rank_back_to_the_base_model(one_rank: dict, two_ranks: dict) -> None:
    check_resets(one_rank, in_bfloat16=False)
    check_resets(two_ranks, in_bfloat16=False)


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_step_that_is_not_finite_on_one_rank_is_taken_on_none(ranks: int, request: pytest.FixtureRequest) -> None:
    """Rows are dealt out in turn, so that the second of two ranks has rows 1 and 3."""
    report = request.getfixturevalue("one_rank" if ranks == 1 else "two_ranks")
    rows = {
        1: "nan in row 0 and nan in row 1 and nan in row 2 and in 1 more places",
        2: "nan in row 1 and nan in row 3",
    }
    expected = {
        "nan": f"step 3: the loss is {rows[ranks]}, counted",
        "gap": "the sampler gap is inf in row 1, counted",
        "steep": "step 3: the gradient norm, with a finite loss, is inf in rows 0 to 3, counted",
    }
    assert set(report["refusals"]) == {"ZeRO-3", "ZeRO-1, bfloat16"}
    for kind, by_rank in report["refusals"].items():
        for found in by_rank:
            assert set(found) == set(expected), kind
            for name, (message, before, after) in found.items():
                assert expected[name] in message, (kind, name)
                assert after == before, (kind, name)


@pytest.mark.parametrize("ranks", [1, 2])
def test_the_push_is_what_makes_the_sampler_follow(
    ranks: int, shallow_model: str, request: pytest.FixtureRequest
) -> None:
    report = request.getfixturevalue("one_rank" if ranks == 1 else "two_ranks")
    assert min(report["gaps_without_push"]) > 0.1
    weights = load_file(Path(shallow_model, "model.safetensors"))
    on_disk = sum(float(weight.double().abs().sum()) for weight in weights.values())
    first, *later = report["pushed_checksums"]
    assert first == pytest.approx(on_disk, rel=1e-9)
    assert later == pytest.approx(report["trained_checksums"], rel=1e-9)
    assert later[0] != pytest.approx(first, rel=1e-7)


@pytest.mark.parametrize("ranks", [1, 2])
def test_the_sampler_gap_does_not_grow_from_step_to_step(ranks: int, request: pytest.FixtureRequest) -> None:
    """system-021. The request repeats and is longer than a block of the prefix cache, whose old keys and values would
    be used again if a push did not drop them."""
    report = request.getfixturevalue("one_rank" if ranks == 1 else "two_ranks")
    assert report["request_tokens"] > report["block_tokens"]
    for gaps in report["gaps"]:
        assert len(gaps) == 3
        assert max(gaps) < 1e-4, gaps


def test_ranks_write_different_rewrites(two_ranks: dict) -> None:
    first, second = two_ranks["texts"]
    assert len(first) == len(second) == 4
    assert set(first) != set(second)

"""DeepSpeed ZeRO and vLLM on 1 and 2 CPU ranks: SmolLM2's first layers in float32 at temperature 0.7."""

import importlib.util
import json
from pathlib import Path

import pytest
from safetensors.torch import load_file

from tests.launching import finish
from tests.loaded import start_loaded
from tests.ranks.agreement import check_8_bits, check_gradients, check_pushes, check_resets, check_same, check_weights

pytestmark = pytest.mark.slow


def measure(ranks: int, model: str, folder: Path) -> dict:
    out = folder / "probe.json"
    code, stdout, stderr = finish(start_loaded("tests/ranks/probe.py", model, str(out), ranks=ranks))
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
    assert set(report["refusals"]) == {"ZeRO-3", "ZeRO-1, bfloat16", "ZeRO-1, bfloat16 gradients"}
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


@pytest.mark.parametrize("ranks", ["one_rank", "two_ranks"])
def test_so_it_is_where_the_optimizer_is_offloaded_or_the_gradient_sums_are_bfloat16(
    ranks: str, request: pytest.FixtureRequest
) -> None:
    pushes = request.getfixturevalue(ranks)["pushes"]
    assert set(pushes) == {"ZeRO-3, offloaded", "ZeRO-3, bfloat16 gradients"}
    check_pushes(pushes, in_bfloat16=False)


@pytest.mark.parametrize("ranks", [1, 2])
def test_the_sampler_gap_does_not_grow_from_step_to_step(ranks: int, request: pytest.FixtureRequest) -> None:
    """system-021. The request repeats and is longer than a block of the prefix cache, whose old keys and values would
    be used again if a push did not drop them."""
    report = request.getfixturevalue("one_rank" if ranks == 1 else "two_ranks")
    assert report["request_tokens"] > report["block_tokens"]
    for gaps in report["gaps"]:
        assert len(gaps) == 3
        assert max(gaps) < 1e-4, gaps


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_completion_that_goes_on_after_a_push_has_each_tokens_log_prob_of_the_weights_that_sampled_it(
    ranks: int, request: pytest.FixtureRequest
) -> None:
    """The request is longer than a block of the prefix cache, as above."""
    report = request.getfixturevalue("one_rank" if ranks == 1 else "two_ranks")
    for completions in report["partial"]:
        assert completions
        for one in completions:
            assert min(one["tokens"]) >= 1
            assert max(one["gaps"]) < 1e-4, "the largest of all tokens"
            assert one["gap_to_the_new_weights"] > 0.01


def test_ranks_write_different_rewrites(two_ranks: dict) -> None:
    first, second = two_ranks["texts"]
    assert len(first) == len(second) == 4
    assert set(first) != set(second)


BOTH = pytest.mark.parametrize("ranks", ["one_rank", "two_ranks"])
HAS_BITS = importlib.util.find_spec("bitsandbytes") is not None
in_few_bits = pytest.mark.skipif(not HAS_BITS, reason="bitsandbytes is not installed: requirements-qlora.txt")


def test_the_gradient_of_an_adapter_does_not_depend_on_the_cut_nor_on_the_ranks(
    one_rank: dict, two_ranks: dict
) -> None:
    whole = one_rank["lora"]["gradients"]["ZeRO-3"]["4"]
    for report in (one_rank, two_ranks):
        found = dict(report["lora"]["gradients"])
        found.pop("4 bits", None)
        assert set(found) == {"ZeRO-3", "ZeRO-1"}
        check_same(found, whole, in_bfloat16=False)


@BOTH
def test_of_an_adapter_nothing_else_is_trained_nor_has_an_optimizers_state(
    ranks: str, request: pytest.FixtureRequest
) -> None:
    report = request.getfixturevalue(ranks)["lora"]
    # The embedding, 4,096 x 576; r 4 on each linear of 4 layers: q and o 576 x 576, k and v 576 x 192, and the three
    # of the MLP 576 x 1,536: 4 x 4 x (2 x 1,152 + 2 x 768 + 3 x 2,112).
    trained = 4096 * 576 + 4 * 4 * (2 * 1152 + 2 * 768 + 3 * 2112)
    for kind, (of_trained, of_masters) in report["numbers"].items():
        assert (of_trained, of_masters) == (trained, trained), kind
    frozen = {kind: {one for pair in by_rank for one in pair} for kind, by_rank in report["frozen"].items()}
    assert all(len(hashes) == 1 for hashes in frozen.values()), "not one bit of it moves"


@BOTH
def test_the_reference_is_the_model_with_its_adapter_off(ranks: str, request: pytest.FixtureRequest) -> None:
    """Its loss stays that of the model, before and after a step with beta; the step lowers the policy's."""
    by_kind = request.getfixturevalue(ranks)["lora"]["losses"]
    assert by_kind["ZeRO-1"][0][1] == pytest.approx(by_kind["ZeRO-3"][0][1], abs=1e-5)
    for kind, by_rank in by_kind.items():
        for loss, below, loss_after, below_after in by_rank:
            assert below_after == below, kind
            assert abs(loss - below) > 0.1, kind
            assert loss_after < loss - 0.1, kind


@BOTH
def test_a_reset_takes_an_adapter_back_to_its_first_weights(ranks: str, request: pytest.FixtureRequest) -> None:
    report = request.getfixturevalue(ranks)["lora"]
    check_resets(report, in_bfloat16=False, moved=1e-3)
    for kind, by_rank in report["resets"].items():
        assert by_rank[0]["losses"][0] == pytest.approx(report["losses"][kind][0][1], abs=1e-5), "those change nothing"


@BOTH
def test_an_adapter_goes_on_from_what_a_checkpoint_holds(ranks: str, request: pytest.FixtureRequest) -> None:
    for kind, (before, after, resumed) in request.getfixturevalue(ranks)["lora"]["resumed"].items():
        assert abs(after - before) > 1, kind
        assert resumed == pytest.approx(after, abs=1e-3 * abs(after - before)), kind


@pytest.mark.parametrize(
    ("ranks", "kind"),
    [("one_rank", "ZeRO-3"), ("two_ranks", "ZeRO-3"), pytest.param("one_rank", "4 bits", marks=in_few_bits)],
)
def test_the_push_hands_over_the_adapter_merged(ranks: str, kind: str, request: pytest.FixtureRequest) -> None:
    """Of 4 bits the weights as they are computed with: the tolerance is the same."""
    report = request.getfixturevalue(ranks)["lora"]["pushes"][kind]
    assert max(gap for gaps in report["gaps"] for gap in gaps) < 1e-4
    assert min(report["gaps_without_push"]) > 0.05


@in_few_bits
def test_of_4_bits_the_gradient_does_not_depend_on_the_ranks(one_rank: dict, two_ranks: dict) -> None:
    whole = one_rank["lora"]["gradients"]["4 bits"]["1"]
    check_same({"4 bits": two_ranks["lora"]["gradients"]["4 bits"]}, whole, in_bfloat16=False)
    in_full = one_rank["lora"]["gradients"]["ZeRO-1"]["1"]
    assert all(whole[name][0] != pytest.approx(in_full[name][0], rel=1e-3) for name in whole), "they are held in 4 bits"


@in_few_bits
@BOTH
def test_moments_in_8_bits_are_reset_resumed_and_pushed_like_others(
    ranks: str, one_rank: dict, request: pytest.FixtureRequest
) -> None:
    whole = one_rank["gradients"]["ZeRO-3"]["4"]
    check_8_bits(request.getfixturevalue(ranks)["8 bits"], whole, in_bfloat16=False)

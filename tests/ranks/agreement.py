"""What the reports of `probe.py` must agree in, whatever the ranks, the ZeRO stage and the cut into micro-batches."""

import pytest

COMPILED = "ZeRO-3, compiled"  # measured on a GPU alone
# Of a norm, and of an entry against the largest one of its weight: what rounding leaves.
IN_FLOAT32, IN_BFLOAT16 = (1e-4, 1e-4), (0.1, 0.3)


def check_gradients(report: dict, whole: dict[str, list[float]], *, in_bfloat16: bool) -> None:
    """whole: norm and entries of each watched gradient from one micro-batch."""
    kinds = {"ZeRO-3", "ZeRO-3, offloaded", "ZeRO-1"}
    kinds |= {"ZeRO-1, bfloat16", "ZeRO-1, bfloat16 gradients", "ZeRO-3, bfloat16 gradients"}
    assert kinds <= set(report["gradients"]) <= kinds | {COMPILED}
    check_same(report["gradients"], whole, in_bfloat16=in_bfloat16)


def check_same(by_kind: dict, whole: dict[str, list[float]], *, in_bfloat16: bool) -> None:
    """by_kind: what `probe.gradients` found, of each kind. whole: as above."""
    for kind, cuts in by_kind.items():
        of_norm, of_entry = IN_BFLOAT16 if in_bfloat16 or "bfloat16" in kind else IN_FLOAT32
        for cut, gradients in cuts.items():
            for name, (norm, *entries) in gradients.items():
                assert whole[name][0] > 1e-3, "a gradient of zero proves nothing"
                assert norm == pytest.approx(whole[name][0], rel=of_norm), (kind, cut, name)
                largest = max(abs(entry) for entry in whole[name][1:])
                assert entries == pytest.approx(whole[name][1:], abs=of_entry * largest), (kind, cut, name)


def check_weights(report: dict, *, in_bfloat16: bool) -> None:
    """A step leaves every rank with the same weights, and a frozen copy that is moved to them has them too.

    Each rank's sums of |w|: before the step, after it, and, for some kinds, of the copy.
    """
    expected = report["weights"]["ZeRO-3"][0]
    for kind, ranks in report["weights"].items():
        before, after, *_ = ranks[0]
        for _, *sums in ranks:
            assert sums == pytest.approx([after] * len(sums), rel=1e-9), kind
        # What bfloat16's rounding does to a sum of |w| depends on the processor: 51.7 against float32's 33.7 was seen.
        tolerance = 0.8 if in_bfloat16 or "bfloat16" in kind else 1e-3
        assert after - before == pytest.approx(expected[1] - expected[0], rel=tolerance), kind


def check_resets(report: dict, *, in_bfloat16: bool, moved: float = 0.01) -> None:
    """A reset gives every rank the base model's weights and masters, a step with rate 0 leaves them so, and training
    anew takes the way that it took from the base.

    Checksums and losses: trained, reset, after the step with rate 0, trained again; losses begin with the base's.
    moved: what training changed the loss by at least.
    """
    for kind, ranks in report["resets"].items():
        masters = [sum(rank["sums"][point]["masters"] for rank in ranks) for point in range(4)]
        for rank in ranks:
            base, (trained, *again) = rank["base"], [point["weights"] for point in rank["sums"]]
            assert trained != pytest.approx(base, rel=1e-7), kind
            assert again[:2] == pytest.approx([base, base], rel=1e-9), kind
            assert again[2] - base == pytest.approx(trained - base, rel=0.1 if in_bfloat16 else 0.01), kind
            of_base, of_trained, *others = rank["losses"]
            assert abs(of_trained - of_base) > moved, kind
            assert others[:2] == pytest.approx([of_base] * 2, abs=1e-3 if in_bfloat16 else 1e-6), kind
            assert others[2] == pytest.approx(of_trained, abs=0.1 if in_bfloat16 else 1e-4), kind
        base = ranks[0]["base"]
        assert masters[0] != pytest.approx(base, rel=1e-7), kind
        assert masters[1:3] == pytest.approx([base, base], rel=1e-9), kind
        assert masters[3] - base == pytest.approx(masters[0] - base, rel=0.01), kind


def check_8_bits(report: dict, *, in_bfloat16: bool) -> None:
    """Moments in 8 bits are as small as they are said to be, and reset and resumed like others; what they and gradients
    in bfloat16 have moved is pushed."""
    check_resets(report, in_bfloat16=in_bfloat16, moved=1e-3)
    assert set(report["bytes"]) == {"ZeRO-3", "ZeRO-1, bfloat16", "ZeRO-1, bfloat16 gradients"}
    assert max(report["bytes"].values()) < 2.05, "two moments of a byte, and a scale every 256 weights"
    assert set(report["left"].values()) == {0}, "gradients in bfloat16 beside their float32 sum"
    for kind, (before, after, resumed) in report["resumed"].items():
        assert abs(after - before) > 1, kind
        assert resumed == pytest.approx(after, abs=(0.1 if in_bfloat16 else 1e-3) * abs(after - before)), kind
    pushed = report["push"]
    assert pushed["pushed_checksums"][1:] == pytest.approx(pushed["trained_checksums"], rel=1e-9)
    assert pushed["trained_checksums"][0] != pytest.approx(pushed["pushed_checksums"][0], rel=1e-7)
    largest = max(max(gaps) for gaps in pushed["gaps"])
    assert largest < 0.3, "bfloat16 is coarse where few layers make large logits"
    assert min(pushed["gaps_without_push"]) > 5 * largest

"""What the reports of `probe.py` must agree in, whatever the ranks, the ZeRO stage and the cut into micro-batches."""

import pytest

COMPILED = "ZeRO-3, compiled"  # measured on a GPU alone
# Of a norm, and of an entry against the largest one of its weight: what rounding leaves.
IN_FLOAT32, IN_BFLOAT16 = (1e-4, 1e-4), (0.1, 0.3)
# Where the passes are the same and what sums them up differs; a GPU's backward pass differs from itself.
OF_SUMS, OF_SUMS_ON_A_GPU = (1e-3, 0.01), (0.01, 0.05)


def check_gradients(report: dict, whole: dict[str, list[float]], *, in_bfloat16: bool) -> None:
    """whole: norm and entries of each watched gradient from one micro-batch."""
    kinds = {"ZeRO-3", "ZeRO-3, offloaded", "ZeRO-1"}
    kinds |= {f"ZeRO-{stage}, bfloat16{sums}" for stage in (1, 3) for sums in ("", " gradients")}
    assert kinds <= set(report["gradients"]) <= kinds | {COMPILED}
    check_same(report["gradients"], whole, in_bfloat16=in_bfloat16)
    stages = ("ZeRO-1", "ZeRO-3")  # the same model, which DeepSpeed builds in two ways
    by_stage = {stage: {"1": report["gradients"][f"{stage}, bfloat16"]["1"]} for stage in stages}
    check_same(by_stage, by_stage["ZeRO-1"]["1"], within=OF_SUMS_ON_A_GPU if in_bfloat16 else OF_SUMS)
    for stage in stages:
        in_float32, in_16_bits = (report["gradients"][f"{stage}, bfloat16{sums}"]["1"] for sums in ("", " gradients"))
        check_same(
            {f"{stage}, sums": {"1": in_16_bits}}, in_float32, within=OF_SUMS_ON_A_GPU if in_bfloat16 else OF_SUMS
        )


def check_same(
    by_kind: dict,
    whole: dict[str, list[float]],
    *,
    in_bfloat16: bool = False,
    within: tuple[float, float] | None = None,
) -> None:
    """by_kind: what `probe.gradients` found, of each kind. whole: as above. within: for a norm, for an entry, in place
    of what rounding leaves."""
    for kind, cuts in by_kind.items():
        of_norm, of_entry = within or (IN_BFLOAT16 if in_bfloat16 or "bfloat16" in kind else IN_FLOAT32)
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


def check_8_bits(report: dict, whole: dict[str, list[float]], *, in_bfloat16: bool) -> None:
    """Moments in 8 bits are as small as they are said to be, and reset and resumed like others; the gradient is that of
    any optimizer, and what they have moved is pushed. whole: as above."""
    check_resets(report, in_bfloat16=in_bfloat16, moved=1e-3)
    assert set(report["bytes"]) == {"ZeRO-3", "ZeRO-1, bfloat16", "ZeRO-1, bfloat16 gradients"}
    assert max(report["bytes"].values()) < 2.05, "two moments of a byte, and a scale every 256 weights"
    assert set(report["left"].values()) == {0}, "gradients in bfloat16 beside their float32 sum"
    for kind, (before, after, resumed) in report["resumed"].items():
        assert abs(after - before) > 1, kind
        assert resumed == pytest.approx(after, abs=(0.1 if in_bfloat16 else 1e-3) * abs(after - before)), kind
    kinds = {"ZeRO-3", "ZeRO-1, bfloat16 gradients"}
    assert set(report["gradients"]) == set(report["pushes"]) == kinds
    check_same(report["gradients"], whole, in_bfloat16=in_bfloat16)
    check_pushes(report["pushes"], in_bfloat16=in_bfloat16)


def check_pushes(by_kind: dict, *, in_bfloat16: bool) -> None:
    """Of each kind, what `probe.push_proof` found: the sampler has the weights that a step left, and needs the push."""
    for kind, found in by_kind.items():
        first, *later = found["pushed_checksums"]
        assert later == pytest.approx(found["trained_checksums"], rel=1e-9), kind
        assert later[0] != pytest.approx(first, rel=1e-7), kind
        # bfloat16 is coarse where few layers make large logits.
        bound = 0.3 if in_bfloat16 or "bfloat16" in kind else 1e-4
        largest = max(max(gaps) for gaps in found["gaps"])
        assert largest < bound, kind
        assert min(found["gaps_without_push"]) > 5 * largest, kind

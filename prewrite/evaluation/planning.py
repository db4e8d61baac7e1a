"""Before anything is asked: what the examples at hand can show, and how many a wanted difference needs."""

from prewrite.evaluation.statistics import paired_power, rows_needed, wilson_interval

GAINS = (0.02, 0.05, 0.1)
TYPICAL_DISCORDANT = 0.27  # share of examples on which two instructions differ, in the runs measured
LEVEL = 0.05
POWER = 0.8


def outlook(n: int, candidates: int) -> str:
    """What n examples show of `candidates` instructions against a baseline, or, with none, of one score."""
    if not candidates:
        half = wilson_interval(n // 2, n)
        return (
            f"{n} examples know a share near one half to about ±{50 * (half.high - half.low):.1f} points; ±5 points "
            "take 381, ±2 points 2,397, ±1 point 9,600"
        )
    level = LEVEL / 2 / candidates  # of one side, and of the smallest p as Holm has it
    chance = paired_power(n, 0.05, TYPICAL_DISCORDANT, level=level)
    needed = ", ".join(
        f"{100 * gain:.0f} points {rows_needed(gain, TYPICAL_DISCORDANT, level=level, power=POWER):,}" for gain in GAINS
    )
    together = f", with {candidates} tested together" if candidates > 1 else ""
    return (
        f"the test on {n} examples finds a true gain of 5 points with a chance of {chance:.0%}{together}; for "
        f"{POWER:.0%} a gain needs so many examples: {needed} (if {TYPICAL_DISCORDANT:.0%} of answers differ)"
    )

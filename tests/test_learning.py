"""The algorithm learns a toy task from nothing; `scripts/learning_proof.py` shows the same for every setting."""

import pytest

from scripts.learning_proof import CHANCE, GOAL, SETTINGS, learn


def reached(history):
    return sum(history[-5:]) / 5


@pytest.mark.slow
def test_dapo_learns_and_with_the_sign_flipped_it_does_not():
    history = learn(SETTINGS["dapo"])
    assert history[0] < 2 * CHANCE
    assert reached(history) >= GOAL
    flipped = learn(SETTINGS["dapo"], sign=-1.0, max_steps=len(history))
    assert reached(flipped) < 2 * CHANCE

"""The replay of verdict tables, on a made-up table whose truth is known."""

import json
from pathlib import Path

import numpy as np
import pytest

from prewrite.errors import UserError
from prewrite.tasks import TASKS
from prewrite.tasks.loading import load_examples
from scripts.benchmarks.false_wins import main as false_wins
from scripts.benchmarks.false_wins import simulate
from scripts.benchmarks.replay import Table, by_label, examples_seen, flat, judged, load, main, race, spread


def made_up(rewrites: int = 96, examples: int = 200, seed: int = 0) -> np.ndarray:
    """Logistic in a rewrite's worth (sd 0.35) and an example's ease (sd 2): the spread of a real table."""
    rng = np.random.default_rng(seed)
    logit = rng.normal(0, 0.35, (rewrites, 1)) + rng.normal(0, 2.0, (1, examples))
    return (rng.random((rewrites, examples)) < 1 / (1 + np.exp(-logit))).astype(float)


def test_spread_is_that_of_the_table() -> None:
    rng = np.random.default_rng(1)
    y = rng.normal(0, 0.1, (300, 1)) + rng.normal(0, 0.1, (1, 300)) + rng.normal(0, 2.0, (300, 300))
    found = spread(y)
    assert found.rewrite == pytest.approx(0.01, rel=0.5)
    assert found.example == pytest.approx(0.01, rel=0.5)
    assert found.rest == pytest.approx(4.0, rel=0.05)


def test_the_estimate_takes_the_draw_out_where_groups_have_their_own_examples() -> None:
    y = made_up()
    found = [judged(y, examples_seen(y, 16, 8, np.random.default_rng(s))) for s in range(20)]
    mean, estimate = (np.mean([one[name][0] for one in found]) for name in ("mean", "estimate"))
    assert estimate > mean + 0.05


def test_a_race_beats_a_flat_look_at_equal_calls() -> None:
    gains: dict[str, list[float]] = {"flat": [], "race": []}
    for seed in range(60):
        y = made_up(64, 400, seed)
        truth = y[:, 200:].mean(1) - y[:, 200:].mean()
        gains["flat"].append(truth[flat(y[:, :200], 12, 768)])
        gains["race"].append(truth[race(y[:, :200], 64, 768)])
    assert np.mean(gains["race"]) > np.mean(gains["flat"])


def test_a_file_is_read_and_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    y = made_up(40, 40)
    marks = ["".join(str(int(v)) for v in row) for row in y]
    marks[3] = "-" + marks[3][1:]
    names = ["initial", "by_hand", *map(str, range(38))]
    rows = [{"rewrite": name, "marks": mark} for name, mark in zip(names, marks, strict=True)]
    path = tmp_path / "verdicts-made_up.jsonl"
    head = {"task": "sentiment", "examples": [e.id for e in load_examples(TASKS["sentiment"], "train")[:40]]}
    path.write_text("\n".join(json.dumps(row) for row in [head, *rows]), encoding="utf-8")
    table = load(path)
    assert table.y_RE.shape == (38, 40)
    assert np.isnan(table.y_RE[1, 0])
    assert table.fixed["initial"] == pytest.approx(y[0].mean())
    main([str(path), "--draws", "2"])
    told = capsys.readouterr().out
    assert "38 rewrites x 40 examples" in told
    assert "labels spread" in told


def test_spread_labels_tell_more_than_examples_by_luck(capsys: pytest.CaptureFixture[str]) -> None:
    """Rewrites that lean to one label: a mini-batch with many of it flatters them."""
    examples = load_examples(TASKS["sentiment"], "train")[:200]
    is_positive = np.array([example.target == "positive" for example in examples])
    rng = np.random.default_rng(0)
    leaning, worth = rng.normal(0, 0.25, (100, 1)), rng.normal(0, 0.1, (100, 1))
    chance = np.clip(0.6 + worth + np.where(is_positive, leaning, -leaning), 0, 1)
    y = (rng.random((100, 200)) < chance).astype(float)
    by_label(Table("sentiment", y, {}, None, [], [], examples), examples, 100, rng)
    (row,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| 8 |")]
    by_luck, spread_out = map(float, row.split("|")[2:4])
    assert spread_out > by_luck + 0.05


@pytest.mark.parametrize("text", [None, "", "{}\n", '{"task": "sst2", "examples": []}\n', "[1]\n[2]\n", "no JSON"])
def test_a_file_that_holds_no_table_is_told(text: str | None, tmp_path: Path) -> None:
    path = tmp_path / "table.jsonl"
    if text is not None:
        path.write_text(text)
    with pytest.raises(UserError, match=r"table\.jsonl: .*verdicts\.py"):
        load(path)


def test_a_simulated_run_too_small_to_train_races_untrained_rewrites_as_a_real_one_does() -> None:
    _, _, calls = simulate("equal", 600, 200, 1, None, 0)
    assert 400 < calls <= 600


def test_a_simulated_run_of_several_races_spends_no_more_than_its_budget() -> None:
    _, _, calls = simulate("inherits", 1500, 200, 2, 0.8, 0)
    assert 1000 < calls <= 1500


def test_a_simulation_whose_calls_pay_for_no_race_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    few = ["--runs", "1", "--dev-size", "60", "--worlds", "equal", "--calls"]
    with pytest.raises(UserError, match=r"--calls 3 pays for no race: give 22 at least"):
        false_wins([*few, "3"])
    with pytest.raises(UserError, match=r"budget.max_task_calls: given 0"):
        false_wins([*few, "0"])
    assert capsys.readouterr().out == "", "a table of nothing"
    false_wins([*few, "22"])
    assert "| equal | 1 |" in capsys.readouterr().out

"""A run of three stages with a reset between: its settings, and what its run folder has to show."""

import json
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from tests.metrics_page import explained

NEWS = {
    "World": "ministers of {} countries met and signed a treaty",
    "Sports": "the home team won its match by {} goals",
    "Business": "shares of the bank rose by {} percent",
    "Sci/Tech": "the probe sent {} pictures of the comet",
}


def three_stages(folder: Path) -> tuple[str, ...]:
    """sentiment for a step, AG News for two, both for one. folder: for a few rows of news in place of the hub's."""
    data = folder / "data"
    data.mkdir()
    rows = [{"text": text.format(number), "label": label} for number in range(2, 12) for label, text in NEWS.items()]
    for name, part in (("test", rows[:8]), ("train", rows[8:])):
        (data / f"agnews_{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in part), encoding="utf-8")
    stages: list[dict[str, Any]] = [
        {"training": {"num_stage_steps": steps}, "data": {"tasks": tasks}}
        for steps, tasks in ((1, ["sentiment"]), (2, ["ag_news"]), (1, ["sentiment", "ag_news"]))
    ]
    return (
        f"stages={json.dumps(stages)}",
        "reset_model=true",
        f"data.local_dir={data}",
        "warmup_steps=2",
        "race_share=0.7",
    )


def check_stages(run: Path, model: Path, stdout: str) -> None:
    """Which stage every line is of, the proof of each reset, and how each stage begins and ends."""
    log, dev, metrics = (
        [json.loads(line) for line in (run / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()]
        for name in ("log", "dev", "metrics")
    )
    assert {key for line in metrics for key in line if explained(key) is None} == set()
    places = [(line["step"], line["stage"]) for line in metrics]
    assert places == [(0, 0), (1, 0), (1, 1), (1, 1), (2, 1), (3, 1), (3, 2), (3, 2), (4, 2)]
    tasks = [{line["dataset_name"] for line in log if line["stage"] == stage} for stage in range(3)]
    assert tasks == [{"sentiment"}, {"ag_news"}, {"sentiment", "ag_news"}]
    assert {(line["stage"], line["role"]) for line in dev} >= {(stage, "race") for stage in range(3)}

    base = sum(float(weight.double().abs().sum()) for weight in load_file(model / "model.safetensors").values())
    resets = [line["reset"] for line in metrics if "reset" in line]
    assert len(resets) == 2
    for reset in resets:
        assert reset["base"] == pytest.approx(base, rel=1e-9)
        before, after = ([rank[point] for rank in reset["ranks"]] for point in ("before", "after"))
        assert len(before) == 2
        assert [rank["weights"] for rank in after] == pytest.approx([base] * 2, rel=1e-9)
        assert sum(rank["masters"] for rank in after) == pytest.approx(base, rel=1e-9)
        assert [rank["weights"] for rank in before] != pytest.approx([base] * 2, rel=1e-9), "it had been trained"
        assert sum(rank["masters"] for rank in before) != pytest.approx(base, rel=1e-9)
    gaps = [line["sampler_gap"] for line in metrics if "sampler_gap" in line]
    assert len(gaps) == 4
    assert max(gaps) < 1e-4, "vLLM samples from what the trainer has, after a reset too"
    rates = [line["learning_rate"] for line in metrics if "learning_rate" in line]
    assert rates == pytest.approx([5e-5, 5e-5, 1e-4, 5e-5]), "each stage warms up anew"

    best = json.loads((run / "best.json").read_text(encoding="utf-8"))
    assert list(best) == ["sentiment", "ag_news"]
    for name, entry in best.items():
        (earlier,) = entry["earlier"]
        assert (entry["stage"], earlier["stage"]) == (2, ["sentiment", "ag_news"].index(name))
        assert entry["baseline"]["instruction"] == earlier["instruction"]
        asked = {line["instruction"] for line in log if line["stage"] == 2 and line["dataset_name"] == name}
        assert asked == {earlier["instruction"]}
    tested = [(line["stage"], line["row"], line["rewrite"]) for line in dev if line["role"] == "test"]
    assert len(set(tested)) == len(tested), "one test a stage"
    assert "stage 3 of 3" in stdout
    assert "the model is the base model again" in stdout
    assert "stage 3" in (run / "report.html").read_text(encoding="utf-8")

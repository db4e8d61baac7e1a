"""`evaluation.benchmarks`: what a run measures by itself at its end."""

import json
from pathlib import Path

import pytest

from prewrite.config import TaskModelSettings
from prewrite.config.loading import load_config
from prewrite.engine.task_model import TaskModel
from prewrite.errors import UserError
from prewrite.training.benchmarks import check_benchmarks, evaluate_benchmarks
from tests.fault_server import FaultServer
from tests.test_evaluation_command import (  # noqa: F401  # the fixture
    GOOD,
    INITIAL,
    point_config_at,
    run_folder,
    says_good_where_told,
)


def test_a_run_measures_its_best_on_the_benchmarks_it_names(
    run_folder: Path,  # noqa: F811
    capsys: pytest.CaptureFixture[str],
) -> None:
    best = {"days": {"instruction": GOOD, "baseline": {"instruction": INITIAL}, "task": "days"}}
    (run_folder / "best.json").write_text(json.dumps(best))
    with FaultServer(says_good_where_told) as server:
        point_config_at(run_folder, server.base_url)
        config = load_config(run_folder / "config.json", ['evaluation.benchmarks=["days"]'])
        check_benchmarks(config)
        settings = TaskModelSettings(**config.task_model.model_dump())
        with TaskModel(settings, base_url=server.base_url) as task_model:
            evaluate_benchmarks(config, run_folder, task_model)
    assert len(server.bodies) == 2 * 40  # with the run's own task model: no probe, no other server
    rows = json.loads((run_folder / "evaluation_days.json").read_text())["rows"]
    assert [row["instruction"] for row in rows] == [INITIAL, GOOD]
    out = capsys.readouterr().out
    assert "better than the initial instruction" in out
    assert "Test split: days" in (run_folder / "report.html").read_text(encoding="utf-8")


def test_a_benchmark_that_is_none_is_told_before_training(
    run_folder: Path,  # noqa: F811
) -> None:
    config = load_config(run_folder / "config.json", ['evaluation.benchmarks=["dayz"]'])
    with pytest.raises(UserError, match="'dayz' is no task"):
        check_benchmarks(config)


def test_an_initial_instruction_that_was_kept_is_no_fault(
    run_folder: Path,  # noqa: F811
    capsys: pytest.CaptureFixture[str],
) -> None:
    best = {"days": {"instruction": INITIAL, "baseline": {"instruction": INITIAL}, "task": "days"}}
    (run_folder / "best.json").write_text(json.dumps(best))
    config = load_config(run_folder / "config.json", ['evaluation.benchmarks=["days"]'])
    with TaskModel(config.task_model, base_url="http://127.0.0.1:9/v1") as task_model:
        evaluate_benchmarks(config, run_folder, task_model)
    assert "not evaluated: the prompts hold only the initial instruction" in capsys.readouterr().out

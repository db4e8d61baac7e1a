"""Every shipped config loads, and makes whole groups on the number of ranks that it is meant for."""

from pathlib import Path

import pytest

from prewrite.config.loading import check_world, load_config
from prewrite.tasks.configured import ConfiguredTasks

CONFIGS = sorted((Path(__file__).parents[1] / "configs").glob("*.json"))
RANKS = {"quickstart": (1, 2), "sst2": (1, 2), "math": (1, 2, 4, 7, 8)}


def test_there_is_a_config_for_each_command_of_the_readme():
    assert {"quickstart", "sst2", "math"} <= {path.stem for path in CONFIGS}


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_config_loads(path):
    config = load_config(path)
    assert config.run_name == path.stem
    for task in config.data.tasks:
        assert ConfiguredTasks(config).get(task).name == task
    for ranks in RANKS.get(path.stem, (1,)):
        check_world(config, ranks)

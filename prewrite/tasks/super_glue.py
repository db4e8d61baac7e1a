"""SuperGLUE on the hub: the converted copy, since `datasets` no longer runs the loading script of the main branch."""

from prewrite.tasks.base import HubSplit


def super_glue(config: str, split: str) -> HubSplit:
    """A split of one of SuperGLUE's data sets."""
    return HubSplit("aps/super_glue", split, config=config, revision="refs/convert/parquet")

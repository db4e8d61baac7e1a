"""The README and the table of settings tell the present."""

import re
from pathlib import Path

from scripts.write_settings import coming_over_tables, config_table

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_table_of_settings_is_fresh() -> None:
    page = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
    assert config_table() in page, "run python -m scripts.write_settings"
    page = (ROOT / "docs" / "coming_over.md").read_text(encoding="utf-8")
    assert coming_over_tables() in page, "run python -m scripts.write_settings"


def test_what_it_names_exists() -> None:
    for path in re.findall(r"\]\(([^)#]+)\)|`((?:prewrite|configs|scripts|docs|tests)/[\w./]+)`", README):
        name = path[0] or path[1]
        assert name.startswith("http") or (ROOT / name).exists(), name

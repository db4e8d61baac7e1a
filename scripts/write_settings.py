"""Writes the table of settings into docs/settings.md, from the docstrings in prewrite/config."""

from pathlib import Path

from prewrite.config.table import config_table

START, END = "<!-- settings -->\n", "<!-- /settings -->"


def with_settings(page: str) -> str:
    """The page with a fresh table between its two marks."""
    head, rest = page.split(START)
    return head + START + config_table() + END + rest.split(END)[1]


if __name__ == "__main__":
    path = Path(__file__).parent.parent / "docs" / "settings.md"
    path.write_text(with_settings(path.read_text(encoding="utf-8")), encoding="utf-8")

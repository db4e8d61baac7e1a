"""Writes the table of settings into README.md, from the docstrings in prewrite/config.py."""

from pathlib import Path

from prewrite.config_loading import config_table

START, END = "<!-- settings -->\n", "<!-- /settings -->"


def with_settings(readme: str) -> str:
    """The README with a fresh table between its two marks."""
    head, rest = readme.split(START)
    return head + START + config_table() + END + rest.split(END)[1]


if __name__ == "__main__":
    path = Path(__file__).parent.parent / "README.md"
    path.write_text(with_settings(path.read_text(encoding="utf-8")), encoding="utf-8")

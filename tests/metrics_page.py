"""docs/metrics.md as a table: by key of metrics.jsonl its word on the console. A part in capitals stands for a name."""

import re
from pathlib import Path

_PAGE = (Path(__file__).parent.parent / "docs" / "metrics.md").read_text(encoding="utf-8")
CONSOLE_WORDS = dict(re.findall(r"^\| `([^`]+)` \| (.*?) \| .+ \|$", _PAGE, re.MULTILINE))


def explained(key: str) -> str | None:
    """The table's key that stands for a key of metrics.jsonl; None where it says nothing."""
    patterns = {known: re.sub("NAME|ROW", ".+", re.escape(known)) for known in CONSOLE_WORDS}
    return next((known for known, pattern in patterns.items() if re.fullmatch(pattern, key, re.DOTALL)), None)

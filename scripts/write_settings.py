"""Writes the table of settings into docs/settings.md, from the docstrings in prewrite/config."""

import json
from pathlib import Path

from pydantic import BaseModel

from prewrite.config.run import Config, sections

START, END = "<!-- settings -->\n", "<!-- /settings -->"


def config_table() -> str:
    """The table of every setting, as Markdown, from the docstrings in `prewrite/config`."""
    lines = ["| key | default | meaning |", "| --- | --- | --- |"]
    models = [*sections(), ("custom_tasks[]", _item_model("custom_tasks"))]
    for section, model in models:
        title = " ".join((model.__doc__ or "").split())
        lines.append(f"| **{section or 'top level'}** | | {title} |")
        for name, info in model.model_fields.items():
            if info.description is None:
                continue
            default = "required" if info.is_required() else f"`{json.dumps(info.default, ensure_ascii=False)}`"
            if name == "meta_instruction":
                default = "see `prewrite/config/rollout.py`"
            lines.append(f"| `{name}` | {default} | {info.description} |")
    return "\n".join(lines) + "\n"


def _item_model(field: str) -> type[BaseModel]:
    return Config.model_fields[field].annotation.__args__[0]  # type: ignore[union-attr]  # list[Model]


def with_settings(page: str) -> str:
    """The page with a fresh table between its two marks."""
    head, rest = page.split(START)
    return head + START + config_table() + END + rest.split(END)[1]


if __name__ == "__main__":
    path = Path(__file__).parent.parent / "docs" / "settings.md"
    path.write_text(with_settings(path.read_text(encoding="utf-8")), encoding="utf-8")

"""Writes the tables of docs/settings.md, docs/coming_over.md and docs/metrics.md, from the code."""

import json
from pathlib import Path

from pydantic import BaseModel

from prewrite.config.coming_over import DEFAULTS, MOVED, OLD_VALUES, SAME
from prewrite.config.run import Config, sections
from prewrite.reporting.metrics import metrics_table

START, END = "<!-- settings -->\n", "<!-- /settings -->"
ROOT = Path(__file__).parent.parent


def config_table() -> str:
    """The table of every setting, as Markdown, from the docstrings in `prewrite/config`."""
    lines = ["| key | default | meaning |", "| --- | --- | --- |"]
    models = [*sections(), *((f"{name}[]", _item_model(name)) for name in ("custom_tasks", "stages"))]
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


def coming_over_tables() -> str:
    """What became of the settings of TRL, open-r1 and the first PRewrite, as Markdown, from the table in the code."""
    fields = {f"{where}.{name}": info for where, model in sections() for name, info in model.model_fields.items()}
    fields |= {name: info for name, info in Config.model_fields.items()}
    lines = ["| their setting | here | |", "| --- | --- | --- |"]
    for row in MOVED:
        lines.append(f"| {_code(*row.old)} | {_code(row.new) if row.new else 'none'} | {row.note} |")
    lines += ["", "Of the same name:", "", "| section | settings |", "| --- | --- |"]
    for section, model in sections():
        if same := [name for name in SAME if name in model.model_fields]:
            lines.append(f"| {_code(section) if section else 'top level'} | {_code(*same)} |")
    lines += ["", "Values:", "", "| setting | their value | here |", "| --- | --- | --- |"]
    lines += [f"| {_code(row.setting)} | {_code(json.dumps(row.value))} | {row.instead} |" for row in OLD_VALUES]
    lines += ["", "Defaults that are others than TRL's:", "", "| setting | here | TRL |", "| --- | --- | --- |"]
    lines += [f"| {_code(key)} | {_code(json.dumps(fields[key].default))} | {theirs} |" for key, theirs in DEFAULTS]
    return "\n".join(lines) + "\n"


def _code(*names: str) -> str:
    return ", ".join(f"`{name}`" for name in names)


def with_table(page: str, table: str) -> str:
    """The page with a fresh table between its two marks."""
    head, rest = page.split(START)
    return head + START + table + END + rest.split(END)[1]


if __name__ == "__main__":
    tables = {"settings": config_table(), "coming_over": coming_over_tables(), "metrics": metrics_table()}
    for name, table in tables.items():
        path = ROOT / "docs" / f"{name}.md"
        path.write_text(with_table(path.read_text(encoding="utf-8"), table), encoding="utf-8")

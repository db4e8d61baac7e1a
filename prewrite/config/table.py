"""The table of every setting, for docs/settings.md."""

import json

from pydantic import BaseModel

from prewrite.config.run import Config, sections


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

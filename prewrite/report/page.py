"""The page: Jinja2 templates (which escape whatever they show), the style, and the scripts, all inlined."""

import base64
import functools
import hashlib
import json
import re
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import jinja2
import plotly.offline
from markupsafe import Markup, escape

from prewrite.config.changes import flat_settings
from prewrite.errors import UserError
from prewrite.report import bouts, figures, story
from prewrite.report.folder import RunFolder, interval, number, read_folders, text
from prewrite.reporting.looks import look_rows
from prewrite.writing import write_whole

REPORT = "report.html"
COMPARISON = "comparison.html"


def write_report(folders: Sequence[Path], out: Path | None = None) -> Path:
    """Writes the report of a run, or the comparison of several, and says where it lies. Raises UserError."""
    runs = read_folders(folders)
    path = out or (runs[0].path / REPORT if len(runs) == 1 else runs[0].path.parent / COMPARISON)
    content = report_page(runs[0]) if len(runs) == 1 else comparison_page(runs)
    try:
        write_whole(path, content)
    except OSError as error:
        raise UserError(f"{path} could not be written ({error.strerror}); name another file: --out FILE") from error
    return path


def report_page(run: RunFolder) -> str:
    """The report of one run, as HTML."""
    rows = [_row(run, name, entry) for name, entry in run.best.items()]
    return _render(
        "run.html",
        title=run.name,
        run=run,
        rows=rows,
        looks=look_rows(run.dev),
        reward=figures.reward_figure(run),
        imitation=figures.imitation_figure(run),
        held_out_losses=run.series("dev_loss")[1],
        health=figures.health_figures(run),
        spending=story.spending(run),
        bouts_of=bouts.bouts_of,
        phase_totals=story.phases(run),
        phase_figure=figures.phase_figure(run),
        metrics=figures.small_multiples([run]),
        settings=flat_settings(run.config),
    )


def comparison_page(runs: Sequence[RunFolder]) -> str:
    """Several runs side by side, as HTML."""
    names = list(dict.fromkeys(name for run in runs for name in run.best))
    rows = [(name, [(run, _outcome(run.best[name])) for run in runs if name in run.best]) for name in names]
    return _render(
        "comparison.html",
        title=f"{len(runs)} runs compared",
        runs=runs,
        rows=rows,
        by_step=figures.reward_comparison(runs, by_calls=False),
        by_calls=figures.reward_comparison(runs, by_calls=True),
        metrics=figures.small_multiples(runs),
        differing=story.differing_settings(runs),
    )


def _row(run: RunFolder, name: str, entry: dict[str, Any]) -> dict[str, Any]:
    ran = story.candidates(run, name, entry)
    return _outcome(entry) | {
        "name": name,
        "dev": figures.held_out_figure(run, name, entry),
        "race": figures.race_figure(ran),
        "rounds": story.rounds(run, name, entry),
        "candidates": [one for one in ran if one.rank <= story.SHOWN_CANDIDATES or one.is_initial or one.is_best],
        "num_ran": len(ran),
        "lineage": story.lineage(run, entry),
        "stages": story.stages(entry),
        "duels": story.duels(run, name, entry),
        "tests": story.tested(run, name, entry),
        "bouts": bouts.bouts(run, name),
    }


def _outcome(entry: dict[str, Any]) -> dict[str, Any]:
    """What best.json says of a row, in the words of the page."""
    initial, best = text(entry["baseline"].get("instruction")), text(entry.get("instruction"))
    old, new = story.differences(initial, best)
    return {"entry": entry, "claim": story.claim(entry), "initial": initial, "best": best, "old": old, "new": new}


def _percent(value: Any, digits: int = 1) -> str:
    known = number(value)
    return "–" if known is None else f"{100 * known:.{digits}f}%"


def _count(value: Any) -> str:
    known = number(value)
    return "–" if known is None else f"{known:,.0f}"


def _duration(value: Any) -> str:
    known = number(value)
    if known is None:
        return "–"
    minutes, seconds = divmod(round(known), 60)
    if minutes >= 60:
        return f"{minutes // 60} h {minutes % 60:02d} min"
    return f"{minutes} min {seconds:02d} s" if minutes else f"{known:.1f} s"


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _breakable(name: str) -> Markup:
    """A metric's name, which may break behind its joints."""
    return Markup(re.sub(r"([_/.])", r"\1<wbr>", str(escape(name))))


def _data(figure: Any) -> Markup:
    """JSON for the inside of a script element: without "<" nothing in it can end the element or open a comment."""
    return Markup(json.dumps(figure, allow_nan=False).replace("<", "\\u003c"))


@functools.cache
def _environment() -> jinja2.Environment:
    loader = jinja2.PackageLoader("prewrite.report")
    environment = jinja2.Environment(loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {"percent": _percent, "count": _count, "duration": _duration, "shown": _shown}
    environment.filters |= {"data": _data, "breakable": _breakable, "interval": interval, "number": number}
    environment.undefined = jinja2.StrictUndefined
    return environment


def _render(template: str, **values: Any) -> str:
    own = resources.files("prewrite.report") / "templates"
    style, script = ((own / name).read_text(encoding="utf-8") for name in ("style.css", "page.js"))
    scripts = [plotly.offline.get_plotlyjs(), script]
    # Only these scripts may run and nothing may be loaded, whatever a text on the page says.
    hashes = " ".join(f"'sha256-{base64.b64encode(hashlib.sha256(s.encode()).digest()).decode()}'" for s in scripts)
    policy = f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src {hashes}"
    inlined = [Markup(part) for part in scripts]
    return _environment().get_template(template).render(policy=policy, style=Markup(style), scripts=inlined, **values)

"""The figures, as Plotly's own JSON. Colours are names ("--accent", "--accent/0.2") that the page's script resolves for
light and dark; text from a model is escaped, since Plotly reads tags in text."""

import html
import itertools
import textwrap
from collections import Counter
from collections.abc import Sequence
from typing import Any

from prewrite.report.folder import Line, RunFolder, interval, number
from prewrite.report.story import Candidate, dev_lines, metric_names, phases

Figure = dict[str, Any]
COLOURS = ("--c1", "--c2", "--c3", "--c4", "--c5", "--c6", "--c7", "--c8")
_SMOOTH = 0.3  # weight of the newest step in a running mean
_SPREAD, _GOLDEN = 1.4, 0.618  # of points with the same place: the width, and a turn that never repeats


def label(words: str, width: int = 60, most: int = 400) -> str:
    """A text as a figure may show it: escaped, wrapped, cut."""
    lines = textwrap.wrap(words if len(words) <= most else words[:most] + " …", width) or [""]
    return "<br>".join(html.escape(line) for line in lines)


def reward_figure(run: RunFolder) -> Figure | None:
    """Mean reward by step with a band of one standard deviation, its running mean, and the best rollout's."""
    steps, means = run.series("reward_mean")
    if not steps:
        return None
    spread = dict(zip(*run.series("reward_std"), strict=True))
    width = [spread.get(step, 0.0) for step in steps]
    best_steps, best = run.series("reward_max")
    return _with_stages(run, _figure(
        [
            *_band(steps, [m - w for m, w in zip(means, width, strict=True)],
                   [m + w for m, w in zip(means, width, strict=True)], "--c1", "± standard deviation"),
            _line(best_steps, best, "--muted", "best rollout", width=1, dash="dot"),
            _line(steps, means, "--c1/0.5", "mean of a step", width=1.2),
            _line(steps, smoothed(means), "--c1", "running mean", width=2.6),
        ],
        y="reward",
    ))  # fmt: skip


def imitation_figure(run: RunFolder) -> Figure | None:
    """SFT's loss by step, on the rows of a step and on held-out ones; None of another run."""
    steps, losses = run.series("dev_loss")
    if not steps:
        return None
    looks = _line(steps, losses, "--c1", "held out", width=2.6) | {"mode": "lines+markers", "cliponaxis": False}
    return _figure([_line(*run.series("loss"), "--c1/0.5", "rows of a step", width=1.2), looks], y="loss")


def held_out_figure(run: RunFolder, row: str, chosen: Line) -> Figure | None:
    """A row's scores on dev by step: the initial instruction, greedy and sampled rewrites, the best by estimate, and
    at the end what was chosen."""
    traces: list[Figure] = []
    greedy = {number(line.get("step")): interval(line.get("interval")) for line in dev_lines(run, row, "greedy")}
    sampled: dict[Any, list[float]] = {}
    for line in dev_lines(run, row, "sampled"):
        if (score := number(line.get("score"))) is not None:
            sampled.setdefault(number(line.get("step")), []).append(score)
    ranges = {step: (min(scores), max(scores)) for step, scores in sampled.items()}
    last = max(run.series("step")[0], default=0)
    for initial in dev_lines(run, row, "initial"):  # one a stage
        ends, score, first = (interval(initial.get("interval")), *map(number, map(initial.get, ("score", "step"))))
        until = [first or 0, next((end for end in run.stage_ends() if end > (first or 0)), last)]
        if score is not None:
            band = _band(until, [ends[0]] * 2, [ends[1]] * 2, "--muted", "initial, 95%") if ends else []
            again = {"showlegend": False} if traces else {}
            traces += [one | again for one in (*band, _line(until, [score] * 2, "--muted", "initial", dash="dash"))]
    for key, name, colour, bands in (
        (f"dev_sampled_mean/{row}", "sampled: mean, range", "--c2", ranges),
        (f"dev_greedy/{row}", "greedy, 95%", "--c3", greedy),
        (f"dev_best/{row}", "best so far, by estimate", "--c1", {}),
    ):
        steps, values = run.series(key)
        if not steps:
            continue
        trace = _line(steps, values, colour, name) | {"mode": "lines+markers", "cliponaxis": False}
        ends = [bands.get(step) for step in steps]
        if any(ends):
            above = [pair[1] - value if pair else 0 for pair, value in zip(ends, values, strict=True)]
            below = [value - pair[0] if pair else 0 for pair, value in zip(ends, values, strict=True)]
            trace["error_y"] = _errors(above, colour) | {"symmetric": False, "arrayminus": below}
        traces.append(trace)
    estimate, sd = number(chosen.get("estimate")), number(chosen.get("sd"))
    if traces and estimate is not None:
        trace = _line([last], [estimate], "--c4", "chosen in the end, ± sd") | {"mode": "markers", "cliponaxis": False}
        marker = {"marker": {"symbol": "diamond", "size": 11, "color": "--c4"}}
        traces.append(trace | marker | {"error_y": _errors([sd or 0.0], "--c4")})
    return _with_stages(run, _figure(traces, y="score on dev", percent=True)) if traces else None


def health_figures(run: RunFolder) -> list[tuple[str, str, Figure]]:
    """(title, what to look for, figure): groups without a signal, and the distance of sampler and trainer."""
    wanted = (
        ("Groups and rollouts without a signal", "A flat group, all rewards alike, teaches nothing.", True,
         (("flat_groups", "flat groups"), ("no_verdict", "no verdict"), ("truncated", "truncated"))),
        ("Sampler gap", "Mean and largest |log-prob trainer − sampler|; a jump means stale weights.", False,
         (("sampler_gap", "mean"), ("sampler_gap_max", "largest"))),
        ("Entropy", "A fall to zero: the policy writes the same thing always.", False, (("entropy", "entropy"),)),
        ("Length", "Of what the policy writes, in tokens.", False,
         (("completion_length_mean", "mean"), ("completion_length_max", "longest"))),
    )  # fmt: skip
    found = []
    for title, note, percent, keys in wanted:
        coloured = zip(keys, COLOURS, strict=False)
        traces = [_line(*run.series(key), colour, name) for (key, name), colour in coloured if run.series(key)[0]]
        if traces:
            found.append((title, note, _with_stages(run, _figure(traces, percent=percent))))
    return found


def race_figure(ran: Sequence[Candidate]) -> Figure | None:
    """Every contender: examples it was asked on (later rounds lie to the right) against its estimate, ± one sd."""
    if not ran:
        return None
    traces = []
    for name, colour, size, chosen in (
        ("contenders", "--c2", 6, [one for one in ran if not one.is_best and not one.is_initial]),
        ("initial", "--ink", 10, [one for one in ran if one.is_initial]),
        ("best", "--c1", 12, [one for one in ran if one.is_best and not one.is_initial]),
    ):
        if not chosen:
            continue
        asked = [one.asked for one in chosen]
        traces.append({
            "type": "scatter", "mode": "markers", "name": name, "x": _side_by_side(asked), "customdata": asked,
            "y": [one.estimate for one in chosen], "error_y": _errors([one.sd for one in chosen], f"{colour}/0.25"),
            "marker": {"color": colour, "size": size, "symbol": "diamond" if size > 6 else "circle"},
            "text": [label(one.text) for one in chosen],
            "hovertemplate": "%{y:.1%} after %{customdata} examples<br>%{text}<extra></extra>",
        })  # fmt: skip
    figure = _figure(traces, y="estimate", x="examples asked on (log scale)", percent=True)
    figure["layout"]["xaxis"] |= {"type": "log", "tickmode": "array", **_ticks(ran)}
    figure["layout"]["hovermode"] = "closest"
    return figure


def phase_figure(run: RunFolder) -> Figure | None:
    """Seconds of each phase by step, stacked."""
    names = [name for name, _ in phases(run) if name != "other"]
    traces = []
    for name, colour in zip(names, COLOURS, strict=False):
        steps, seconds = run.series(f"seconds/{name}")
        template = "%{y:.1f} s<extra>" + label(name) + "</extra>"
        bars = {"type": "bar", "name": label(name), "x": steps, "y": seconds, "marker": {"color": colour}}
        traces.append(bars | {"hovertemplate": template})
    figure = _figure(traces, y="seconds") if traces else None
    if figure:
        figure["layout"] |= {"barmode": "stack", "bargap": 0.15}
    return figure


def small_multiples(runs: Sequence[RunFolder]) -> list[tuple[str, str, Figure]]:
    """(metric, its last value, figure) for every metric; a line a run."""
    found = []
    ends = [0, max((step for run in runs for step in run.series("step")[0]), default=1)]
    for key in metric_names(runs):
        traces, last = [], ""
        for run, colour in zip(runs, COLOURS * len(runs), strict=False):
            steps, values = run.series(key)
            if not steps:
                continue
            sparse = {"mode": "lines+markers", "cliponaxis": False} if len(steps) < 4 else {}
            traces.append(_line(steps, values, colour, label(run.name), width=1.6) | sparse)
            last = f"{values[-1]:.4g}"
        figure = _figure(traces, small=True)
        if all(len(trace["x"]) == 1 for trace in traces):
            figure["layout"]["xaxis"] |= {"range": ends}
        found.append((key, last if len(runs) == 1 else "", figure))
    return found


def reward_comparison(runs: Sequence[RunFolder], *, by_calls: bool) -> Figure | None:
    """Running mean of the reward of each run, by step or by the task calls spent until then."""
    traces = []
    for run, colour in zip(runs, COLOURS * len(runs), strict=False):
        steps, means = run.series("reward_mean")
        places = dict(zip(steps, steps, strict=True))
        if by_calls:
            counted, each = run.series("task_calls")
            places = dict(zip(counted, itertools.accumulate(each), strict=True))
        pairs = zip(steps, smoothed(means), strict=True)
        if kept := [(places[step], mean) for step, mean in pairs if step in places]:
            traces.append(_line([x for x, _ in kept], [y for _, y in kept], colour, label(run.name), width=2.2))
    return _figure(traces, y="reward, running mean", x="task calls" if by_calls else "step") if traces else None


def smoothed(values: Sequence[float]) -> list[float]:
    """The running mean: exponential, from the first value on."""
    out: list[float] = []
    for value in values:
        out.append(out[-1] + _SMOOTH * (value - out[-1]) if out else value)
    return out


def _line(xs: Sequence[float], ys: Sequence[float], colour: str, name: str, *, width: float = 2, dash: str = "solid"):
    line = {"color": colour, "width": width, "dash": dash}
    template = "%{y:.4~g}<extra>" + name + "</extra>"
    return {"type": "scatter", "mode": "lines", "x": list(xs), "y": list(ys), "name": name, "line": line} | {
        "hovertemplate": template
    }


def _band(xs: Sequence[float], low: Sequence[float], high: Sequence[float], colour: str, name: str) -> list[Figure]:
    edge = {"type": "scatter", "mode": "lines", "x": list(xs), "hoverinfo": "skip", "line": {"width": 0}}
    filled = {"fill": "tonexty", "fillcolor": f"{colour}/0.16", "name": name, "showlegend": True}
    return [edge | {"y": list(low), "showlegend": False}, edge | {"y": list(high)} | filled]


def _errors(widths: Sequence[float], colour: str) -> Figure:
    return {"type": "data", "array": list(widths), "color": colour, "thickness": 1.2, "width": 0}


def _side_by_side(asked: Sequence[int]) -> list[float]:
    """The same numbers, those that are alike spread over a little width, so that no point hides the others."""
    count: Counter[int] = Counter()
    placed = []
    for n in asked:
        count[n] += 1
        placed.append(max(n, 1) * _SPREAD ** ((count[n] * _GOLDEN) % 1 - 0.5))
    return placed


def _ticks(ran: Sequence[Candidate]) -> Figure:
    asked = sorted({one.asked for one in ran if one.asked > 0})
    kept = [n for i, n in enumerate(asked) if not i or n >= 1.35 * asked[i - 1]]
    return {"tickvals": kept, "ticktext": [str(n) for n in kept]}


def _figure(traces: Sequence[Figure], *, x: str = "step", y: str = "", percent: bool = False, small: bool = False):
    axis = {"gridcolor": "--line", "zeroline": False, "linecolor": "--line", "fixedrange": True, "automargin": True}
    xaxis, yaxis = axis | {"showgrid": False}, axis | {"nticks": 4 if small else 7}
    if small:
        xaxis |= {"nticks": 4}
        yaxis |= _range_of_a_constant([value for trace in traces for value in trace["y"]])
    else:
        xaxis |= {"title": {"text": x, "standoff": 8, "font": {"size": 12}}}
        yaxis |= {"title": {"text": y, "standoff": 8, "font": {"size": 12}}}
    if x == "step" and max((place for trace in traces for place in trace["x"]), default=9) < 9:
        xaxis |= {"dtick": 2 if small else 1}  # by itself the axis would have halves of a step
    if percent:
        yaxis |= {"tickformat": ".0%"}
    has_legend = not small and len(traces) > 1
    layout = {
        "xaxis": xaxis,
        "yaxis": yaxis,
        "showlegend": has_legend,
        "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom", "bgcolor": "--none"},
        "margin": {"l": 8, "r": 8, "t": 30 if has_legend else 8, "b": 8},
        "hovermode": "x" if small else "x unified",
        "dragmode": False,
        "paper_bgcolor": "--none",
        "plot_bgcolor": "--none",
        "font": {"family": "system-ui, sans-serif", "size": 11 if small else 12.5, "color": "--ink"},
        "hoverlabel": {"bgcolor": "--card", "bordercolor": "--line", "font": {"color": "--ink"}, "align": "left"},
    }
    return {"data": list(traces), "layout": layout}


def _with_stages(run: RunFolder, figure: Figure) -> Figure:
    """The figure with a line where each stage but the first begins."""
    line = {"type": "line", "yref": "paper", "y0": 0, "y1": 1, "line": {"color": "--muted", "width": 1, "dash": "dot"}}
    words = {"showarrow": False, "yref": "paper", "y": 1, "yanchor": "top", "xanchor": "left", "font": {"size": 11}}
    words |= {"bgcolor": "--card/0.6"}  # a curve may pass there
    places = [(end + 0.5, f"stage {number}") for number, end in enumerate(run.stage_ends(), start=2)]
    figure["layout"]["shapes"] = [line | {"x0": place, "x1": place} for place, _ in places]
    figure["layout"]["annotations"] = [words | {"x": place, "text": told} for place, told in places]
    return figure


def _range_of_a_constant(values: Sequence[float]) -> Figure:
    """From zero to twice a value that never changes: by itself the axis would show the size of nothing."""
    if len(set(values)) != 1:
        return {}
    return {"range": sorted((0.0, 2.0 * values[0])) if values[0] else [-0.1, 1.0]}

"""The model card: README.md of an exported folder, with the figures of its run."""

import json
from pathlib import Path
from typing import Any

from prewrite.config.rollout import PLACE
from prewrite.model_folder import name_of
from prewrite.report.folder import RunFolder, interval, number, text

ENDS = 10  # steps whose mean reward stands for the start and for the end


def model_card(name: str, checkpoint: str, run: RunFolder | None, adapter_on: str | None = None) -> str:
    """Markdown, whatever the run's texts hold: instructions stand in indented blocks, which nothing can end.

    adapter_on: the base model of an adapter's folder.
    """
    base = adapter_on or (str(run.setting("policy", "model") or "") if run is not None else "")
    library = "peft" if adapter_on else "transformers"
    is_sft = run is not None and run.config.get("method") == "sft"
    tags = ["prewrite", "sft" if is_sft else "grpo"]
    head = {"library_name": library, "pipeline_tag": "text-generation", "tags": tags}
    if base.count("/") == 1 and base[0] not in "./~" and not Path(base).exists():
        head["base_model"] = base
    lines = ["---", *(f"{key}: {json.dumps(value)}" for key, value in head.items()), "---", f"# {_inline(name)}", ""]
    rewrites = "rewrites instructions, so that a frozen task model does a task better"
    lines += [f"A language model that {'imitates the rows of its run (SFT)' if is_sft else rewrites}.", ""]
    if run is None:
        return "\n".join(lines)
    lines += [f"Trained by PRewrite, run `{_inline(run.name)}`, checkpoint `{checkpoint}`.", "", *_figures(run)]
    if is_sft:
        return "\n".join(lines) + "\n"
    for row, entry in run.best.items():
        lines += ["", f"## {_inline(row)}", "", *_result(entry)]
    for evaluation in run.evaluations.values():
        lines += _measured(evaluation)
    if meta := run.setting("rollout", "meta_instruction"):
        how = "an empty line, and\nthe instruction to rewrite:"
        if PLACE in str(meta):
            how = f"with\nthe instruction to rewrite in place of `{PLACE}`:"
        lines += ["", "## Request", "", f"One user turn in the chat template, of this meta-instruction, {how}"]
        lines += ["", *_block(str(meta))]
    lines += ["", *_block(f"python -m prewrite.rewrite --rewriter {name} --instructions rows.jsonl")]
    return "\n".join(lines) + "\n"


def _figures(run: RunFolder) -> list[str]:
    rewards, losses = run.series("reward_mean")[1], run.series("dev_loss")[1]
    figures: dict[str, Any] = {
        "steps": run.totals.get("steps"),
        "task calls": run.totals.get("task_calls"),
        "hours": None if (seconds := number(run.totals.get("seconds"))) is None else f"{seconds / 3600:.2f}",
        "task model": None if (model := run.setting("task_model", "model")) is None else name_of(str(model)),
        "seed": run.config.get("seed"),
    }
    if losses:
        figures["held-out loss, before and after"] = f"{losses[0]:.3f}, {losses[-1]:.3f}"
    if rewards:
        first, last = rewards[:ENDS], rewards[-ENDS:]
        figures[f"mean reward, first {len(first)} steps"] = f"{sum(first) / len(first):.3f}"
        figures[f"mean reward, last {len(last)} steps"] = f"{sum(last) / len(last):.3f}"
    shown = {key: f"{value:,.0f}" if isinstance(value, float) else value for key, value in figures.items()}
    return ["| | |", "| --- | --- |", *(f"| {key} | {_inline(str(v))} |" for key, v in shown.items() if v is not None)]


def _result(entry: dict[str, Any]) -> list[str]:
    baseline, test = entry["baseline"], entry.get("test")
    lines = ["Accuracy on held-out examples, on which the best was chosen, which flatters it (95% intervals):", ""]
    lines += ["| instruction | accuracy |", "| --- | --- |"]
    lines += [f"| initial | {_score(baseline)} |", f"| best | {_score(entry)} |", ""]
    if isinstance(test, dict):
        claim = "better, proven" if test.get("proven") else "not proven to be better"
        n, wins, losses, p = (number(test.get(key)) or 0 for key in ("n", "wins", "losses", "p_value"))
        fought = f"{wins} won, {losses} lost, one-sided p {p:.2g}"
        lines.append(f"One paired test on {n} other examples: {fought}: {claim}.")
    else:
        lines.append("Not tested on other examples.")
    lines += ["", "Initial:", "", *_block(text(baseline.get("instruction")))]
    return [*lines, "", "Best:", "", *_block(text(entry.get("instruction")))]


def _measured(evaluation: dict[str, Any]) -> list[str]:
    """What `evaluate.py` found on a task's test split."""
    split = _inline(f"{evaluation.get('task')}, {evaluation.get('test_split')}")
    lines = ["", f"## Measured by evaluate.py: {split}", "", "| instruction | accuracy |", "| --- | --- |"]
    for row in evaluation.get("rows") or ():
        accuracy = row["summary"]["accuracy"] or {}
        bounds = accuracy.get("interval") or {}
        score = {"score": accuracy.get("value"), "interval": [bounds.get("low"), bounds.get("high")]}
        lines.append(f"| {_inline(str(row['role']))} | {_score(score)} |")
    return lines


def _score(entry: dict[str, Any]) -> str:
    score, bounds = number(entry.get("score")), interval(entry.get("interval"))
    if score is None:
        return "no verdict"
    return f"{100 * score:.1f}" + (f" [{100 * bounds[0]:.1f}, {100 * bounds[1]:.1f}]" if bounds else "")


def _inline(value: str) -> str:
    return " ".join("".join(" " if letter in "`|<>[]" else letter for letter in value).split())


def _block(value: str) -> list[str]:
    return [f"    {line}" for line in value.splitlines() or [""]]

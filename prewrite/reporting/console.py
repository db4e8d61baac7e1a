"""What a person reads while a run goes on: one line a step, a bar with the time left, and the outcome."""

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from tqdm import tqdm

from prewrite.terminal import progress_bar
from prewrite.types import Rollout

SHOWN_CHARACTERS = 400
PHASES = ("rollout", "scoring", "training", "push", "dev")


class Console:
    """Prints on rank 0; on the other ranks it is silent."""

    def __init__(self, total_steps: int, *, is_main: bool):
        self.is_main = is_main
        self.bar = progress_bar(total_steps if is_main else 0, "step")

    def say(self, text: str) -> None:
        """A line above the bar."""
        if self.is_main:
            tqdm.write(text, file=sys.stdout)
            sys.stdout.flush()

    def step(self, metrics: Mapping[str, Any], *, shown: bool = True) -> None:
        """Moves the bar by a step, and prints its line where it is `shown`."""
        if shown:
            self.say(step_line(metrics, self.bar.total or 0))
        self.bar.update()

    def rewrites(self, rollouts: Sequence[Rollout], count: int) -> None:
        """Up to `count` different rewrites with their rewards, from the best to the worst, evenly spread."""
        by_text = {one.output: one for one in rollouts}
        ranked = sorted(by_text.values(), key=lambda one: float("inf") if one.reward is None else -one.reward)
        count = min(count, len(ranked))
        for place in range(count):
            one = ranked[place * (len(ranked) - 1) // max(1, count - 1)]
            text = one.output or one.sample.text
            cut = f"{text[:SHOWN_CHARACTERS]!r}{'...' if len(text) > SHOWN_CHARACTERS else ''}"
            self.say(f"  {_number(one.reward):>6}  {cut if one.output else f'no rewrite in {cut}'}")

    def close(self) -> None:
        """Leaves the bar as it stands."""
        self.bar.close()


def step_line(metrics: Mapping[str, Any], total_steps: int) -> str:
    """A step in one line: reward, what the optimizer did, health of the sampler, seconds of each phase; in SFT, which
    has an epoch, without reward and sampler."""

    def said(word: str, key: str, digits: int = 3) -> str:
        return f"{word} {_number(metrics.get(key), digits)}"

    parts = [f"step {metrics['step']:>{len(str(total_steps))}}/{total_steps}"]
    update = [said("loss", "loss", 4), said("grad", "grad_norm", 2)]
    update += [said("kl", "kl", 4)] if metrics.get("kl") is not None else []
    if "epoch" in metrics:
        parts += [said("epoch", "epoch", 2), *update, said("entropy", "entropy", 2), said("tokens", "tokens", 0)]
    else:
        deviation, clip_high = (_number(metrics.get(key)) for key in ("reward_std", "clip_high"))
        parts.append(f"{said('reward', 'reward_mean')} ±{deviation} {said('max', 'reward_max')}")
        parts += [*update, f"{said('clip', 'clip_low')}/{clip_high}", said("entropy", "entropy", 2)]
        parts += [said("gap", "sampler_gap"), said("length", "completion_length_mean", 0)]
    if metrics.get("flat_groups"):
        parts.append(f"flat {metrics['flat_groups']:.0%}")
    if metrics.get("carried_answers"):
        parts.append(f"carried {metrics['carried_answers']:.0f}, {metrics['carried_pushes_max']:.0f} pushes")
    if metrics.get("failed_calls"):
        parts.append(f"FAILED CALLS {metrics['failed_calls']:.0f}")
    seconds = [f"{phase} {metrics[f'seconds/{phase}']:.1f}" for phase in PHASES if metrics.get(f"seconds/{phase}")]
    parts.append(f"{metrics.get('seconds/step', 0):.1f} s ({', '.join(seconds)})")
    measured = {key.removeprefix("dev_"): value for key, value in metrics.items() if key.startswith("dev_")}
    of_many = {measure for measure in measured if "/" not in measure}  # the mean of rows stands for them
    dev = [f"{key} {value:.3f}" for key, value in measured.items() if key.partition("/")[0] not in of_many - {key}]
    return " | ".join(parts + ([f"dev: {', '.join(dev)}"] if dev else []))


def outcome(best: Mapping[str, Any], spent: Mapping[str, str], run_folder: str) -> str:
    """The end of a run, from what best.json holds: for each row what was spent, both instructions, and the claim."""
    lines = []
    for name, entry in best.items():
        baseline = entry["baseline"]
        command = f"python evaluate.py --prompts {run_folder} --task {entry['task']}"
        lines.append(f"{name}: accuracy on dev with 95% intervals; {spent.get(name, 'no race')}")
        start, kept = ("before", "the one before the stage") if entry.get("earlier") else ("initial", "the initial one")
        lines.append(f"  {start:<8} {_score(baseline)}  {baseline['instruction']!r}")
        if entry["instruction"] == baseline["instruction"]:
            lines.append(f"  best     {kept}: none of {entry['num_candidates'] - 1} rewrites is better by estimate")
            lines += [f"           {line}" for line in (_labels(entry),) if line]
            if (earlier := entry.get("earlier")) and earlier[0]["baseline"] != entry["instruction"]:
                lines.append(f"  found in stage {earlier[-1]['stage'] + 1} or before; measure it: {command}")
            continue
        lines.append(f"  best     {_score(entry)}  {entry['instruction']!r} (written after step {entry['step']})")
        lines += [f"           {line}" for line in (_labels(entry), _claim(entry["test"])) if line]
        flattered = f"chosen among {entry['num_candidates']} on these examples, which flatters its score; "
        lines.append(f"  {'' if entry['score'] is None else flattered}measure it: {command}")
    before = [entry["baseline"]["score"] for entry in best.values()]
    after = [entry["score"] for entry in best.values()]
    if len(best) > 1 and None not in (*before, *after):
        initial, found = sum(before) / len(best), sum(after) / len(best)
        lines.append(f"mean of {len(best)} rows on dev: initial {initial:.3f}, best {found:.3f}")
    return "\n".join(lines)


def _labels(entry: Mapping[str, Any]) -> str:
    """Recall by label and the commonest answer of a classification; "" for other tasks."""
    if not entry.get("recall"):
        return ""
    recall = ", ".join(f"{label} {_number(value, 2)}" for label, value in entry["recall"].items())
    label, share = entry["majority"]
    return f"recall: {recall}; commonest answer: {label} ({share:.0%})"


def _claim(test: Mapping[str, Any] | None) -> str:
    if test is None:
        return "not tested: no dev examples, or no calls, were left for it"
    verdict = "better, proven" if test["proven"] else "within noise, not proven: nothing to deploy yet"
    told = f"test on {test['n']} other examples: {test['wins']} won, {test['losses']} lost"
    return f"{told}, one-sided p {test['p_value']:.2g}: {verdict}"


def _score(entry: Mapping[str, Any]) -> str:
    if entry["score"] is None:
        return "no verdict"
    low, high = entry["interval"]
    return f"{entry['score']:.3f} [{low:.3f}, {high:.3f}]"


def _number(value: float | None, digits: int = 3) -> str:
    return "-" if value is None or value != value else f"{value:.{digits}f}"

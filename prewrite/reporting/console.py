"""What a person reads while a run goes on: one line a step, a bar with the time left, and the outcome."""

import sys
from collections.abc import Mapping
from typing import Any

from tqdm import tqdm

from prewrite.terminal import progress_bar

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

    def close(self) -> None:
        """Leaves the bar as it stands."""
        self.bar.close()


def step_line(metrics: Mapping[str, Any], total_steps: int) -> str:
    """A step in one line: reward, what the optimizer did, health of the sampler, seconds of each phase."""
    number = f"step {metrics['step']:>{len(str(total_steps))}}/{total_steps}"
    parts = [
        number,
        f"reward {_number(metrics.get('reward_mean'))} ±{_number(metrics.get('reward_std'))}"
        f" max {_number(metrics.get('reward_max'))}",
        f"loss {_number(metrics.get('loss'), 4)}",
        f"grad {_number(metrics.get('grad_norm'), 2)}",
        f"clip {_number(metrics.get('clip_low'))}/{_number(metrics.get('clip_high'))}",
        f"entropy {_number(metrics.get('entropy'), 2)}",
        f"gap {_number(metrics.get('sampler_gap'))}",
        f"length {_number(metrics.get('completion_length_mean'), 0)}",
    ]
    if metrics.get("kl") is not None:
        parts.insert(4, f"kl {_number(metrics['kl'], 4)}")
    if metrics.get("flat_groups"):
        parts.append(f"flat {metrics['flat_groups']:.0%}")
    if metrics.get("failed_calls"):
        parts.append(f"FAILED CALLS {metrics['failed_calls']:.0f}")
    seconds = [f"{phase} {metrics[f'seconds/{phase}']:.1f}" for phase in PHASES if metrics.get(f"seconds/{phase}")]
    parts.append(f"{metrics.get('seconds/step', 0):.1f} s ({', '.join(seconds)})")
    dev = [f"{key.removeprefix('dev_')} {value:.3f}" for key, value in metrics.items() if key.startswith("dev_")]
    return " | ".join(parts + ([f"dev: {', '.join(dev)}"] if dev else []))


def outcome(best: Mapping[str, Any]) -> str:
    """The end of a run, from what best.json holds: for each task the initial and the best instruction with scores."""
    lines = []
    for task, entry in best.items():
        baseline = entry["baseline"]
        lines.append(f"{task}: held-out (dev) scores on {baseline['n']} examples, 95% intervals")
        if entry["n"] != baseline["n"]:
            lines.append(f"  failed calls: the best one's score is of {entry['n']} examples")
        lines.append(f"  initial  {_score(baseline)}  {baseline['instruction']!r}")
        if entry["instruction"] == baseline["instruction"]:
            lines.append(f"  best     no rewrite of {entry['looked_at'] - 1} looked at scored higher")
        else:
            lines.append(f"  best     {_score(entry)}  {entry['instruction']!r} (step {entry['step']})")
            lines.append(
                f"  The best was chosen among {entry['looked_at']} on these same examples, so its score flatters it: "
                "evaluate.py measures both on the test split."
            )
    return "\n".join(lines)


def _score(entry: Mapping[str, Any]) -> str:
    if entry["score"] is None:
        return "no verdict"
    low, high = entry["interval"]
    return f"{entry['score']:.3f} [{low:.3f}, {high:.3f}]"


def _number(value: float | None, digits: int = 3) -> str:
    return "-" if value is None or value != value else f"{value:.{digits}f}"

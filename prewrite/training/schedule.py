"""How long a run is, its learning rate at each step, and when it has to stop."""

import math
import statistics

from prewrite.config import Config, TrainingSettings
from prewrite.training.progress import Progress

GAP_WINDOW = 20  # steps of the sampler gap's running median
ALIKE = 0.25  # share of different rewrites, of all in their groups, below which a batch's are nearly all alike
STANDSTILL = 5  # such batches running, after which training ends


def total_steps(config: Config, num_rows: int, groups_per_batch: int) -> int:
    """Optimizer steps of a stage: max_steps, or the passes over the rows, a group a row."""
    if config.training.max_steps is not None:
        return config.training.max_steps
    assert config.training.num_train_epochs is not None
    batches = max(1, round(config.training.num_train_epochs * num_rows / groups_per_batch))
    return batches * config.updates_per_generation() * config.training.num_iterations


def entropy_scale(progress: Progress, is_low: bool) -> int:
    """What a batch's entropy bonus is multiplied by: 0 where its rollouts have more entropy than the target, otherwise
    one more with each batch that has less, and one less with each that has more (arXiv 2505.22312, adaptive control).
    """
    scale = progress.entropy_scale
    progress.entropy_scale = max(1, scale + (1 if is_low else -1))
    return scale if is_low else 0


def count_alike(progress: Progress, distinct: float) -> None:
    """distinct: share of different rewrites in the batch, of all in their groups."""
    progress.alike_batches = progress.alike_batches + 1 if distinct < ALIKE else 0


def why_over(progress: Progress, total_steps: int) -> str:
    """Why no rollout batch comes after this one, by the run's length and its standstill; "" where one does."""
    if progress.step >= total_steps:
        return "there are no more steps"
    if progress.alike_batches >= STANDSTILL:
        return (
            f"in {STANDSTILL} batches running nearly all rewrites of a group were alike, and the policy learns "
            "nothing more; next time a lower learning_rate, a higher entropy_coef or temperature, or more parents"
        )
    return ""


def learning_rate_at(step: int, total_steps: int, training: TrainingSettings) -> float:
    """The rate of optimizer step `step` (from 0): linear warm-up, then constant, linear or cosine down to the floor.

    A pure function of the step: nothing to save, to restore or to reset.
    """
    if step < training.warmup_steps:
        return training.learning_rate * (step + 1) / training.warmup_steps
    if training.lr_scheduler_type == "constant":
        return training.learning_rate
    progress = (step - training.warmup_steps) / max(1, total_steps - training.warmup_steps)
    left = max(0.0, 1 - progress)
    if training.lr_scheduler_type == "cosine":
        left = (1 + math.cos(math.pi * min(1.0, progress))) / 2
    return training.learning_rate * (training.min_lr_rate + (1 - training.min_lr_rate) * left)


def check_gap(gaps: list[float], floor: float, step: int, gap: float | None) -> None:
    """Stale weights in the sampler look like a jump of the sampler gap, mean |l_old - l_sampler|: stop there.

    gaps: those of the last steps; this one is added. Raises RuntimeError where it passes the floor and 5 medians.
    """
    if gap is None:
        return
    assert math.isfinite(gap), "a gap that is not finite would blind the alarm; no step with one is taken"
    median = statistics.median(gaps) if gaps else gap
    if gap > floor and gap > 5 * median:
        raise RuntimeError(
            f"step {step}: the sampler gap, mean |l_old - l_sampler|, jumped to {gap:.3f} from a running median "
            f"of {median:.3f}: vLLM samples from other weights than the trainer's"
        )
    gaps.append(gap)
    del gaps[:-GAP_WINDOW]

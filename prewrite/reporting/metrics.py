"""What every key of metrics.jsonl means, and every word of the console's line: docs/metrics.md is written from here."""

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Metric:
    """key: in metrics.jsonl; a part in capitals stands for a name, as in reward/NAME_mean. console: its word there."""

    key: str
    meaning: str
    console: str = ""


METRICS = (
    Metric("step", "optimizer steps taken; 0 is the look before training", "step"),
    Metric("stage", "the stage that the step is of, counted from 0"),
    Metric("reset", "where the model became the base model again: sums of |weight| before and after it, on each rank"),
    Metric("reward_mean", "mean reward of the batch's rollouts that have a verdict", "reward"),
    Metric("reward_std", "standard deviation over those rollouts", "±"),
    Metric("reward_max", "the highest of those rewards", "max"),
    Metric("reward/NAME_mean", "mean of one reward function, over the rollouts that it concerns"),
    Metric("reward/NAME_std", "standard deviation of one reward function"),
    Metric("reward/NAME_max", "the highest value of one reward function"),
    Metric("no_verdict", "share of rollouts without a reward: a call stayed failed, or a gold cannot be parsed"),
    Metric("flat_groups", "share of groups whose rewards are all alike, which teach nothing", "flat"),
    Metric("advantage_std", "standard deviation of the advantages"),
    Metric("advantage_max", "the largest advantage, without its sign"),
    Metric("completion_length_mean", "mean tokens of a completion", "length"),
    Metric("completion_length_max", "tokens of the longest completion"),
    Metric("truncated", "share of completions that max_completion_length ended"),
    Metric("distinct_rewrites", "share of rewrites that differ from the others of their group"),
    Metric("refills", "times that groups without spread were replaced (loss.dynamic_sampling_refills)"),
    Metric("carried_answers", "unfinished answers that go on in the next batch (rollout.partial_rollouts)", "carried"),
    Metric("carried_pushes_max", "the most pushes that one of their groups has seen since it began", "pushes"),
    Metric("loss", "the loss of the step, over all ranks", "loss"),
    Metric("tokens", "completion tokens in the loss", "tokens (SFT)"),
    Metric("epoch", "SFT: passes over the rows so far", "epoch"),
    Metric("clip_low", "share of tokens whose ratio the lower clip holds", "clip (first number)"),
    Metric("clip_high", "share of tokens whose ratio the upper clip holds", "clip (second number)"),
    Metric("ratio_mean", "mean ratio of the policy now to the policy at rollout"),
    Metric("ratio_max", "the largest ratio"),
    Metric(
        "sampler_gap", "mean |l_old - l_sampler|: trainer's against vLLM's log-prob; a jump is stale weights", "gap"
    ),
    Metric("sampler_gap_max", "the largest of these gaps"),
    Metric("sampler_weight_mean", "mean weight that corrects for the gap"),
    Metric("sampler_weight_min", "the smallest of these weights"),
    Metric("sampler_cut", "share of tokens whose weight loss.sampler_bounds cuts"),
    Metric("entropy", "mean entropy of the policy's next token, in nats", "entropy"),
    Metric("kl", "KL divergence to the reference, where loss.beta is not 0", "kl"),
    Metric("grad_norm", "global gradient norm before clipping", "grad"),
    Metric("learning_rate", "of this step"),
    Metric("skipped", "1 where no optimizer step was taken, since nothing taught; else 0"),
    Metric("tokens_per_second/rollout", "completion tokens a second of the rollout"),
    Metric("tokens_per_second/training", "tokens, requests included, a second of training"),
    Metric("rewrites_per_second", "rewrites a second of rollout and scoring together"),
    Metric(
        "gpu_memory_peak_gib",
        "most GPU memory that this process's tensors have taken so far, its vLLM engine's and KV cache included, "
        "other programs' not; on rank 0",
    ),
    Metric("seconds/rollout", "seconds of writing rewrites; scoring begins meanwhile", "rollout"),
    Metric("seconds/scoring", "seconds waited for the task model after the last rewrite was written", "scoring"),
    Metric("seconds/training", "seconds of log-probs, loss, backward and optimizer", "training"),
    Metric("seconds/push", "seconds of pushing the weights into vLLM", "push"),
    Metric("seconds/dev", "seconds of a look", "dev (among the seconds)"),
    Metric("seconds/step", "seconds of the whole step", "s"),
    Metric("task_calls", "calls of the task model that were settled in this step, over all ranks; cached ones apart"),
    Metric("cached_calls", "answers in this step that were there already, or under way"),
    Metric("retried_calls", "tries after the first in this step"),
    Metric("failed_calls", "calls in this step that stayed failed", "FAILED CALLS"),
    Metric("refused_calls", "calls in this step that were not made, since the budget was spent"),
    Metric("task_requests", "requests sent to the task model in this step, retries included: budget.max_task_calls"),
    Metric("task_tokens_in", "tokens that the task model has read in this step, as its endpoint counts them"),
    Metric("task_tokens_out", "tokens that the task model has written in this step, as its endpoint counts them"),
    Metric("policy_tokens_in", "tokens of the requests that the policy has answered in this step"),
    Metric("policy_tokens_out", "tokens that the policy has written in this step"),
    Metric("cost", "money for the tokens of both in this step, where the budget has a price"),
    Metric("dev_loss", "SFT, look: the mean of -log p over the held-out rows' trained tokens", "dev: loss"),
    Metric(
        "dev_initial", "look: share of held-out rows answered right as they are, where a row is a question", "initial"
    ),
    Metric("dev_greedy", "look: the same after the policy's greedy rewrite of each row", "dev: greedy"),
    Metric("dev_sampled", "look: the same after rewrites sampled for it", "dev: sampled"),
    Metric("dev_initial/ROW", "look: held-out score of a row's own instruction", "initial/ROW"),
    Metric("dev_greedy/ROW", "look: held-out score of the policy's greedy rewrite", "dev: greedy/ROW"),
    Metric("dev_sampled_mean/ROW", "look: mean held-out score of rewrites sampled for it", "dev: sampled_mean/ROW"),
    Metric("dev_best/ROW", "look: estimate of the best instruction so far", "dev: best/ROW"),
    Metric("dev_kept/ROW", "look: mean held-out score of what the stage before kept beside its best", "dev: kept/ROW"),
    Metric("dev_sampled_mean", "look: the mean over the rows, where there are several", "dev: sampled_mean"),
    Metric("dev_best", "look: the mean over the rows, where there are several", "dev: best"),
    Metric("dev_kept", "look: the mean over the rows, where there are several", "dev: kept"),
)


def explained(key: str) -> Metric | None:
    """What the table says of a key of metrics.jsonl; None where it says nothing."""
    for metric in METRICS:
        pattern = re.sub(r"(NAME|ROW)", ".+", re.escape(metric.key))
        if re.fullmatch(pattern, key, re.DOTALL):
            return metric
    return None


def metrics_table() -> str:
    """The table, as Markdown."""
    lines = ["| key | console | meaning |", "| --- | --- | --- |"]
    lines += [f"| `{one.key}` | {one.console} | {one.meaning} |" for one in METRICS]
    return "\n".join(lines) + "\n"

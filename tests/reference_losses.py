"""The losses once more, as slow loops over Python floats, gradients derived by hand: nothing shared with the package.

A row is a dict of ragged lists, one number a token: `logprob`, `old`, `ref`, `sampler`, `entropy`; and `advantage`.
There is no padding and no mask here, so that what the package does with both is put to the test.
"""

import math


def reference_loss(rows, *, loss_type, level, epsilon, epsilon_high, delta, cap, tau_pos, tau_neg, beta, kl, correction,
                   bounds, entropy_threshold, entropy_coef, max_completion_length):  # fmt: skip
    """(value, d value / d logprob, d value / d entropy) of a whole optimizer step; the gradients as ragged lists."""
    num_tokens = sum(len(row["logprob"]) for row in rows)
    num_sequences = len(rows)
    value, logprob_grads, entropy_grads = 0.0, [], []
    for row in rows:
        length = len(row["logprob"])
        advantage = row["advantage"]
        if loss_type in ("grpo", "sapo"):
            share = 1 / (length * num_sequences)
        elif loss_type in ("dapo", "cispo", "bnpo"):
            share = 1 / num_tokens
        elif loss_type == "dr_grpo":
            share = 1 / (num_sequences * max_completion_length)
        log_ratios = [now - old for now, old in zip(row["logprob"], row["old"], strict=True)]
        weights = sampler_weights(row, correction, bounds)
        slope_sum = 0.0
        row_grads = [0.0] * length
        for t in range(length):
            log_ratio = sum(log_ratios) / length if level == "sequence" else log_ratios[t]
            ratio = math.exp(log_ratio)
            # objective: to be maximised; slope: its derivative by the log-ratio (cispo: by the log-prob)
            if loss_type == "cispo":
                objective = min(ratio, cap) * advantage * row["logprob"][t]
                slope = min(ratio, cap) * advantage
            elif loss_type == "sapo":
                tau = tau_pos if advantage > 0 else tau_neg
                gate = 1 / (1 + math.exp(-tau * (ratio - 1)))
                objective = 4 / tau * gate * advantage
                slope = 4 * gate * (1 - gate) * advantage * ratio
            else:
                objective, slope = clipped(ratio, advantage, epsilon, epsilon_high, delta)
            factor = share * weights[t]
            if entropy_threshold is not None and row["entropy"][t] < entropy_threshold:
                factor = 0.0
            value -= factor * objective
            row_grads[t] -= factor * slope if level == "token" else 0.0
            slope_sum += factor * slope
            if beta:
                d = row["ref"][t] - row["logprob"][t]
                estimate, estimate_slope = {
                    "k1": (-d, 1.0),
                    "k2": (d * d / 2, -d),
                    "k3": (math.exp(d) - 1 - d, 1 - math.exp(d)),
                }[kl]
                value += share * beta * estimate
                row_grads[t] += share * beta * estimate_slope
            value -= share * entropy_coef * row["entropy"][t]
        if level == "sequence":
            row_grads = [grad - slope_sum / length for grad in row_grads]
        logprob_grads.append(row_grads)
        entropy_grads.append([-share * entropy_coef] * length)
    return value, logprob_grads, entropy_grads


def clipped(ratio, advantage, epsilon, epsilon_high, delta):
    """PPO's four cases, written out."""
    if advantage > 0 and ratio > 1 + epsilon_high:
        return (1 + epsilon_high) * advantage, 0.0
    if advantage < 0 and ratio < 1 - epsilon:
        return (1 - epsilon) * advantage, 0.0
    if advantage < 0 and delta is not None and ratio > delta:
        return delta * advantage, 0.0
    return ratio * advantage, ratio * advantage


def sampler_weights(row, correction, bounds):
    length = len(row["logprob"])
    if correction == "none":
        return [1.0] * length
    gaps = [old - sampler for old, sampler in zip(row["old"], row["sampler"], strict=True)]
    if correction in ("sequence_truncate", "sequence_mask"):
        gaps = [sum(gaps)] * length
    weights = [math.exp(gap) for gap in gaps]
    low, high = bounds
    if correction in ("token_mask", "sequence_mask"):
        return [weight if low <= weight <= high else 0.0 for weight in weights]
    return [min(max(weight, low), high) for weight in weights]


def reference_advantages(rewards, num_generations, *, scale_rewards="group", eps=1e-4, leave_one_out=False):
    """Advantages as loops; None = no verdict. Flat means: no two verdicts differ by more than float noise."""
    verdicts = [reward for reward in rewards if reward is not None]
    batch_mean = sum(verdicts) / len(verdicts)
    batch_std = math.sqrt(sum((reward - batch_mean) ** 2 for reward in verdicts) / (len(verdicts) - 1))
    advantages = []
    for start in range(0, len(rewards), num_generations):
        group = rewards[start : start + num_generations]
        known = [reward for reward in group if reward is not None]
        if len(known) < 2 or max(known) - min(known) < 1e-6:
            advantages += [0.0] * len(group)
            continue
        mean = sum(known) / len(known)
        group_std = math.sqrt(sum((reward - mean) ** 2 for reward in known) / (len(known) - 1))
        scale = {"group": group_std + eps, "batch": batch_std + eps, "none": 1.0}[scale_rewards]
        for reward in group:
            if reward is None:
                advantages.append(0.0)
            elif leave_one_out:
                advantages.append((reward - (sum(known) - reward) / (len(known) - 1)) / scale)
            else:
                advantages.append((reward - mean) / scale)
    return advantages

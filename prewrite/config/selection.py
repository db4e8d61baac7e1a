"""Choosing among rewrites."""

from prewrite.config.base import Count, Positive, Section


class SelectionSettings(Section):
    """Choosing the best rewrite on held-out (dev) examples."""

    eval_steps: Count = 10
    """look at the dev examples every so many steps and after the last; 0 = only after the last"""
    num_candidates: Positive = 4
    """rewrites judged at a look, beside the greedy one: those with the best mean reward not looked at before"""
    num_sampled: Count = 0
    """rewrites sampled anew and judged at a look; their mean is the policy's own score, without choosing"""

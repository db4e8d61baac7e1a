"""What this rank's calls of the task model have cost, and the marks past which it sends no more."""

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from prewrite.config import BudgetSettings
from prewrite.types import Answer

FIRST_CALLS = 20  # replies after which tokens, money and time of the rest can be told


@dataclass
class TaskModelStats:
    """Counts since the start. calls: settled over the wire, cached ones apart. requests: sent, with every retry and
    the first question. refused: calls that were not sent, since the budget was spent; they are neither calls nor
    failed. seconds: of all requests, one after the other.
    """

    calls: int = 0
    cached: int = 0
    retries: int = 0
    failed: int = 0
    neutralised: int = 0
    requests: int = 0
    refused: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    seconds: float = 0.0
    failures: Counter[str] = field(default_factory=Counter)

    def add(self, answer: Answer, times: int = 1) -> None:
        """Counts the request that an answer took; times -1 takes it out again."""
        self.requests += times
        self.prompt_tokens += times * answer.prompt_tokens
        self.completion_tokens += times * answer.completion_tokens


class Spending:
    """The counts, and whether they leave room for another request. Lives on the task model's event loop, but for
    `allow`, which sets one attribute."""

    def __init__(self, settings: BudgetSettings):
        self.settings, self.stats = settings, TaskModelStats()
        self.under_way = 0
        self.when_sampled: Callable[[], None] | None = None  # called once, after FIRST_CALLS replies
        self.kept = TaskModelStats()  # bought after the checkpoint that a run goes on from, and in no count yet
        self._marks = {"requests": math.inf, "tokens": math.inf, "cost": math.inf}

    def used(self) -> dict[str, float]:
        """What counts against the limits, by limit."""
        ours, kept = self._used(self.stats), self.kept_used()
        return {name: ours[name] + kept[name] for name in ours}

    def kept_used(self) -> dict[str, float]:
        """Of `used`, what is in no count yet."""
        return self._used(self.kept)

    def _used(self, stats: TaskModelStats) -> dict[str, float]:
        cost = self.settings.task_cost(stats.prompt_tokens, stats.completion_tokens)
        return {"requests": stats.requests, "tokens": stats.prompt_tokens + stats.completion_tokens, "cost": cost}

    def allow(self, more: dict[str, float]) -> None:
        """What may be used beyond what is, by limit; inf = no limit."""
        used = self.used()
        self._marks = {name: used[name] + more[name] for name in used}

    def left(self) -> float:
        """Requests that may still be sent, by what they have taken so far; those under way have their share."""
        used = self.used()
        answered = max(1, used["requests"] - self.under_way)
        left = self._marks["requests"] - used["requests"]
        for name in ("tokens", "cost"):
            if each := used[name] / answered:
                left = min(left, (self._marks[name] - used[name]) / each - self.under_way)
            elif self._marks[name] <= used[name]:
                left = 0
        return left if math.isinf(left) else max(0, math.floor(left + 1e-9))

    def begin(self, *, is_retry: bool) -> bool:
        """Counts a request that is about to be sent; False where there is no room for it."""
        if self.left() < 1:
            return False
        self.stats.requests += 1
        self.stats.retries += is_retry
        self.under_way += 1
        return True

    def end(self, seconds: float, prompt_tokens: int, completion_tokens: int) -> None:
        """Counts what came of a request."""
        self.under_way -= 1
        self.stats.seconds += seconds
        self.stats.prompt_tokens += prompt_tokens
        self.stats.completion_tokens += completion_tokens
        if self.when_sampled is not None and self.stats.requests - self.under_way >= FIRST_CALLS:
            told, self.when_sampled = self.when_sampled, None
            told()

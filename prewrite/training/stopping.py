"""SIGTERM, SIGINT (Ctrl-C) and SIGUSR1 while a run trains: the step is finished and saved before the run leaves."""

import os
import signal
import sys
from time import monotonic as _now
from types import FrameType
from typing import Any

from prewrite.engine import distributed
from prewrite.errors import RankFailure, UserError

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)
_BURST_SECONDS = 5.0  # launchers send SIGTERM several times, and after the SIGINT that the terminal sent already


class Stopping:
    """While open, a signal is a wish, on which the ranks agree after each rollout batch.

    A second one ends the run now: Ctrl-C at once, others only some seconds after the first of their kind.
    """

    def __init__(self) -> None:
        self.seen: dict[int, float] = {}  # when each came first
        self._earlier: dict[int, Any] = {}

    def __enter__(self) -> "Stopping":
        self._earlier = {signum: signal.signal(signum, self._wish) for signum in SIGNALS}
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """A run that was asked to stop leaves by KeyboardInterrupt, whatever has ended its last step."""
        for signum, handler in self._earlier.items():
            signal.signal(signum, handler)
        if not self.seen or not isinstance(error, KeyboardInterrupt | UserError | RankFailure | None):
            return
        if isinstance(error, UserError):  # the launcher ends a server that is started here; or the disk is full
            print(f"train.py: {error}", file=sys.stderr, flush=True)
        self._earlier[signal.SIGINT](signal.SIGINT, None)  # which also ignores what launchers send from now on

    def agreed(self) -> bool:
        """Whether a rank was asked to stop, and so all of them are. A collective."""
        if any(distributed.gather(bool(self.seen))):
            self.seen.setdefault(0, _now())  # another rank was asked
        return bool(self.seen)

    def _wish(self, signum: int, frame: FrameType | None) -> None:
        burst = 0.0 if signum == signal.SIGINT else _BURST_SECONDS
        if signum in self.seen and _now() - self.seen[signum] >= burst:
            self._earlier[signal.SIGINT](signum, frame)
        if not self.seen and os.environ.get("LOCAL_RANK", "0") == "0":
            words = "train.py: stopping after this step, with a checkpoint; once more leaves at once"
            os.write(2, f"{words}\n".encode())  # print is not made for a signal's handler
        self.seen.setdefault(signum, _now())

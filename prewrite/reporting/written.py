"""What the policy wrote for looks and races (`written.jsonl`): a run that goes on judges the same rewrites again.

A GPU samples others from the same seed; then every answer that was paid for the first ones would be lost.
"""

import contextlib
import json
from collections.abc import Sequence
from pathlib import Path

from prewrite.engine import distributed
from prewrite.errors import UserError
from prewrite.writing import HALVES, append_line

WRITTEN = "written.jsonl"
_PLACE = ("stage", "step", "what")
Place = tuple[int, int, str]
Rewrites = list[list[str]]  # by held-out row


class Written:
    """The rewrites of earlier starts, of the steps that they still count for, and where new ones go. Rank 0 has it."""

    def __init__(self, folder: Path, last_step: int):
        """last_step: the checkpoint's; what another policy wrote after it, which is trained anew, does not count.

        Raises UserError where the file cannot be read. A line that is none, as a killed run leaves one, is no rewrite.
        """
        self.path, self._known = folder / WRITTEN, dict[Place, Rewrites]()
        try:
            text = self.path.read_text(encoding="utf-8", errors=HALVES) if self.path.exists() else ""
        except OSError as error:
            raise UserError(f"{self.path}: cannot be read ({error}); put its rights in order, or delete it") from error
        for line in text.split("\n"):
            with contextlib.suppress(ValueError, KeyError, TypeError):
                said = json.loads(line)
                stage, step, what = (said[key] for key in _PLACE)
                if step <= last_step and all(isinstance(one, str) for own in said["rewrites"] for one in own):
                    self._known[stage, step, what] = said["rewrites"]

    def of(self, place: Place, counts: Sequence[int]) -> Rewrites | None:
        """What was written there, as many for each row as `counts` wants; None where that is not known."""
        known = self._known.get(place)
        if known is None or len(known) != len(counts):
            return None
        cut = [own[:count] for own, count in zip(known, counts, strict=True)]
        return cut if [len(own) for own in cut] == list(counts) else None

    def keep(self, place: Place, rewrites: Rewrites) -> None:
        """Writes them down. Raises UserError."""
        line = dict(zip(_PLACE, place, strict=True)) | {"rewrites": rewrites}
        try:
            append_line(self.path, json.dumps(line, ensure_ascii=False))
        except OSError as error:
            way_out = "make room or put its rights in order, then go on with --resume"
            raise UserError(f"{self.path}: cannot be written ({error}); {way_out}") from error


def as_before(written: Written | None, place: Place, rewrites: Rewrites) -> Rewrites:
    """What an earlier start wrote at `place`, in place of what the policy has written there now; else that, kept.

    It writes in any case, so that generators stand as in a run that was not stopped. written: on rank 0. A collective.
    """
    with distributed.together("keeping what was written"):
        known = None if written is None else written.of(place, [len(own) for own in rewrites])
        if written is not None and known is None:
            written.keep(place, rewrites)
    return distributed.broadcast(known) or rewrites

"""What the task model was asked and said, line by line, up to a size: for reading, never read back."""

import json
import logging
from pathlib import Path

from prewrite.types import Answer, Call

logger = logging.getLogger(__name__)


class AnswerLog:
    """A JSONL file that ends at `most_bytes`, what earlier starts wrote included. An object an answer over the wire.

    Raises OSError where the file cannot be written.
    """

    def __init__(self, path: Path, most_bytes: int):
        self.path, self._file = path, path.open("ab", buffering=0)
        self._left = most_bytes - path.stat().st_size

    def write(self, call: Call, answer: Answer) -> None:
        """Adds a line; past the size none any more, which is told once."""
        if self._left < 0:
            return
        line = {"task": call.task, "query": call.query, "choices": call.choices, "sample": call.sample_index}
        line |= {"answer": answer.text, "finish_reason": answer.finish_reason, "error": answer.error}
        encoded = (json.dumps(line, ensure_ascii=False) + "\n").encode("utf-8", "backslashreplace")
        self._left -= len(encoded)
        if self._left < 0:
            logger.warning("%s is as large as task_model.log_answers_mib allows: no more answers in it", self.path)
            return
        try:
            self._file.write(encoded)
        except OSError as error:  # a full disk ends the reading matter, not the run
            self._left = -1
            logger.warning("%s cannot be written (%s): no more answers in it", self.path, error)

    def close(self) -> None:
        """Closes the file; safe to call twice."""
        self._file.close()

"""The task model's answers, each written down before it is used, so that no answer is paid for twice.

`answers.jsonl` is one file for all ranks: a line an answer, with the key of its call, the rank that asked, and what it
took in tokens. Nothing in it is ever taken out, also where a run goes back to a checkpoint. A rank reads its own lines
again, for with the calls of others in its cache it would count less than a run that was not interrupted.
"""

import contextlib
import fcntl
import json
import logging
import math
import os
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from prewrite.errors import UserError
from prewrite.types import Answer

logger = logging.getLogger(__name__)

_CACHED = 200_000
_MOST = 1e15  # tokens, as what reads an endpoint's reply has them


class Answers:
    """The newest answers by the key of their call, in memory and, after `open`, in a file."""

    def __init__(self) -> None:
        self._cache: OrderedDict[bytes, Answer] = OrderedDict()
        self._unwanted: set[bytes] = set()  # bought after the checkpoint, and not wanted again yet
        self._uncounted: dict[bytes, Answer] = {}  # those of them that are in no count
        self._due: list[Answer] = []  # to be counted now
        self._most_cached = _CACHED
        self._num_kept = self._num_had = 0  # bought after the checkpoint; had since the start
        self._path = Path()
        self._rank = 0
        self._file: int | None = None

    def open(self, path: Path, *, rank: int, ranks: int, counted_bytes: int = 0) -> None:
        """Reads what is in the file, and appends to it from now on; lines that are no answers are told by rank 0.
        Raises UserError where the file cannot be read.

        rank, ranks: lines of ranks that are no longer there are shared out. counted_bytes: the file's size at the
        checkpoint that the run goes on from; what came later is in no count yet.
        """
        self._path, self._rank = path, rank
        with self._faults_told():
            self._file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
            num_damaged = 0
            for place, line in _lines(path):
                if (read := _read(line)) is None:
                    num_damaged += 1
                    continue
                key, asker, answer = read
                if asker % ranks != rank:
                    continue
                self._cache[key] = answer
                if place >= counted_bytes:
                    self._uncounted[key] = answer
            size = os.fstat(self._file).st_size
            if size and os.pread(self._file, 1, size - 1) != b"\n":  # killed in the middle of a line
                os.write(self._file, b"\n")
        if num_damaged and rank == 0:
            lines = "1 line" if num_damaged == 1 else f"{num_damaged} lines"
            logger.warning("%s: %s cannot be read, and what stood there is asked again", path, lines)
        self._most_cached = _CACHED + len(self._cache)  # what was read may all be wanted, and not at once
        self._unwanted = set(self._uncounted)
        self._num_kept = len(self._uncounted)

    def close(self) -> None:
        """Closes the file; safe to call twice."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    @property
    def num_bytes(self) -> int:
        """The size of the file."""
        return 0 if self._file is None else os.fstat(self._file).st_size

    @property
    def uncounted(self) -> list[Answer]:
        """Answers that were bought after the checkpoint and are in no count yet."""
        return list(self._uncounted.values())

    def __contains__(self, key: bytes) -> bool:
        return key in self._cache

    def get(self, key: bytes) -> tuple[Answer | None, bool]:
        """(the answer or None, whether this is the first time that it is wanted since the checkpoint)."""
        if is_first := key in self._unwanted:
            self._unwanted.discard(key)
            if key in self._uncounted:
                self._due.append(self._uncounted.pop(key))
            self._had()
        if key in self._cache:
            self._cache.move_to_end(key)
        return self._cache.get(key), is_first

    def add(self, key: bytes, answer: Answer) -> None:
        """Writes a new answer down and remembers it. Raises UserError where the file cannot be written."""
        if self._file is not None:
            line: dict[str, Any] = {"key": key.hex(), "rank": self._rank, "text": answer.text}
            line |= {"finish_reason": answer.finish_reason, "tokens": [answer.prompt_tokens, answer.completion_tokens]}
            if answer.choice_logprobs is not None:
                line["choice_logprobs"] = answer.choice_logprobs
            with self._faults_told():
                _append(self._file, json.dumps(line).encode() + b"\n")
        self._cache[key] = answer
        if len(self._cache) > self._most_cached:
            self._cache.popitem(last=False)
        self._had()

    def take_due(self) -> list[Answer]:
        """Kept answers that are to be counted now, each once: they were paid for before the run was interrupted."""
        due, self._due = self._due, []
        return due

    def _had(self) -> None:
        """Once as many answers were had as were kept, those that nothing wanted count too: other rewrites came out
        this time, and what they cost before was spent for nothing."""
        self._num_had += 1
        if self._num_had >= self._num_kept:
            self.count_rest()

    def count_rest(self) -> None:
        """Those that nothing has wanted count too, as what was spent for nothing."""
        self._due += self._uncounted.values()
        self._uncounted.clear()

    @contextlib.contextmanager
    def _faults_told(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise UserError(
                f"{self._path}: cannot be written ({error.strerror}), and no answer is used that is not kept; make "
                "room or put the folder's rights in order, then go on (train.py: --resume; else the same command)"
            ) from error


def _append(file: int, line: bytes) -> None:
    """A line at the end, whole; other ranks append too, and over NFS only a lock makes them take turns."""
    with contextlib.suppress(OSError):  # a file system that knows no locks is no NFS
        fcntl.lockf(file, fcntl.LOCK_EX)
    try:
        written = os.write(file, line)
        if written < len(line):
            os.write(file, line[written:])  # says why: the disk is full
    finally:
        with contextlib.suppress(OSError):
            fcntl.lockf(file, fcntl.LOCK_UN)


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """(place in the file, line) of each line with something in it."""
    place = 0
    with path.open("rb") as file:
        for line in file:
            if line != b"\n":
                yield place, line
            place += len(line)


def _read(line: bytes) -> tuple[bytes, int, Answer] | None:
    """(key, rank, answer) of a line as `Answers.add` writes it; None where it is another, half or damaged."""
    with contextlib.suppress(ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError):
        said = json.loads(line)
        tokens_in, tokens_out = said["tokens"]  # of strings or a mapping they are no numbers
        likely = said.get("choice_logprobs")
        is_one = (
            isinstance(said["text"], str)
            and said["finish_reason"] in (None, "stop", "length")
            and all(type(number) is int and 0 <= number < _MOST for number in (said["rank"], tokens_in, tokens_out))
            and isinstance(likely, list | None)
            and all(type(one) is float and -math.inf < one <= 0 for one in likely or ())
        )
        if is_one:
            likely = None if likely is None else tuple(likely)
            answer = Answer(said["text"], None, said["finish_reason"], tokens_in, tokens_out, likely)
            return bytes.fromhex(said["key"]), said["rank"], answer
    return None

"""The rows of an evaluation: each answer in a file as soon as it is there, so that none is paid for twice."""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from prewrite.asking.questions import Progress
from prewrite.config import TaskModelSettings
from prewrite.engine.forced_choice import Dialect
from prewrite.engine.spending import TaskModelStats
from prewrite.engine.task_model import TaskModel
from prewrite.engine.task_wire import request_body
from prewrite.errors import UserError
from prewrite.tasks.files import read_rows
from prewrite.types import Answer, Call
from prewrite.writing import append_line, write_whole


class KeptAnswers:
    """Stands between an evaluation and the task model (`Answering`), and asks only what its file does not have.

    A row of the file is known by its request: the body that would be sent, model, sampling and query in it, the choices
    and the number of the sample. A failed call is no answer, and asked again.

    task_model: opens and probes the task model; called when the first call has to be made. last_error: of the calls
    that stayed failed.
    """

    def __init__(self, path: Path, settings: TaskModelSettings, task_model: Callable[[], TaskModel]):
        self.path, self.settings, self._task_model = path, settings, task_model
        self._rows: dict[str, dict[str, Any]] = {}  # of the file, by request
        self._is_open = False
        self._before: TaskModelStats | None = None
        self.last_error: str | None = None
        if not path.is_file():
            return
        has_whole_lines = b"\n" in path.read_bytes()  # else it ended in its first one
        for row in read_rows(path) if has_whole_lines else ():
            if isinstance(row.get("answer"), str) and isinstance(row.get("request"), str):
                forced = {"forced_by": row["forced_by"]} if "forced_by" in row else {}
                self._keep(row["request"], row.get("query"), row["answer"], row.get("finish_reason"), **forced)
        self._write(self._rows.values())  # whole lines again

    def ask(self, calls: Sequence[Call], *, progress: Progress | None = None) -> list[Answer]:
        """The answers, in order. Raises what `TaskModel.ask` raises; what was answered until then is in the file."""
        missing = self.missing(calls)
        failed: dict[str, Answer] = {}
        model = self._open() if missing else None

        def keep(call: Call, answer: Answer) -> None:
            key = self._key(call)
            if answer.text is None:
                failed[key], self.last_error = answer, answer.error
            elif key not in self._rows:
                forced = {"forced_by": model.dialect} if call.choices and model is not None else {}
                self._keep(key, call.query, answer.text, answer.finish_reason, **forced)
                append_line(self.path, _json(self._rows[key]))

        if model is not None:
            try:
                model.ask(missing, progress=progress, on_answer=keep)
            except OSError as error:
                kept = "what it holds is not asked again"
                raise UserError(f"{self.path} could not be written ({error}); {kept}") from error
        keys = map(self._key, calls)
        return without_cut_thoughts([self._answer(key) if key in self._rows else failed[key] for key in keys])

    @property
    def dialect(self) -> Dialect | None:
        """In which choices were forced; None = they were asked for in free text, or there were none."""
        return next(iter(self._dialects()), None)

    def _dialects(self) -> list[Dialect | None]:
        return [row["forced_by"] for row in self._rows.values() if "forced_by" in row]

    def _open(self) -> TaskModel:
        model = self._task_model()
        if not self._is_open:
            self._before, self._is_open = replace(model.stats), True
        if self._dialects() and self.dialect != model.dialect:
            now = f"the task model at {model.base_url} forces them by {model.dialect or 'nothing'}"
            raise UserError(
                f"{self.path}: its choices were forced by {self.dialect or 'nothing'}, and {now}: that is another "
                "question. Go on at an endpoint like the first, or delete the file to ask anew."
            )
        return model

    def check_failure_share(self) -> None:
        """As the task model's, once that was needed."""
        if self._is_open:
            self._task_model().check_failure_share()

    def cost(self) -> dict[str, float]:
        """What was spent since this was made."""
        stats = replace(self._task_model().stats) if self._is_open else TaskModelStats()
        before = self._before or stats
        names = ("calls", "prompt_tokens", "completion_tokens")
        return {name: getattr(stats, name) - getattr(before, name) for name in names}

    def missing(self, calls: Iterable[Call]) -> list[Call]:
        """The calls that have no answer yet."""
        return [call for call in calls if self._key(call) not in self._rows]

    def finish(self, rows: Iterable[tuple[Call, Mapping[str, Any]]]) -> None:
        """Writes the file anew, whole: for each call what is known of its row, with the query and the answer; then the
        answers to other calls, which an earlier evaluation paid for."""
        asked = [(self._key(call), {**known, "query": call.query}) for call, known in rows]
        failed = {"answer": None, "finish_reason": None}
        of_calls = [known | self._rows.get(key, failed | {"request": key}) for key, known in asked]
        others = self._rows.keys() - {key for key, _ in asked}
        self._write([*of_calls, *(row for key, row in self._rows.items() if key in others)])

    def _key(self, call: Call) -> str:
        body = request_body(call, self.settings.for_task(call.task), None)
        asked = json.dumps([body, call.choices, call.sample_index], sort_keys=True)
        return hashlib.sha256(asked.encode()).hexdigest()[:24]

    def _keep(self, key: str, query: str | None, text: str, reason: str | None, **forced: Any) -> None:
        self._rows[key] = {"query": query, "answer": text, "finish_reason": reason, **forced, "request": key}

    def _answer(self, key: str) -> Answer:
        return Answer(self._rows[key]["answer"], finish_reason=self._rows[key]["finish_reason"])

    def _write(self, rows: Iterable[Mapping[str, Any]]) -> None:
        write_whole(self.path, "".join(_json(row) + "\n" for row in rows))


def without_cut_thoughts(answers: Sequence[Answer]) -> list[Answer]:
    """The answers, "" in place of those that a limit ended while the model still thought.

    A chat template that opens the thinking by itself leaves no mark of it in such an answer, and a number in it would
    be graded. That it does show other answers: they close a thinking that they never opened.
    """
    if not any(one.text and "</think>" in one.text and "<think>" not in one.text for one in answers):
        return list(answers)
    is_cut = [one.finish_reason == "length" and "</think>" not in (one.text or "") for one in answers]
    return [replace(one, text="") if cut else one for one, cut in zip(answers, is_cut, strict=True)]


def _json(row: Mapping[str, Any]) -> str:
    return json.dumps(row, ensure_ascii=False)

"""What SFT needs beside a model: chats to imitate and held-out ones, as token ids; all checked."""

import logging
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prewrite.config import Config
from prewrite.config.loading import load_config
from prewrite.engine.chat_mask import encode_chat
from prewrite.errors import UserError
from prewrite.evaluation.prompts import read_prompts, tasks_of
from prewrite.plugins import TooSlow
from prewrite.tasks.base import HubSplit
from prewrite.tasks.chats import NO_REWRITES, Chat, Turn, is_run_folder, read_chats, read_hub_chats, refuse_faults
from prewrite.tasks.files import require_rows
from prewrite.training.objectives.solve_data import Problem, load_problems, user_turn
from prewrite.training.rollout import request_turn
from prewrite.training.schedule import total_steps
from prewrite.types import InstructionRow, TokenRow

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class SFTStage:
    """A run of SFT: its only stage. train: what is imitated; held_out: what every look is taken at."""

    config: Config
    train: Sequence[TokenRow]
    held_out: Sequence[TokenRow]
    number: int = 0
    choices: tuple[str, ...] = ()

    @property
    def shared_parts(self) -> dict[str, object]:
        """What every rank must have read alike, by name."""
        return {"the rows, by the policy's tokenizer and chat template": (self.train, self.held_out)}

    def outlook(self, world_size: int) -> str:
        """What the run will do, in words."""
        size = self.config.rollouts_per_step(world_size)
        steps = total_steps(self.config, len(self.train), size)
        trained, whole = (sum(counts) for counts in zip(*map(_counts, self.train), strict=True))
        return (
            f"{steps} steps of {size} rows, {steps * size / len(self.train):.1f} passes over {len(self.train)} rows of "
            f"{whole:,} tokens, of which {trained:,} are the assistant's and are trained; looks at "
            f"{len(self.held_out)} rows, held out"
        )


def load_sft_stage(config: Config, tokenizer: Any) -> SFTStage:
    """Reads and checks its rows, the same on every rank. Raises UserError with every row's fault; loads no model."""
    data = config.data
    if data.tasks:
        train, held_out = (
            _encoded([_solved(problem, config) for problem in part], config, tokenizer)
            for part in load_problems(config, tokenizer)
        )
        return SFTStage(config, train, held_out)
    chats, kept_back = _read(config, data.chats, data.hub and data.hub.split), None
    if data.eval_chats or (data.hub and data.hub.test_split):
        kept_back = _read(config, data.eval_chats, data.hub and data.hub.test_split)
    rows = _encoded(chats, config, tokenizer)
    random.Random(config.seed).shuffle(rows)
    if kept_back is None:
        if len(rows) <= data.dev_size:
            raise UserError(
                f"data.dev_size={data.dev_size} rows are to be held out, and there are {len(rows)}: lower it, or give "
                "data.eval_chats"
            )
        held_out, rows = rows[: data.dev_size], rows[data.dev_size :]
    else:
        held_out = _encoded(kept_back, config, tokenizer)
    known = {row.token_ids.tobytes() for row in held_out}
    train = [row for row in rows if row.token_ids.tobytes() not in known]
    if repeats := len(rows) - len(train):
        log.warning("%d of %d rows are also held out: left out of training", repeats, len(rows))
    train = require_rows(train, "the rows to train on", "that leaves out what is held out")
    return SFTStage(config, train[: data.max_train_rows], held_out[: config.selection.eval_examples])


def _read(config: Config, path: str | None, split: str | None) -> list[Chat]:
    """The chats of a file or run folder, or, where there is no path, of a split on the hub."""
    if path is not None and is_run_folder(Path(path)):
        return rewrites_of(Path(path), config.sft.top_rewrites)
    if path is not None:
        chats = read_chats(Path(path), config.data)
    else:
        hub = config.data.hub
        assert hub is not None, "one source of rows is a rule of the config"
        chats = read_hub_chats(HubSplit(hub.dataset, split or hub.split, hub.config, hub.revision), config.data)
    return [_with_system(chat, config.rollout.system_prompt) for chat in chats]


def rewrites_of(folder: Path, most: int) -> list[Chat]:
    """The best `most` rewrites of each of a run's instructions, each as the answer to the run's own request.

    Ranked as `evaluate.py --prompts` ranks them. An instruction that the run found nothing better than is left out, and
    so is a row's `information`. UserError where the run has no rewrites.
    """
    rollout, path = load_config(folder / "config.json").rollout, folder / "log.jsonl"
    if not (tasks := tasks_of(path)):
        raise UserError(f"{folder}: {NO_REWRITES}")
    system = () if rollout.system_prompt is None else (Turn("system", rollout.system_prompt),)
    chats = []
    for task in tasks:
        for group in read_prompts(path, task):
            if group.keeps_initial or group.initial is None:
                log.warning("%s: %s: no rewrite is better than %r: left out", folder, task, group.initial)
                continue
            request = Turn("user", request_turn(InstructionRow(group.initial, task), rollout))
            for number, candidate in enumerate(group.candidates[:most], start=1):
                where = f"{folder}: {task}: rewrite {number} of {group.initial[:40]!r}"
                chats.append(Chat(where, (*system, request, Turn("assistant", candidate.instruction)), len(system) + 1))
    return require_rows(chats, f"{folder}: rewrites that are better than their instruction")


def _solved(problem: Problem, config: Config) -> Chat:
    """A problem as solving asks it, and its completion."""
    example, completion = problem.example, config.sft.completion
    where = f"{problem.task.name}: problem {example.id}"
    answer = example.target if isinstance(example.target, str) else example.target[0]
    if "{solution}" in completion and not example.solution:
        raise UserError(f"{where}: it has no solution, and sft.completion is {completion!r}: take it out there")
    parts = completion.split("{solution}")
    completion = (example.solution or "").join(part.replace("{answer}", answer) for part in parts)
    request = Turn("user", user_turn(problem.task, example, config.data.instruction_suffix))
    return _with_system(Chat(where, (request, Turn("assistant", completion))), config.rollout.system_prompt)


def _with_system(chat: Chat, system: str | None) -> Chat:
    """The chat with a system turn before it, where it has none."""
    if system is None or chat.turns[0].role == "system":
        return chat
    return Chat(chat.where, (Turn("system", system), *chat.turns), chat.first + 1)


def _encoded(chats: Sequence[Chat], config: Config, tokenizer: Any) -> list[TokenRow]:
    """UserError with every chat's fault; one that is too long is such, or is left out, as `data.too_long` says."""
    rows, faults, num_long, limit = [], [], 0, config.sft.max_length
    for chat in chats:
        try:
            row = encode_chat(tokenizer, chat, config.rollout.chat_template_kwargs)
        except TooSlow:
            raise
        except UserError as error:
            faults.append(str(error))
            continue
        if len(row.token_ids) <= limit:
            rows.append(row)
        elif config.data.too_long == "drop":
            num_long += 1
        else:
            faults.append(
                f"{chat.where}: it has {len(row.token_ids)} tokens; sft.max_length is {limit}: raise it, or set "
                "data.too_long drop"
            )
    if len(faults) == len(chats) > 1:
        reasons = {fault.removeprefix(chat.where) for chat, fault in zip(chats, faults, strict=True)}
        if len(reasons) == 1:  # the template's, and not the rows'
            raise UserError(f"{faults[0]}\nSo it is with all {len(chats)} rows.")
    refuse_faults(list(dict.fromkeys(faults)))
    if num_long:
        log.warning("data.too_long drop: %d of %d rows are longer than sft.max_length %d", num_long, len(chats), limit)
    return require_rows(rows, "the rows", f"sft.max_length={limit}")


def _counts(row: TokenRow) -> tuple[int, int]:
    """(tokens that are trained, all tokens)."""
    return sum(row.is_trained), len(row.token_ids)

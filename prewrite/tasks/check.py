"""All that a run's data can get wrong, at once, before anything is started."""

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from prewrite.config import Config, DataSettings
from prewrite.errors import UserError
from prewrite.grading import grade_math
from prewrite.model_folder import refuse_no_model
from prewrite.tasks.base import HubSplit, Task
from prewrite.tasks.chats import NO_REWRITES, is_run_folder, read_chats, read_hub_chats
from prewrite.tasks.configured import instruction_rows, own_tasks, pool_of, unnamed_labels
from prewrite.tasks.files import read_rows
from prewrite.tasks.loading import load_examples, test_label
from prewrite.tasks.rows import cut_dev, own_examples, row_names, unknown_tags
from prewrite.types import Example, InstructionRow

T = TypeVar("T")
_GOLDS_READ = 200


def check(config: Config) -> tuple[list[str], list[str]]:
    """(what the data are, every fault of them and of the models' folders). Loads no model."""
    told: list[str] = []
    faults: list[str] = []

    def tried(work: Callable[[], T]) -> T | None:
        try:
            return work()
        except UserError as error:
            faults.append(str(error))
            return None

    tried(lambda: refuse_no_model("policy.model", config.policy.model))
    if config.asks_task_model and config.task_model.base_url is None:
        tried(lambda: refuse_no_model("task_model.model", config.task_model.model))
    for path in filter(None, (config.data.chats, config.data.eval_chats)):
        if said := tried(lambda path=path: _chats_told(Path(path), config.data)):
            told.append(said)
    hub = config.data.hub
    names = [name for name in (hub.split, hub.test_split) if name] if hub else []
    for split in [HubSplit(hub.dataset, name, hub.config, hub.revision) for name in names] if hub else []:
        if chats := tried(lambda split=split: read_hub_chats(split, config.data)):
            told.append(f"{split.dataset}:{split.split}: {len(chats)} chats")
    rows, tasks = tried(lambda: instruction_rows(config)) or ([], {})
    least_train = config.reward.examples_per_rewrite if config.asks_task_model else 1
    for name, task in tasks.items():
        own = [row for row in rows if row.dataset_name == name]
        if pool := tried(lambda task=task: pool_of(task, config)):
            for row_name, row in zip(row_names(own), own, strict=True):
                unknown, known = unknown_tags(row, task, pool)
                if unknown:
                    columns = f"are no columns of it; they are {', '.join(known)}."
                    faults.append(f"{row_name}: the tags {', '.join(unknown)} {columns}")
            how = {"dev_size": config.data.dev_size, "least_train": least_train}
            if cut := tried(lambda own=own, pool=pool, how=how: cut_dev(own, pool, **how)):
                told += _told(config, task, own, *cut)
    for task in own_tasks(config.custom_tasks)[0]:
        if task.name not in tasks:
            tried(lambda task=task: pool_of(task, config))
    return told, faults


def _chats_told(path: Path, data: DataSettings) -> str:
    if not is_run_folder(path):
        return f"{path}: {len(read_chats(path, data))} chats"
    rollouts = read_rows(path / "log.jsonl")
    instructions = {row["instruction"] for row in rollouts if "instruction" in row}
    if not instructions:
        raise UserError(f"{path}: {NO_REWRITES}")
    return f"{path}: a run of {len(rollouts)} rewrites of {len(instructions)} instructions; the best are imitated"


def _told(
    config: Config, task: Task, rows: Sequence[InstructionRow], train: Sequence[Example], dev: Sequence[Example]
) -> list[str]:
    local_dir = config.data.local_dir
    test = load_examples(task, "test", local_dir=local_dir, empty=config.data.empty)
    lines = [f"{task.name}: {len(train)} train, {len(dev)} dev, {len(test)} test: {test_label(task, local_dir)}"]
    for split, examples in (("train", train), ("dev", dev), ("test", test)):
        if task.labels:
            golds = Counter(example.target for example in examples)
            lines.append(f"  {split}: {', '.join(f'{label} {golds[label]}' for label in task.labels)}")
        if task.kind == "math" and (unread := _unread_golds(examples[:_GOLDS_READ])):
            of, first = min(len(examples), _GOLDS_READ), unread[0]
            lines.append(
                f"  {split}: of the first {of} golds {len(unread)} cannot be read as mathematics and give no verdict, "
                f"as that of {first.id}: {str(first.target)[:60]!r}"
            )
    for name, row in zip(row_names(rows), rows, strict=True) if config.asks_task_model else ():
        of_row = len(own_examples(row, train)), len(own_examples(row, dev)[: config.data.dev_size])
        lines.append(f"  row {name}: {of_row[0]} train, {of_row[1]} dev: {' '.join(row.instruction.split())[:70]!r}")
        if unnamed := unnamed_labels(task, row.instruction):
            lines.append(f"    its instruction does not name the labels {', '.join(unnamed)}")
    return lines


def _unread_golds(examples: Sequence[Example]) -> list[Example]:
    verdicts = grade_math([("\\boxed{0}", str(example.target)) for example in examples])
    return [example for example, verdict in zip(examples, verdicts, strict=True) if verdict is None]

"""What is rewritten: tasks, files, and tasks of the user's own."""

import re
from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from prewrite.config.base import Count, Positive, Section, Word


class HubSettings(Section):
    """A data set of the hub, as `datasets.load_dataset` takes it. test_split: null = cut by `test_size`."""

    dataset: Word
    config: Word | None = None
    split: Word = "train"
    test_split: Word | None = None
    revision: Word | None = None


class DataSettings(Section):
    """What is rewritten, and on which examples a rewrite is scored; in solving, the problems."""

    tasks: list[str] = []
    """tasks whose instruction is rewritten, or problems solved or imitated; `python -m prewrite.tasks` lists them"""
    instruction: str | None = None
    """the initial instruction, in place of each task's default one"""
    instructions_file: str | None = None
    """JSONL, CSV, parquet or a saved `datasets` folder, with columns `instruction`, `dataset_name`, perhaps `subject`,
    `level`, `tags`, `information`, `answer`; in place of `tasks`"""
    chats: str | None = None
    """SFT: rows to imitate: JSONL, CSV, parquet or a saved `datasets` folder, with `messages`, or with `prompt` and
    `completion`; or a run folder, whose best rewrites are imitated"""
    hub: HubSettings | None = None
    """SFT: such rows on the hub: {"dataset": NAME, "config", "split": "train", "test_split": held out, "revision"}"""
    eval_chats: str | None = None
    """SFT: held-out rows, as `chats`; null = those of hub.test_split, or `dev_size` rows cut off by seed"""
    local_dir: str | None = None
    """folder of the tasks' local files, in place of the hub (custom_tasks[].hub too); null = PREWRITE_DATA's, if set"""
    num_train_examples: Positive | None = None
    """use only the first so many examples of the shuffled train split; null = all"""
    dev_size: Positive = 200
    """examples a row, cut from the train split by seed, on which rewrites are chosen, or solving or SFT is measured"""
    min_words: Count = 0
    """leave out shorter train and dev examples: SST-2's train split is half phrases, its test split has sentences"""
    max_words: Positive | None = None
    """leave out longer train and dev examples, counted, as those that a task model's context does not hold"""
    instruction_suffix: str = ""
    """solve, SFT: stands after every problem, on a line of its own, as (after taking modulo 1000)"""
    answer_pattern: str | None = None
    """solve, SFT: only problems whose whole answer matches this regular expression, as [0-9]{1,3} for 0 to 999"""
    task_weights: list[Annotated[float, Field(gt=0)]] | None = None
    """solve, SFT: the mixture, a weight a task: [3, 1] takes three of the first to one of the second; null = all"""
    max_train_rows: Positive | None = None
    """solve, SFT: problems or rows to train on, of all tasks together; null = all"""
    set_aside_passes: Count = 0
    """solve: a problem that all or none of its samples solve is left out for so many passes over the problems"""

    labels: dict[str, dict[str, str]] = {}
    """by task, the word asked for and found in place of a label, as {"boolq": {"yes": "True", "no": "False"}}"""
    empty: Literal["refuse", "drop", "keep"] = "refuse"
    """rows of local files with an empty text or gold: refuse the file; leave them out, counted; or keep those that have
    a gold (in SFT an empty turn is refused all the same)"""
    too_long: Literal["refuse", "drop"] = "refuse"
    """instruction rows whose request is longer than `rollout.max_prompt_length`, in SFT rows longer than
    `sft.max_length`: refuse them, or drop and count them"""

    def faults(self) -> Iterator[str]:
        if [bool(source) for source in (self.tasks, self.instructions_file, self.chats, self.hub)].count(True) != 1:
            yield "give `tasks` (names) or `instructions_file` (a path), in SFT `tasks`, `chats` or `hub`: one of them"
        if self.instructions_file and self.instruction:
            yield "`instruction` goes with `tasks`; `instructions_file` brings its own instructions"
        if self.instruction is not None and not self.instruction.strip():
            yield "`instruction` is empty; write one, or leave it out for each task's default one"
        if len(set(self.tasks)) < len(self.tasks):
            yield f"`tasks` names one twice: {', '.join(self.tasks)}"
        if self.eval_chats and (self.tasks or (self.hub and self.hub.test_split)):
            yield "`eval_chats`, where `tasks` or `hub.test_split` says what is held out: leave it out"
        if self.max_words is not None and self.max_words < self.min_words:
            yield f"`min_words` {self.min_words} is more than `max_words` {self.max_words}: no example has both"
        if self.task_weights is not None and len(self.task_weights) != len(self.tasks):
            yield f"{len(self.task_weights)} `task_weights` for {len(self.tasks)} `tasks`: one each"
        try:
            re.compile(self.answer_pattern or "")
        except re.error as error:
            yield f"`answer_pattern` {self.answer_pattern!r} is no regular expression: {error}"


class CustomTaskSettings(Section):
    """A task of your own from local files or the hub, no code needed; name it in `data.tasks`."""

    name: str
    """how `data.tasks` and `--task` call it"""
    kind: Literal["classification", "math", "open_question"]
    """how an answer is graded: a label is found, a mathematical value is compared, or SQuAD exact match"""
    labels: list[str] = []
    """the fixed label set of a classification task"""
    fields: dict[str, str]
    """columns that the query shows, in order, each with the label printed before it, as {"text": "Sentence"}"""
    target: str
    """column of the gold answer"""
    target_from: Literal["last_box", "after_hashes"] | None = None
    """math: the gold is the last box of the column `target`, or what follows its last ####; null = all of the column"""
    train_file: str | None = None
    """JSONL, CSV or parquet; dev is cut from it; null = from `hub`"""
    test_file: str | None = None
    """looked at by `evaluate.py` alone; null = cut from the train rows by `test_size`"""
    hub: HubSettings | None = None
    """in place of files: {"dataset": NAME, "config", "split": "train", "test_split": "test", "revision"}"""
    test_size: Positive | None = None
    """rows cut off for the test, always the same ones, where there is one file or one split"""
    default_instruction: str
    """the initial instruction"""

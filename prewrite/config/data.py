"""What is rewritten: tasks, files, and tasks of the user's own."""

from collections.abc import Iterator
from typing import Literal

from prewrite.config.base import Count, Positive, Section


class DataSettings(Section):
    """What is rewritten, and on which examples a rewrite is scored."""

    tasks: list[str] = []
    """tasks whose instruction is rewritten; `python -m prewrite.tasks` lists them"""
    instruction: str | None = None
    """the initial instruction, in place of each task's default one"""
    instructions_file: str | None = None
    """JSONL, CSV, parquet or a saved `datasets` folder, with columns `instruction`, `dataset_name`, perhaps `subject`,
    `level`, `tags`, `information`, `answer`; in place of `tasks`"""
    local_dir: str | None = None
    """folder with the tasks' local files, in place of the hub; else the environment variable PREWRITE_DATA"""
    num_train_examples: Positive | None = None
    """use only the first so many examples of the shuffled train split; null = all"""
    dev_size: Positive = 200
    """examples a row, cut from the train split by seed, on which rewrites are chosen"""
    min_words: Count = 0
    """leave out shorter train and dev examples: SST-2's train split is half phrases, its test split has sentences"""

    labels: dict[str, dict[str, str]] = {}
    """by task, the word asked for and found in place of a label, as {"boolq": {"yes": "True", "no": "False"}}"""
    empty: Literal["refuse", "drop"] = "refuse"
    """rows of local files with an empty text or gold: refuse the file, or leave them out, counted"""

    def faults(self) -> Iterator[str]:
        """One source of instructions."""
        if bool(self.tasks) == bool(self.instructions_file):
            yield "give `tasks` (names) or `instructions_file` (a path): one of the two"
        if self.instructions_file and self.instruction:
            yield "`instruction` goes with `tasks`; `instructions_file` brings its own instructions"
        if self.instruction is not None and not self.instruction.strip():
            yield "`instruction` is empty; write one, or leave it out for each task's default one"
        if len(set(self.tasks)) < len(self.tasks):
            yield f"`tasks` names one twice: {', '.join(self.tasks)}"


class CustomTaskSettings(Section):
    """A task of your own from local files, no code needed; name it in `data.tasks`."""

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
    train_file: str
    """JSONL, CSV or parquet; dev is cut from it"""
    test_file: str
    """looked at by `evaluate.py` alone"""
    default_instruction: str
    """the initial instruction"""

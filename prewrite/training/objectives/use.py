"""How whoever deploys an instruction asks the task model with it: `use` in best.json."""

from typing import Any

from prewrite.asking.questions import Asked, Question
from prewrite.config import Config
from prewrite.training.objectives.rewrite_data import RewriteData
from prewrite.types import Example, InstructionRow


def how_to_ask(
    config: Config, data: RewriteData, row: InstructionRow, instruction: str, sample: Example, task_model: Asked
) -> dict[str, Any]:
    """All that asks the task model elsewhere as it was asked here; made by what asks it here, so that it is that.

    query: what the task model reads, with a column's name in braces where an example's text goes. sample_request: the
    body of a call about `sample`.
    """
    task = data.tasks[row.dataset_name]
    columns = dict.fromkeys((*task.fields, *row.tags))
    marks = Example("", {column: f"{{{column}}}" for column in columns}, "")
    question = Question(data.asking_of(row), task, row, instruction, (marks, sample))
    calls = question.calls(config.task_model.scoring)
    return {
        "task_model": config.task_model.model,
        "query": calls[0].query,
        "fields": dict(task.fields),
        "labels": list(task.labels),
        "scoring": "forced_choice" if calls[0].choices else "free_text",
        "sample_request": task_model.body(calls[1]),
        "sample_gold": sample.target,
    }

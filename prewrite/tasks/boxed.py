"""The gold inside a worked solution."""

from prewrite.grading import boxed_answers


def last_boxed(solution: str) -> str | None:
    """What the last box of a worked solution holds, read as the box of an answer is; None where there is no box."""
    boxes = boxed_answers(solution)
    return boxes[-1] if boxes else None

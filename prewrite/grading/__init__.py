"""Is this answer right: mathematics, labels in free text, open questions."""

from prewrite.grading.extract import boxed_answers
from prewrite.grading.labels import find_label
from prewrite.grading.math import extract_math_answer, grade_math, is_correct_math
from prewrite.grading.reply import strip_thinking
from prewrite.grading.text import macro_f1, nq_exact_match, nq_f1

__all__ = [
    "boxed_answers", "extract_math_answer", "find_label", "grade_math", "is_correct_math", "macro_f1",
    "nq_exact_match", "nq_f1", "strip_thinking",
]  # fmt: skip

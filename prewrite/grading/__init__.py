"""Is this answer right: mathematics, labels in free text, open questions."""

from prewrite.grading.extract import boxed_answers, strip_thinking
from prewrite.grading.math import extract_math_answer, grade_math, is_correct_math
from prewrite.grading.text import find_label, macro_f1, nq_exact_match, nq_f1

__all__ = [
    "boxed_answers",
    "extract_math_answer",
    "find_label",
    "grade_math",
    "is_correct_math",
    "macro_f1",
    "nq_exact_match",
    "nq_f1",
    "strip_thinking",
]

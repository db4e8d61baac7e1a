"""From the task model's answers to verdicts, by the task's kind; from those on several samples to one."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean

from prewrite.grading import extract_math_answer, find_label, grade_math, nq_exact_match, nq_f1
from prewrite.grading.reply import answer_part
from prewrite.tasks.base import Task
from prewrite.types import Answer, Example, Verdict


def grade(task: Task, examples: Sequence[Example], answers: Sequence[Answer]) -> list[Verdict]:
    """The verdict on each answer, in order; a failed call has none (`correct` is None). Thinking never counts.

    classification: the label that the answer is, or gives in free text (`find_label`); well-formed = there is one.
    math: the last box, or the answer stated plainly (`grade_math`, one batch); well-formed = there is an answer.
    open_question: exact match with any gold, and token F1; well-formed = one line that is not empty.
    """
    assert len(examples) == len(answers), "one answer for each example"
    graders = {"classification": _grade_labels, "math": _grade_math, "open_question": _grade_open_questions}
    replied = [index for index, answer in enumerate(answers) if answer.text is not None]
    graded = graders[task.kind](task, [examples[i] for i in replied], [answers[i].text or "" for i in replied])
    by_index = dict(zip(replied, graded, strict=True))
    for index, verdict in by_index.items():
        if (likely := answers[index].choice_logprobs) is not None and verdict.target in task.labels:
            by_index[index] = replace(verdict, target_logprob=likely[task.labels.index(str(verdict.target))])
    return [by_index.get(index) or failed_verdict(example.id, example.target) for index, example in enumerate(examples)]


def failed_verdict(example_id: str, target: str | tuple[str, ...]) -> Verdict:
    """The verdict on a call that stayed failed."""
    return Verdict(example_id, target, prediction=None, correct=None, well_formed=False)


def _grade_labels(task: Task, examples: Sequence[Example], replies: Sequence[str]) -> list[Verdict]:
    verdicts = []
    for example, reply in zip(examples, replies, strict=True):
        label = find_label(reply, task.labels)
        verdicts.append(Verdict(example.id, example.target, label, label == str(example.target), label is not None))
    return verdicts


def _grade_math(task: Task, examples: Sequence[Example], replies: Sequence[str]) -> list[Verdict]:
    correct = grade_math(zip(replies, [str(example.target) for example in examples], strict=True))
    given = map(extract_math_answer, replies)
    return [
        Verdict(example.id, example.target, answer, correct=is_correct, well_formed=answer is not None)
        for example, answer, is_correct in zip(examples, given, correct, strict=True)
    ]


def _grade_open_questions(task: Task, examples: Sequence[Example], replies: Sequence[str]) -> list[Verdict]:
    verdicts = []
    for example, reply in zip(examples, replies, strict=True):
        golds, shown = example.target, answer_part(reply).strip()
        is_line, is_right = bool(shown) and "\n" not in shown, nq_exact_match(reply, golds) == 1.0
        verdicts.append(Verdict(example.id, golds, shown or None, is_right, is_line, f1=nq_f1(reply, golds)))
    return verdicts


def averaged(by_sample: Sequence[Sequence[Verdict]]) -> tuple[Verdict, ...]:
    """One verdict an example, from those on its samples. by_sample: [sample][example].

    `share` is the mean, the other fields say what most samples are or say; failed calls are left out of both.
    """
    return tuple(by_sample[0]) if len(by_sample) == 1 else tuple(map(_average, zip(*by_sample, strict=True)))


def _average(verdicts: Sequence[Verdict]) -> Verdict:
    if not (judged := [verdict for verdict in verdicts if verdict.correct is not None]):
        return verdicts[0]
    f1 = [verdict.f1 for verdict in judged if verdict.f1 is not None]
    share = fmean(verdict.correct is True for verdict in judged)
    is_formed = fmean(verdict.well_formed for verdict in judged) > 0.5
    said = Counter(verdict.prediction for verdict in judged).most_common(1)[0][0]
    how = {"correct": share > 0.5, "well_formed": is_formed, "f1": fmean(f1) if f1 else None, "share": share}
    return replace(judged[0], prediction=said, **how)  # the rest is the same for all samples

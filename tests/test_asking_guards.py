"""A rewrite that is no instruction, or not in a language of the task, is worth nothing; one that only looks so is."""

import pytest

from prewrite.asking.guards import wording_fault
from prewrite.types import Example

SENTIMENT = "Classify the sentiment of the sentence as positive or negative."
SOLVE = "Solve the problem and write the answer in \\boxed{}."
META = "Write this instruction anew, clearer. Reply with the new instruction only."
CASES = [
    ("Positive: Positive sentence: Sentence I.", SENTIMENT, "no_instruction"),
    ('The sentiment of the sentence is "positive".', SENTIMENT, "no_instruction"),
    ("A: Negative", SENTIMENT, "no_instruction"),
    ("The sentence is written in the negative.", SENTIMENT, "no_instruction"),
    ("The sentence is sentiment-negative. This is a question: What is the sentiment?", SENTIMENT, "no_instruction"),
    ('The answer is "positive." Is the sentence positive or negative?', SENTIMENT, "no_instruction"),
    ("**The sentiment: negative**\n\nWhy is it so?", SENTIMENT, "no_instruction"),
    ("It is positive and not a question.", SENTIMENT, "no_instruction"),
    ("The answer is: What is the classification of the sentiment?", SENTIMENT, None),  # no label, and it asks
    ("The sentence is classified as **negative when it contains criticism** of some kind.", SENTIMENT, None),  # a rule
    ("A sentence that praises is positive. One that blames is negative.", SENTIMENT, None),
    ("Positive: the sentence praises.\nNegative: it blames.\nWhich?", SENTIMENT, None),
    ("This is a positive or negative sentence. Say which.", SENTIMENT, None),
    ("The sentence has some positive words. Is it negative all the same?", SENTIMENT, None),
    ("Judge what is positive in it. Do not explain.", SENTIMENT, None),
    ("Is the sentence positive?", SENTIMENT, None),
    ("Judge whether the sentence is positive.", SENTIMENT, None),
    ("The sentence is either positive or negative: name it.", SENTIMENT, None),
    ("Find out how positive the sentence sounds.", SENTIMENT, None),
    ("Name the feeling in the sentence.", SENTIMENT, None),
    ("The sentence is positive: say how strongly.", "Is it positive?", None),  # the initial one names one label too
    ("Please provide the problem, and I will help you solve it.", SOLVE, "no_instruction"),
    ("Certainly! Give me the problem so I can assist you.", SOLVE, "no_instruction"),
    ("I'm sorry, but I can't help you with that.", SOLVE, "no_instruction"),
    ("Do you need assistance with understanding the instructions?", SOLVE, "no_instruction"),
    ("Solve it as if I asked you in class, and box the answer.", SOLVE, None),
    ("Reply with the new instruction only.", SOLVE, "quotes_request"),
    ("Synthetically reworded the instruction into a question about the sentence.", SENTIMENT, "quotes_request"),
    ("Is it so?\n\nRephrased instruction: Say whether it is so.", SOLVE, "quotes_request"),
    ("Improved prompts are short. Box the answer.", SOLVE, None),
    ("Solve it, and box the最终 answer.", SOLVE, "foreign_text"),
    ("Реши задачу.", SOLVE, "foreign_text"),
    ("Résous le problème: αβ, 2π, x² − 1 → \\boxed{}.", SOLVE, None),
]


@pytest.mark.parametrize(("rewrite", "instruction", "fault"), CASES)
def test_what_instructs_is_told_from_what_does_not(rewrite: str, instruction: str, fault: str | None):
    labels = ("negative", "positive") if instruction != SOLVE else ()
    assert wording_fault(rewrite, instruction, META, labels) == fault


@pytest.mark.parametrize(
    ("rewrite", "fault"),
    [
        (
            "The ticket belongs to the billing queue, which is a specific queue. The question will ask about it.",
            "no_instruction",
        ),
        ("The ticket belongs to billing due to its date and not its text.", "no_instruction"),
        ("This is a shipping company's ticket. Which queue does it belong to?", None),
        ("The ticket may be about the shipping of goods. Choose billing, technical or shipping.", None),
    ],
)
def test_an_answer_with_a_clause_behind_it_is_an_answer_still(rewrite: str, fault: str | None):
    initial = "Which queue does the ticket belong to: billing, technical or shipping?"
    assert wording_fault(rewrite, initial, META, ("billing", "technical", "shipping")) == fault


def test_the_examples_say_in_which_scripts_a_task_is_written():
    chinese = Example("1", {"text": "这部电影很好"}, "positive")
    rewrite = "判断情感: positive or negative?"
    assert wording_fault(rewrite, SENTIMENT, META, ("negative", "positive")) == "foreign_text"
    assert wording_fault(rewrite, SENTIMENT, META, ("negative", "positive"), [chinese]) is None

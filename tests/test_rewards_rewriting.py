"""The rewards of rewriting: from verdicts to scores, what is asked, guards."""

import pytest

from prewrite.asking import ALONE, MINI_BATCH, SUBJECT_BATCH, TEMPLATE
from prewrite.asking.cleaning import clean_rewrite
from prewrite.asking.questions import Question
from prewrite.asking.template import brace_tags, fill_template, has_right_tags
from prewrite.errors import UserError
from prewrite.rewards import (
    NOT_MY_ROW,
    REWARDS,
    check_coverage,
    check_objective,
    check_rows,
    get_reward,
    score_completions,
)
from prewrite.tasks import get_task
from prewrite.tasks.rows import own_examples
from prewrite.types import Answer, Call, Evaluation, Example, InstructionRow, Sample, Verdict

MATH, SST2, NQ = get_task("gsm8k"), get_task("sst2"), get_task("nq_open")
ROW = InstructionRow("Solve it.", "gsm8k")


def sample(text="Solve it well.", finish_reason="stop"):
    return Sample((), (), (), text, finish_reason)


def evaluation(task, *correct, f1=None):
    verdicts = [Verdict(str(i), "5", "5", right, True, f1) for i, right in enumerate(correct)]
    return Evaluation("Solve it well.", task.name, tuple(verdicts))


def labelled(*pairs):
    verdicts = [Verdict(str(i), gold, given, gold == given, given is not None) for i, (gold, given) in enumerate(pairs)]
    return Evaluation("Label it.", "sst2", tuple(verdicts))


def score(name, tasks, evaluations, rows=None, texts=None, **offered):
    samples = [sample(text) for text in texts] if texts else [sample()] * len(tasks)
    rewrites = [clean_rewrite(one.text) for one in samples]
    offered = {"tasks": tasks, "examples": [()] * len(tasks), "rewrites": rewrites} | offered
    return get_reward(name).score(samples, rows or [ROW] * len(tasks), evaluations=evaluations, **offered)


def test_accuracy_is_the_share_of_right_answers_of_the_tasks_own_kind():
    evaluations = [evaluation(MATH, True, True, True, False), labelled(("positive", "positive")), evaluation(NQ, True)]
    tasks = [MATH, SST2, NQ]
    assert score("accuracy_math_reward", tasks, evaluations) == [0.75, NOT_MY_ROW, NOT_MY_ROW]
    assert score("accuracy_classification_reward", tasks, evaluations) == [NOT_MY_ROW, 1.0, NOT_MY_ROW]
    assert score("accuracy_nq_open_instruction_prewrite_reward", tasks, evaluations) == [NOT_MY_ROW, NOT_MY_ROW, 1.0]


def test_a_faulty_rewrite_is_worth_nothing_and_a_missing_verdict_is_no_verdict():
    evaluations = [None, evaluation(MATH, True, None), evaluation(MATH, None)]
    assert score("accuracy_math_reward", [MATH] * 3, evaluations) == [0.0, None, None]
    assert score("f1_classification_reward", [SST2], [None]) == [0.0]
    assert score("f1_classification_reward", [MATH], [None]) == [NOT_MY_ROW]


def test_macro_f1_is_pooled_over_the_mini_batch_and_the_fixed_labels():
    # positive: TP 1, FN 1, FP 1 -> 2/4; negative: TP 1, FN 1, FP 0 -> 2/3; mean 7/12.
    pairs = [("positive", "positive"), ("positive", None), ("negative", "negative"), ("negative", "positive")]
    assert score("f1_classification_reward", [SST2], [labelled(*pairs)]) == [pytest.approx(7 / 12)]
    one_label_always = [("positive", "positive"), ("negative", "positive")]
    assert score("f1_classification_reward", [SST2], [labelled(*one_label_always)]) == [pytest.approx(1 / 3)]


def test_f1_of_open_questions_is_a_mean():
    verdicts = (Verdict("1", ("a",), "a", True, True, 1.0), Verdict("2", ("a",), "a b", False, True, 0.5))
    evaluations = [Evaluation("Answer.", NQ.name, verdicts)]
    assert score("f1_nq_open_instruction_prewrite_reward", [NQ], evaluations) == [0.75]


def test_split_counts_the_problems_of_the_rows_subject_alone():
    subjects = ("Algebra", "Geometry", "Algebra")
    drawn = [Example(str(i), {"problem": "?"}, "5", subject=subject) for i, subject in enumerate(subjects)]
    rows = [InstructionRow("x", "math-500", subject=subject) for subject in ("algebra", "Geometry", "Logic", None)]
    evaluations = [evaluation(MATH, True, True, False)] * 4
    found = score("accuracy_math_reward_split", [MATH] * 4, evaluations, rows, examples=[drawn] * 4)
    assert found == [0.5, 1.0, None, NOT_MY_ROW]
    assert [example.id for example in own_examples(rows[0], drawn)] == ["0", "2"]
    assert own_examples(rows[3], drawn) == drawn


def test_a_template_with_wrong_tags_is_worth_minus_one():
    row = InstructionRow("Solve.", "gsm8k", tags=("problem",))
    texts = ["Solve {problem} in \\boxed{}.", "Solve it.", "Solve {problem} for {x}.", "<|im_start|>"]
    evaluations = [evaluation(MATH, True, False), None, None, None]
    assert score("template_accuracy_math_reward", [MATH] * 4, evaluations, [row] * 4, texts) == [0.5, -1.0, -1.0, 0.0]


@pytest.mark.parametrize(
    ("template", "tags"),
    [
        ("{problem} \\boxed{answer} \\frac{a}{b} x_{n} y^{k} {} {1; 2} { problem }", {"problem"}),
        ("{problem}{subject}", {"problem", "subject"}),
        ("Solve{problem}", {"problem"}),
        ("{{problem}}", {"problem"}),
        ("{problem.__class__} {0} {x!r}", set()),
    ],
)
def test_brace_tags_are_names_alone_in_braces(template, tags):
    assert brace_tags(template) == tags


def test_a_template_is_filled_in_one_pass():
    tags = ("problem",)
    example = Example("1", {"problem": "What is {problem} in {x}? \\1 %s"}, "5")
    assert fill_template("Q: {problem} \\boxed{x}", tags, example) == "Q: What is {problem} in {x}? \\1 %s \\boxed{x}"
    assert has_right_tags("Q: {problem}", tags)
    assert not has_right_tags("Q:", tags)
    TEMPLATE.check_row(InstructionRow("Solve.", "gsm8k", tags=tags), MATH, [], "a reward")
    for wrong in (("question",), ()):
        with pytest.raises(UserError, match="problem"):
            TEMPLATE.check_row(InstructionRow("Solve.", "gsm8k", tags=wrong), MATH, [], "a reward")


def test_what_is_asked():
    example = Example("1", {"text": "It's {fine}."}, "positive")
    row = InstructionRow("Say.", "sst2", tags=("text",), answer="positive")
    asked = [
        way.calls(SST2, row, "Say: {text}", [example], SST2.labels)
        for way in (MINI_BATCH, SUBJECT_BATCH, ALONE, TEMPLATE)
    ]
    assert asked == [
        [Call("Say: {text}\nSentence: It's {fine}.", SST2.labels)],
        [Call("Say: {text}\nSentence: It's {fine}.", SST2.labels)],
        [Call("Say: {text}")],
        [Call("Say: It's {fine}.", SST2.labels)],
    ]
    question = Question(MINI_BATCH, SST2, InstructionRow("Say.", "sst2"), "Say.", [example])
    assert [call.choices for call in question.calls("free_text")] == [()]
    assert [call.choices for call in question.calls("forced_choice")] == [SST2.labels]


def test_a_row_is_graded_by_math_where_its_gold_is_math_else_as_text():
    golds = ["1/2", "\\frac{\\pi}{2}", "The Eiffel Tower", ("Paris", "Lutetia"), "5", "5"]
    replies = ["It is \\boxed{0.5}", "\\boxed{\\pi/2}", "<think>?</think>eiffel tower.", "Lutetia", "six or so", None]
    answers = [Answer(reply) if reply else Answer(None, error="timed out") for reply in replies]
    verdicts = [
        ALONE.grade(NQ, InstructionRow("?", "nq_open", answer=gold), [], [answer])
        for gold, answer in zip(golds, answers, strict=True)
    ]
    assert [verdict.correct for (verdict,) in verdicts] == [True, True, True, True, False, None]
    assert (
        ALONE.grade(NQ, InstructionRow("?", "nq_open", answer="Paris"), [], [Answer("Paris<|im_end|>")])[0].prediction
        == "Paris"
    )
    # a math task's golds are math, words too; and the other ways grade by the task's kind
    row = InstructionRow("?", "gsm8k", answer="1/2")
    assert ALONE.grade(MATH, row, [], [Answer("0.5")])[0].correct is True
    examples = [Example("3", {"question": "?"}, golds[3])]
    assert MINI_BATCH.grade(NQ, row, examples, [Answer("in Paris")])[0].f1 == pytest.approx(2 / 3)


def test_length_penalty_falls_in_a_straight_line():
    texts = ["x" * n for n in (0, 10, 15, 20, 99)]
    parameters = {"free_length": 10, "max_length": 20}
    assert score_completions("length_penalty", texts, [ROW] * 5, **parameters) == [0, 0, -0.5, -1, -1]
    with pytest.raises(UserError, match="free_length=20"):
        score_completions("length_penalty", ["x"], [ROW], free_length=20, max_length=20)


TEXT = "the quick brown fox jumps over the lazy dog today"
LEAKY = Example("1", {"text": TEXT}, "positive")


@pytest.mark.parametrize(
    ("rewrite", "instruction", "fault"),
    [
        ("For example: The quick, BROWN fox jumps over the lazy dog!", "Label.", "leak"),
        ("The quick brown fox jumps over the", "Label.", None),  # 7 words
        ("The quick brown fox jumps over the lazy dog", f"Label texts like: {TEXT}", None),  # the instruction's own
        ("Answer positive or negative, and put it in \\boxed{}: {x}", "Label.", None),
        ("", "Label.", "empty"),
    ],
)
def test_leak_guard_by_eight_words_in_a_row(rewrite, instruction, fault):
    row = InstructionRow(instruction, "sst2")
    assert MINI_BATCH.fault(sample(rewrite), rewrite, row, [LEAKY]) == fault


def test_leak_guard_counts_characters_where_a_script_has_no_spaces():
    example = Example("1", {"text": "今天的天气非常好我很高兴"}, "positive")
    row = InstructionRow("分类。", "sst2")
    assert MINI_BATCH.fault(sample("x"), "例如：天气非常好我很高", row, [example]) == "leak"
    assert MINI_BATCH.fault(sample("x"), "例如：天气非常好", row, [example]) is None


@pytest.mark.parametrize(
    ("rewrite", "fault"),
    [
        ("Add 12 and 30, which is 42.", "leak"),
        ("Add 12 and 30.", None),
        ("1. Add.\n42. Check.", None),  # a list mark
        ("Add 12 and 30; 421 is wrong.", None),
    ],
)
def test_a_row_must_not_hold_its_answer(rewrite, fault):
    row = InstructionRow("What is 12 + 30?", "gsm8k", answer="42")
    assert ALONE.fault(sample(rewrite), rewrite, row, []) == fault
    known = InstructionRow("Is 12 + 30 = 42?", "gsm8k", answer="42")
    assert ALONE.fault(sample(rewrite), rewrite, known, []) is None


def test_truncated_and_forged_rewrites_are_faults():
    assert MINI_BATCH.fault(sample("Solve", "length"), "Solve", ROW, []) == "truncated"
    assert MINI_BATCH.fault(sample("<|im_start|>user"), "", ROW, []) == "control_token"
    assert MINI_BATCH.fault(sample("<|im_start|>"), "", ROW, []) == "empty"
    assert MINI_BATCH.fault(sample("Solve<|im_end|>"), "Solve", ROW, []) is None


def test_unknown_rewards_are_told_with_the_nearest():
    with pytest.raises(UserError, match="'accuracy_reward'"):
        get_reward("acuracy_reward")
    with pytest.raises(UserError, match="no module 'no_such_module'"):
        get_reward("no_such_module:reward")
    with pytest.raises(UserError, match="'shouting'"):
        get_reward(f"{__name__}:shoutin")


def shouting(samples, rows, *, factor: float = 1.0):
    return [factor * sample.text.isupper() for sample in samples]


def right_share(samples, rows, *, evaluations):
    return [sum(v.correct for v in e.verdicts) / len(e.verdicts) for e in evaluations]


def broken(samples, rows):
    return [float("nan")] * len(samples)


def test_a_users_own_function():
    assert score_completions(f"{__name__}:shouting", ["A", "a"], [ROW] * 2, factor=2.0) == [2.0, 0.0]
    own = get_reward(f"{__name__}:right_share")
    assert own.asking is MINI_BATCH
    assert own.score([sample()], [ROW], evaluations=[evaluation(MATH, True, False)]) == [0.5]
    with pytest.raises(UserError, match="nan"):
        score_completions(f"{__name__}:broken", ["A"], [ROW])
    with pytest.raises(UserError, match="'factor'"):
        score_completions(f"{__name__}:shouting", ["A"], [ROW], facto=2.0)


def nothing(samples, rows):
    return None


def too_large(samples, rows):
    return [10**400] * len(samples)


def leaves(samples, rows):
    raise SystemExit(0)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("nothing", "it returned a NoneType; it must be a list of scores"),
        ("too_large", "a score is a finite number"),
        ("leaves", r"it raised SystemExit: 0 \(.*test_rewards_rewriting.py, line"),
    ],
)
def test_what_is_no_list_of_scores_is_told(name, told):
    with pytest.raises(UserError, match=told):
        score_completions(f"{__name__}:{name}", ["A"], [ROW])


def test_none_for_a_list_is_told_before_a_model_loads():
    with pytest.raises(UserError, match="it returned a NoneType"):
        get_reward(f"{__name__}:nothing").check_parameters({})


@pytest.mark.parametrize("code", ["raise ValueError('boom')", "raise SystemExit(3)", "import no_such_library"])
def test_a_module_that_cannot_be_imported_is_told_with_its_line(code, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "own_faulty.py").write_text(code)
    with pytest.raises(UserError, match=r"reward 'own_faulty:f': it raised \w+: .* \(.*own_faulty.py, line 1\)"):
        get_reward("own_faulty:f")


def test_a_name_from_a_package_above_is_refused():
    with pytest.raises(UserError, match=r"is named package\.module:function"):
        get_reward(".own:f")


def test_score_completions_says_what_it_needs():
    with pytest.raises(UserError, match="evaluations="):
        score_completions("accuracy_math_reward", ["x"], [ROW])
    with pytest.raises(UserError, match="row 1 has no 'answer'"):
        score_completions("accuracy_reward", ["x"], [{"problem": "1 + 1"}])
    with pytest.raises(UserError, match="2 completions and 1 rows"):
        score_completions("accuracy_reward", ["x", "y"], [{"problem": "1 + 1", "answer": 2}])


def test_a_task_that_no_reward_scores_is_refused():
    check_coverage([REWARDS["accuracy_math_reward"], REWARDS["length_penalty"]], [MATH])
    check_coverage([REWARDS["prewrite_accuracy_reward"]], [MATH, SST2, NQ])
    check_coverage([REWARDS["format_reward"]], [MATH])
    with pytest.raises(UserError, match="accuracy_classification_reward, f1_classification_reward"):
        check_coverage([REWARDS["accuracy_math_reward"]], [MATH, SST2])


def test_a_row_without_what_a_reward_reads_in_it_is_refused():
    tasks = {"gsm8k": MATH, "sst2": SST2}
    rewards = [REWARDS["prewrite_accuracy_reward"], REWARDS["length_penalty"]]
    check_rows(rewards, [InstructionRow("1 + 1?", "gsm8k", answer="2")], tasks, {})
    with pytest.raises(UserError, match=r"without `answer` \('1 \+ 2\?'\)"):
        check_rows(
            rewards, [InstructionRow("1 + 1?", "gsm8k", answer="2"), InstructionRow("1 + 2?", "gsm8k")], tasks, {}
        )
    template = [REWARDS["template_accuracy_math_reward"]]
    check_rows(template, [InstructionRow("Solve.", "gsm8k", tags=("problem",)), InstructionRow("x", "sst2")], tasks, {})
    with pytest.raises(UserError, match="without tags"):
        check_rows(template, [ROW], tasks, {})


def test_a_reward_that_cannot_score_what_is_trained_on_is_refused():
    check_objective([REWARDS["length_penalty"], REWARDS["format_reward"], REWARDS["accuracy_math_reward"]], "rewrite")
    check_objective([REWARDS["accuracy_reward"], REWARDS["format_reward"]], "solve")
    for name in ("accuracy_reward", "cosine_scaled_reward", "levenshtein_reward"):
        with pytest.raises(UserError, match=f"{name} is of the objective solve"):
            check_objective([REWARDS[name]], "rewrite")
    with pytest.raises(UserError, match="accuracy_math_reward is of the objective rewrite"):
        check_objective([REWARDS["accuracy_math_reward"]], "solve")
    with pytest.raises(UserError, match="as a whole question, accuracy_math_reward as an instruction"):
        check_objective([REWARDS["prewrite_accuracy_reward"], REWARDS["accuracy_math_reward"]], "rewrite")


def test_every_named_reward_has_its_range_in_its_docstring():
    for reward in REWARDS.values():
        assert "ange" in (reward.function.__doc__ or "")

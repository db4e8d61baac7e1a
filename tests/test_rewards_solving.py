"""The rewards of solving beyond the public cases: parameters, lengths, ranges, hostile texts."""

import re
import time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from prewrite.errors import UserError
from prewrite.rewards import NOT_MY_ROW, REWARDS, get_reward, score_completions
from prewrite.rewards.form import is_open_r1
from prewrite.types import Example, Sample

FORM_REWARDS = ("format_reward", "think_answer_format_reward", "tag_count_reward", "reasoning_steps_reward")
TAGS = ["<think>", "</think>", "<answer>", "</answer>", "\n", "x", "\\boxed{5}", "\\boxed{}", " ", "<|im_end|>"]
tagged_text = st.lists(st.sampled_from(TAGS), max_size=14).map("".join)


def problem(answer="5", solution=None):
    return Example(id="1", fields={"problem": "2 + 3"}, target=answer, solution=solution)


def sample(text, num_tokens=0):
    return Sample((), (7,) * num_tokens, (0.0,) * num_tokens, text, "stop")


def test_accuracy_is_of_the_last_box_after_the_thinking():
    completions = ["\\boxed{4} no, \\boxed{5}", "<think>\\boxed{5}</think> \\boxed{4}", "no idea", "\\boxed{5.0}"]
    assert score_completions("accuracy_reward", completions, [problem()] * 4) == [1.0, 0.0, 0.0, 1.0]


def test_a_gold_that_cannot_be_read_gives_no_verdict_and_several_golds_are_another_rewards():
    rows = [problem("the answer is on the wall somewhere"), problem(("a", "b"))]
    reward = get_reward("accuracy_reward")
    assert reward.score([sample("\\boxed{5}"), sample("a")], rows) == [None, NOT_MY_ROW]


def test_cosine_counts_tokens_where_there_are_ids_and_characters_where_there_are_none():
    # right, max_len 100: 0.5 + 0.25 (1 + cos(pi L / 100)); 50 tokens -> 0.75, 9 characters ("\boxed{5}") -> 0.99007
    scores = get_reward("cosine_scaled_reward").score(
        [sample("\\boxed{5}", 50), sample("\\boxed{5}")], [problem()] * 2, parameters={"max_len": 100}
    )
    assert scores == pytest.approx([0.75, 0.990073], abs=1e-5)


def test_soft_overlong_counts_tokens():
    # max 10, cache 4: free up to 6; 8 tokens -> (6 - 8) / 4
    scores = get_reward("soft_overlong_punishment").score(
        [sample("x" * 99, n) for n in (6, 8, 10, 11)],
        [problem()] * 4,
        parameters={"max_completion_len": 10, "soft_punish_cache": 4},
    )
    assert scores == [0.0, -0.5, -1.0, -1.0]


def test_levenshtein_reads_the_reply_alone_and_needs_a_solution():
    reward = get_reward("levenshtein_reward")
    samples = [sample("<think>long thoughts</think>\nab "), sample("ab")]
    # ratio: 2 x 2 / (2 + 3); distance: 1 - 1/3
    assert reward.score(samples, [problem(solution="abc"), problem()]) == [pytest.approx(0.8), NOT_MY_ROW]
    by_distance = reward.score(samples[:1], [problem(solution="abc")], parameters={"measure": "distance"})
    assert by_distance == [pytest.approx(2 / 3)]


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("<think>a</think> <answer>b</answer>", 1.0),
        ("\n<think>a</think>\n<answer>b</answer>\n<|im_end|>", 1.0),
        ("<think>a</think> so <answer>b</answer>", 0.0),
        ("<answer>b</answer><think>a</think>", 0.0),
        ("<think>a</think><think>a</think><answer>b</answer>", 0.0),
        ("<think>a<answer>b</answer></think>", 0.0),
    ],
)
def test_think_answer_form(text, form):
    assert score_completions("format_reward", [text], [problem()]) == [form]


@pytest.mark.parametrize(
    ("answer", "score"),
    [
        ("\\boxed{5}", 1.0),
        ("\\boxed{5}\\boxed{}", 1.0),
        ("\\boxed{}\\boxed{5}", 1.0),
        ("\\boxed{\\boxed{5}}", 1.0),
        ("\\boxed 5", 1.0),
        ("\\fbox{5}", 1.0),
        ("\\boxed{ }", 0.5),
        ("\\boxed{5", 0.5),
        ("boxed{5}", 0.5),
        ("", 0.5),
        ("<think>\\boxed{5}", 0.0),
    ],
)
def test_a_form_with_a_box_in_its_answer(answer, score):
    completion = f"<think>a</think>\n<answer>{answer}</answer>\n"
    assert score_completions("think_answer_format_reward", [completion], [problem()]) == [score]


@pytest.mark.parametrize(
    ("name", "text", "parameters", "score"),
    [
        ("repetition_penalty_reward", "a b", {}, 0.0),  # fewer than 3 words
        ("repetition_penalty_reward", "A a A a", {}, -0.5),  # 1 of 2
        ("repetition_penalty_reward", "a b a b", {"ngram_size": 1}, -0.5),  # 2 of 4
        ("repetition_penalty_reward", "a a a a", {"max_penalty": -2.0}, -1.0),
        ("soft_overlong_punishment", "x" * 80, {"max_completion_len": 100, "soft_punish_cache": 20}, 0.0),
        ("soft_overlong_punishment", "x" * 81, {"max_completion_len": 100, "soft_punish_cache": 20}, -0.05),
        ("soft_overlong_punishment", "x" * 100, {"max_completion_len": 100, "soft_punish_cache": 20}, -1.0),
        ("soft_overlong_punishment", "x" * 50, {"max_completion_len": 100, "soft_punish_cache": 100}, -0.5),
        ("cosine_scaled_reward", "\\boxed{5}", {"max_len": 9}, 0.5),  # its length: the least for a right answer
        ("cosine_scaled_reward", "\\boxed{5}", {"max_len": 18}, 0.75),  # half of it: cos(pi / 2) = 0
        ("cosine_scaled_reward", "\\boxed{6}", {"max_len": 18}, -0.75),
        ("cosine_scaled_reward", "", {}, -1.0),
        ("levenshtein_reward", "<think>five", {}, 0.0),  # cut off while it thought: nothing to compare
        ("reasoning_steps_reward", "Firstly, a\n-b", {}, 1 / 3),
    ],
)
def test_scores_at_their_borders(name, text, parameters, score):
    assert score_completions(name, [text], [problem(solution="five")], **parameters) == [pytest.approx(score)]


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("<think>a</think> so \\boxed{5}", 1.0),
        ("  <think>\na\n</think>\n$\\boxed{\\frac{1}{2}}$.", 1.0),
        ("<think>\\boxed{5}</think> five", 0.0),
        ("<think>a</think> \\boxed{}", 0.0),
        ("<think>a \\boxed{5}", 0.0),
        ("a</think> \\boxed{5}", 0.0),
        ("\\boxed{5}", 0.0),
    ],
)
def test_think_boxed_form(text, form):
    assert score_completions("format_reward", [text], [problem()], style="think_boxed") == [form]


@given(tagged_text)
@example("<think>\n</think>\n<answer>\n\n</answer>")
@settings(max_examples=500, deadline=None)
def test_the_open_r1_form_is_its_regular_expression(text):
    pattern = r"^<think>\n.*?\n</think>\n<answer>\n.*?\n</answer>$"
    assert is_open_r1(text) == bool(re.match(pattern, text, re.DOTALL | re.MULTILINE))


@given(st.one_of(tagged_text, st.text(max_size=60)))
@settings(max_examples=200, deadline=None)
def test_every_score_lies_in_the_rewards_range(text):
    needed = {"soft_overlong_punishment": {"max_completion_len": 20, "soft_punish_cache": 5}}
    for name in (*FORM_REWARDS, "repetition_penalty_reward", "soft_overlong_punishment", "levenshtein_reward"):
        low, high = REWARDS[name].range
        (score,) = score_completions(name, [text], [problem(solution="x <answer>")], **needed.get(name, {}))
        assert score is not None
        assert low <= score <= high


@pytest.mark.parametrize(
    "unit", [*TAGS, "<think>\n", "\n</think>\n<answer>\n", "\n</answer>", "</think><answer>", "{", "1. "]
)
def test_a_long_hostile_completion_takes_no_time(unit):
    text = "<think>\n" + unit * (100_000 // len(unit))
    for name in FORM_REWARDS:
        for parameters in ({"style": "open_r1"}, {"style": "think_boxed"}) if name == "format_reward" else ({},):
            started = time.process_time()
            score_completions(name, [text], [problem()], **parameters)
            assert time.process_time() - started < 1


@pytest.mark.parametrize(
    ("name", "parameters", "told"),
    [
        ("format_reward", {"style": "think"}, "think_answer, open_r1, think_boxed"),
        ("format_reward", {"styl": "open_r1"}, "'style'"),
        ("levenshtein_reward", {"measure": "cosine"}, "ratio, distance"),
        ("repetition_penalty_reward", {"max_penalty": 1.0}, "must not be positive"),
        ("repetition_penalty_reward", {"ngram_size": "3"}, "type int"),
        ("repetition_penalty_reward", {"ngram_size": True}, "type int"),
        ("cosine_scaled_reward", {"max_len": 0}, "at least 1"),
        ("soft_overlong_punishment", {}, "max_completion_len"),
        ("soft_overlong_punishment", {"max_completion_len": 5, "soft_punish_cache": 0}, "soft_punish_cache=0"),
        ("tag_count_reward", {"x": 1}, "It has none"),
    ],
)
def test_an_impossible_parameter_is_refused_before_anything_is_scored(name, parameters, told):
    with pytest.raises(UserError, match=re.escape(told)):
        get_reward(name).check_parameters(parameters)


def test_from_python_a_form_reward_needs_no_answer_and_a_number_is_itself():
    boxed = [r"\boxed{4}"]
    for name in ("format_reward", "tag_count_reward", "reasoning_steps_reward", "repetition_penalty_reward"):
        bare, with_answer = (score_completions(name, boxed, [row]) for row in ({"problem": "2 + 2?"}, {"answer": "4"}))
        assert bare == with_answer
    for gold in (4, 4.0, "4"):
        assert score_completions("accuracy_reward", boxed, [{"answer": gold}]) == [1.0]
    for gold in (float("nan"), {"value": "4"}, " "):
        with pytest.raises(UserError, match="row 1: 'answer' is"):
            score_completions("accuracy_reward", boxed, [{"answer": gold}])
    with pytest.raises(UserError, match="row 1 has no 'answer'"):
        score_completions("accuracy_reward", boxed, [{"problem": "2 + 2?"}])

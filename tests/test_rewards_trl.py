"""Functions with TRL's signature as rewards, and `python -m prewrite.rewards`."""

import json

import pytest

from prewrite.errors import UserError
from prewrite.rewards import NOT_MY_ROW, REWARDS, check_rows, get_reward, score_completions
from prewrite.rewards.__main__ import main
from prewrite.tasks import get_task
from prewrite.types import Example, InstructionRow, Sample

ROW = InstructionRow("Say it.", "sst2")


def score(name, texts, rows, **parameters):
    return score_completions(f"tests.trl_rewards:{name}", texts, rows, **parameters)


def test_texts_messages_and_columns_as_the_function_reads_them():
    assert score("long_ones", ["abc", ""], [{}, {}]) == [3.0, 0.0]
    assert score("ends_with_answer", ["so 12", "so 13"], [{"answer": "12"}, {"answer": "12"}]) == [1.0, 0.0]
    assert score("tagged_by_a_helper", ["<think>", "x"], [{"problem": "p"}, {"prompt": "q"}]) == [1.0, 0.0]
    assert score("looks_at_the_first", ["a", "b"], [{}, {}]) == [1.0, 1.0]


def test_none_leaves_the_sum_alone():
    reward = get_reward("tests.trl_rewards:only_math")
    samples = [Sample((), (), (), text, "stop") for text in ("abcde", "abc")]
    rows = [{"kind": "math", "more": 1}, {"kind": "code", "more": 2}]
    assert reward.score(samples, rows) == [0.5, NOT_MY_ROW]


def test_rows_of_a_run_are_columns():
    reward = get_reward("tests.trl_rewards:of_instructions")
    samples = [Sample((), (1, 2), (0.0, 0.0), text, "stop") for text in ("Please: Say it.", "No")]
    assert reward.score(samples, [ROW, ROW]) == [1.0, 0.0]
    problem = Example(id="1", fields={"problem": "1+1"}, target="2")
    assert score("ends_with_answer", ["it is 2"], [problem]) == [1.0]


def test_a_column_that_rows_lack_is_told_before_anything_is_paid():
    tasks = {"sst2": get_task("sst2")}
    check_rows([get_reward("tests.trl_rewards:of_instructions")], [ROW], tasks, {})
    with pytest.raises(UserError, match=r"only_math: it takes 'kind', and the rows have instruction, dataset_name"):
        check_rows([get_reward("tests.trl_rewards:only_math")], [ROW], tasks, {})
    with pytest.raises(UserError, match=r"it takes 'kind', and the rows have other"):
        score("only_math", ["a"], [{"other": 1}])


def test_what_cannot_be_called_is_told():
    with pytest.raises(UserError, match="asynchronous"):
        get_reward("tests.trl_rewards:later")
    with pytest.raises(UserError, match="returned a NoneType; it must be a list"):
        score("none_at_all", ["a"], [{}])
    with pytest.raises(UserError, match=r"breaks: it raised TypeError: .*trl_rewards.py, line"):
        score("breaks", ["a"], [{}])
    with pytest.raises(UserError, match=r"in_part.: it is a partial, not a function; write a `def`"):
        get_reward("tests.trl_rewards:in_part")
    with pytest.raises(UserError, match="'scale' is no parameter of it"):
        score("long_ones", ["a"], [{}], scale=2)


def lines_of(capsys, *arguments):
    assert main(arguments) == 0
    return capsys.readouterr().out.splitlines()


def test_the_table_has_every_reward_with_range_arguments_and_needs(capsys):
    header, *lines = lines_of(capsys)
    assert [line.split()[0] for line in lines] == list(REWARDS)
    assert header.split() == ["reward", "of", "range", "needs", "arguments"]
    by_name = {line.split()[0]: " ".join(line.split()) for line in lines}
    assert by_name["cosine_scaled_reward"].startswith(
        "cosine_scaled_reward solutions -1 to 1 answer min_value_wrong=-1.0"
    )
    assert "0 to 1 the task model's answers (math) -" in by_name["accuracy_math_reward"]
    assert by_name["soft_overlong_punishment"].endswith("-1 to 0 - max_completion_len, soft_punish_cache")


def test_a_reward_is_tried_on_a_file(tmp_path, capsys):
    path = tmp_path / "rows.jsonl"
    rows = [
        {"completion": "So \\boxed{12}", "problem": "6 + 6", "answer": "12"},
        {"completion": [{"role": "assistant", "content": "\\boxed{13}"}], "problem": "6 + 6", "answer": "12"},
    ]
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    assert lines_of(capsys, "accuracy_reward", str(path)) == [
        "       1  So \\boxed{12}", "       0  \\boxed{13}", "mean 0.5 over 2",
    ]  # fmt: skip
    assert lines_of(capsys, "tests.trl_rewards:long_ones", str(path))[-1] == "mean 11.5 over 2"  # 13 and 10 letters
    overlong = (
        "soft_overlong_punishment",
        str(path),
        "--set",
        "max_completion_len=20",
        "--set",
        "soft_punish_cache=10",
    )
    assert lines_of(capsys, *overlong)[0].split()[0] == "-0.3"  # (20 - 10 - 13) / 10
    path.write_text(json.dumps({"completion": "x" * 1600, "instruction": "Do it."}), encoding="utf-8")
    assert lines_of(capsys, "length_penalty", str(path))[0].split()[0] == "-0.5"  # (1600 - 800) / (2400 - 800)


def test_a_reward_of_answers_is_tried_on_a_file_with_verdicts(tmp_path, capsys):
    path = tmp_path / "rows.jsonl"
    rows = [
        {"completion": "Add.", "instruction": "Sum.", "dataset_name": "gsm8k", "verdicts": [True, {"correct": False}]},
        {"completion": "Do.", "instruction": "Sum.", "dataset_name": "gsm8k", "verdicts": [True, None]},
    ]
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    assert lines_of(capsys, "accuracy_math_reward", str(path)) == [
        "     0.5  Add.", "       -  Do.", "mean 0.5 over 1; 1 without a verdict, or another reward's",
    ]  # fmt: skip
    csv = tmp_path / "rows.csv"
    csv.write_text('completion,instruction,dataset_name,verdicts\nAdd.,Sum.,gsm8k,"[true, false]"\n', encoding="utf-8")
    assert lines_of(capsys, "accuracy_math_reward", str(csv))[-1] == "mean 0.5 over 1"


@pytest.mark.parametrize(
    ("reward", "row", "told"),
    [
        ("accuracy_math_reward", {"verdicts": 5}, "`verdicts` is no list"),
        ("accuracy_math_reward", {"verdicts": "true"}, "`verdicts` is no list"),
        ("accuracy_math_reward", {"verdicts": {"correct": True}}, "`verdicts` is no list"),
        ("accuracy_math_reward", {"verdicts": ["true"]}, "`correct` is true, false or null"),
        ("accuracy_math_reward", {"verdicts": [{"correct": True, "f1": "0.5"}]}, "and `f1` a number"),
        ("accuracy_math_reward", {"verdicts": [True]}, "the column `dataset_name`"),
        ("f1_nq_open_instruction_prewrite_reward", {"verdicts": [True]}, "must be objects with f1 too"),
        (
            "f1_classification_reward",
            {"verdicts": [True], "dataset_name": "sst2"},
            "must be objects with target too",
        ),
        (
            "f1_classification_reward",
            {"verdicts": [{"correct": True, "target": "good"}], "dataset_name": "sst2"},
            "'good' is none of the labels ['negative', 'positive']",
        ),
    ],
)
def test_verdicts_that_cannot_be_read_are_told(tmp_path, capsys, reward, row, told):
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps({"completion": "Add.", "instruction": "Sum."} | row), encoding="utf-8")
    assert main([reward, str(path)]) == 2
    assert told in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["accuracy_rewrd", "FILE"], "Did you mean 'accuracy_reward'?"),
        (["accuracy_reward"], "give a file to try it on"),
        (["accuracy_reward", "nowhere.jsonl"], "there is no such file"),
        (["accuracy_reward", "FILE"], "row 1 has no 'answer'"),
        (["accuracy_math_reward", "FILE"], "needs the task model's answers"),
        (["soft_overlong_punishment", "FILE"], "'max_completion_len' has no default"),
        (["format_reward", "FILE", "--set", "style"], "the rule is key=value"),
        (["nowhere:f", "FILE"], "there is no module 'nowhere'"),
        (["format_reward", "EMPTY"], "`completion` must be a text"),
    ],
)
def test_faults_are_one_message(tmp_path, capsys, arguments, said):
    (tmp_path / "rows.jsonl").write_text('{"completion": "x"}\n', encoding="utf-8")
    (tmp_path / "empty.jsonl").write_text('{"text": "x"}\n', encoding="utf-8")
    files = {"FILE": str(tmp_path / "rows.jsonl"), "EMPTY": str(tmp_path / "empty.jsonl")}
    assert main([files.get(word, word) for word in arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert said in err
    assert len(err.splitlines()) == 1

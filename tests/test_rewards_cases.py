"""The public cases of the solving rewards: every one with an agreed answer, and our decisions on the others."""

import json
import os
from pathlib import Path

import pytest

from prewrite.rewards import score_completions
from prewrite.rewards.solving import cosine_scaled, distance_likeness, soft_overlong

CASES_FILE = Path(os.environ.get("PREWRITE_CASES", Path(__file__).parents[2] / "shared" / "cases")) / "cases.jsonl"
KINDS = (
    "format_project",
    "format_openr1",
    "tag_count",
    "reasoning_steps",
    "repetition",
    "cosine",
    "levenshtein",
    "soft_overlong",
)
ROW = [{"problem": "", "answer": "5"}]


def cases():
    if not CASES_FILE.is_file():
        reason = f"no cases at {CASES_FILE}; set PREWRITE_CASES to the folder of cases.jsonl"
        return [pytest.param({}, id="no cases", marks=pytest.mark.skip(reason=reason))]
    lines = CASES_FILE.read_bytes().decode("utf-8").split("\n")
    found = [json.loads(line) for line in lines if line.strip()]
    return [pytest.param(case, id=case["id"]) for case in found if case["kind"] in KINDS]


def value_of(case):
    def score(name, **parameters):
        return score_completions(name, [case["completion"]], ROW, **parameters)[0]

    match case["kind"]:
        case "format_project":
            return score("think_answer_format_reward")
        case "format_openr1":
            return score("format_reward", style="open_r1")
        case "tag_count":
            return score("tag_count_reward")
        case "reasoning_steps":
            return score("reasoning_steps_reward")
        case "repetition":
            return score(
                "repetition_penalty_reward", ngram_size=case["ngram_size"], max_penalty=float(case["max_penalty"])
            )
        case "cosine" if "completion" in case:
            rows = [{"problem": "", "answer": case["gold"]}]
            return score_completions("cosine_scaled_reward", [case["completion"]], rows, max_len=case["max_len"])[0]
        case "cosine":
            at_max, at_zero = (0.5, 1.0) if case["correct"] else (-0.5, -1.0)
            return cosine_scaled(case["length"], case["max_len"], at_max, at_zero)
        case "levenshtein":
            assert_ratio(case)
            return distance_likeness(case["a"], case["b"])
        case "soft_overlong":
            return soft_overlong(case["length"], case["max_len"], case["cache"])


def assert_ratio(case):
    rows = [{"problem": "", "answer": "5", "solution": case["b"]}]
    ratio = score_completions("levenshtein_reward", [case["a"]], rows)[0]
    assert ratio == pytest.approx(case["levenshtein_ratio_indel"], abs=1e-9)


@pytest.mark.parametrize("case", cases())
def test_case(case):
    # The ambiguous ones too: we keep to the definition that each case states.
    if case["expected"] is None:
        assert value_of(case) is None
    else:
        assert value_of(case) == pytest.approx(case["expected"], abs=1e-9)

"""`python -m prewrite.generate`: synthetic data from an endpoint, kept, filtered and in order."""

import itertools
import json
import os
import random
import re
import resource
import shlex
import shutil
import signal
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import datasets
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from prewrite.config.loading import load_config
from prewrite.engine import answers
from prewrite.engine.task_probe import PROBE_QUERY
from prewrite.evaluation.setup import UNREAD
from prewrite.generate.__main__ import main
from prewrite.tasks import get_task
from prewrite.tasks.loading import load_examples
from prewrite.training.objectives.solve_data import load_solve_data, user_turn
from prewrite.types import Answer
from tests.fault_server import Behaviour, FaultServer, Reply, completion, query_of
from tests.hub_server import HubServer
from tests.hub_stand_in import HubStandIn
from tests.launching import MODEL, ROOT, finish, start, train_here, with_settings
from tests.loaded import start_light, start_loaded

TEMPLATE = "Solve: {{ problem }}"


def rows_file(folder: Path, count: int, **columns: Any) -> Path:
    path = folder / "rows.jsonl"
    rows = [{"problem": f"{number} + 1", "answer": str(number + 1), **columns} for number in range(count)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def command(server: FaultServer, data: Path | str, out: Path, *more: str) -> list[str]:
    where = ["--data", str(data), "--out", str(out), "--model", "task", "--base-url", server.base_url]
    return [*where, *(() if "--template" in more else ("--template", TEMPLATE)), *more]


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def asked(server: FaultServer) -> Counter[str]:
    """How often each prompt arrived, the first question apart."""
    return Counter(query for body in server.bodies if (query := query_of(body)) != PROBE_QUERY)


def adds(body: dict[str, Any], tried: int) -> Reply:
    """Answers a sum rightly."""
    query = query_of(body)
    number = 0 if query == PROBE_QUERY else int(query.split()[-3]) + 1
    return Reply(body=completion(f"It is \\boxed{{{number}}}."))


def scripted(*texts: str) -> Behaviour:
    """The tries of each prompt are answered with these texts in turn; a text "CUT ..." was cut."""

    def reply(body: dict[str, Any], tried: int) -> Reply:
        text = texts[(tried - 1) % len(texts)]
        return Reply(body=completion(text, finish_reason="length" if text.startswith("CUT") else "stop"))

    return reply


def test_rows_are_data_for_sft_with_usage_and_what_was_sent_is_what_was_set(tmp_path: Path) -> None:
    data, out = rows_file(tmp_path, 3, level=2, prompt="p <|im_end|>"), tmp_path / "out.jsonl"
    flags = ["--temperature", "0.7", "--top-p", "0.9", "--max-tokens", "99", "--system-prompt", "Be brief."]
    with FaultServer(adds) as server:
        assert main(command(server, data, out, *flags, "--template", "{{ prompt }}: {{ problem }}")) == 0
    # What was sent, control tokens neutralised; SFT reads `messages`, or `prompt` and `completion`, not both.
    assert lines_of(out)[1] == {
        "problem": "1 + 1",
        "answer": "2",
        "level": 2,
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "p < |im_end|>: 1 + 1"},
            {"role": "assistant", "content": "It is \\boxed{2}."},
        ],
        "generation": {
            "model": "task",
            "sample": 0,
            "finish_reason": "stop",
            "prompt_tokens": 10,
            "completion_tokens": 2,
        },
    }
    body = next(body for body in server.bodies if "1 + 1" in query_of(body))
    wanted = {"temperature": 0.7, "top_p": 0.9, "max_tokens": 99, "messages": lines_of(out)[1]["messages"][:2]}
    assert {name: body[name] for name in wanted} == wanted


def test_a_third_of_the_calls_failing_still_gives_a_whole_file_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every third request is refused: 429 with Retry-After, 500, or a broken connection."""
    monkeypatch.setattr("prewrite.engine.task_endpoint._FIRST_BACKOFF", 0.01)
    count, lock, ways = [0], threading.Lock(), random.Random(0)

    def flaky(body: dict[str, Any], tried: int) -> Reply:
        with lock:
            count[0] += 1
            fails, way = count[0] % 3 == 0, ways.randrange(3)
        good = Reply(body=adds(body, tried).body, delay=ways.random() / 50)
        bad = (Reply(429, "{}", {"retry-after": "0.05"}), Reply(500, "oh"), Reply(body=good.body, cut=5))
        return bad[way] if fails else good

    out = tmp_path / "out.jsonl"
    with FaultServer(flaky) as server:
        flags = ["--max-retries", "10", "--concurrency", "8"]
        assert main(command(server, rows_file(tmp_path, 90), out, *flags)) == 0
    assert [row["problem"] for row in lines_of(out)] == [f"{number} + 1" for number in range(90)]
    assert [row["messages"][-1]["content"] for row in lines_of(out)] == [
        f"It is \\boxed{{{n + 1}}}." for n in range(90)
    ]
    assert len(server.bodies) > 120


def test_killed_and_started_again_it_asks_only_what_is_missing(tmp_path: Path) -> None:
    data, out, concurrency = rows_file(tmp_path, 40), tmp_path / "out.jsonl", 4
    kept = tmp_path / "out.answers.jsonl"
    with FaultServer(lambda body, tried: Reply(body=adds(body, tried).body, delay=0.05)) as server:
        flags = ["--concurrency", str(concurrency), "--num-generations", "2", "--temperature", "1"]
        words = command(server, data, out, *flags)
        process = start_light("-m", "prewrite.generate", *words)
        while not kept.is_file() or len(kept.read_text().splitlines()) < 25:
            assert process.poll() is None, process.communicate()
            time.sleep(0.01)
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        whole = kept.read_text().count("\n")
        assert 25 <= whole < 80
        problems = [row["problem"] for row in lines_of(out)]  # as far as it came: whole lines, in order
        assert problems == [f"{number} + 1" for number in range(len(problems))]
        assert len(problems) > 8
        first_requests = len(server.bodies)
        assert main(words) == 0
        assert sum(asked(server).values()) - (first_requests - 1) == 80 - whole
        assert all(times >= 2 for times in asked(server).values())
        assert sum(asked(server).values()) <= 80 + concurrency
    # Both answers of a prompt are alike here, and the second repeats the first.
    assert [row["problem"] for row in lines_of(out)] == [f"{number} + 1" for number in range(40)]
    assert len(lines_of(tmp_path / "out.left_out.jsonl")) == 40
    with FaultServer(adds) as nobody_asks:
        assert main(command(nobody_asks, data, out, *flags, "--reward", "accuracy_reward", "--keep", "first")) == 0
        assert not nobody_asks.bodies, "another filter costs no call, not even a first question"


def test_a_row_is_written_as_soon_as_those_before_it_are(tmp_path: Path) -> None:
    data, out, slow = rows_file(tmp_path, 6), tmp_path / "out.jsonl", threading.Event()

    def waits(body: dict[str, Any], tried: int) -> Reply:
        if query_of(body) == "Solve: 3 + 1":
            assert slow.wait(30)
        return adds(body, tried)

    with FaultServer(waits) as server:
        running = threading.Thread(target=main, args=(command(server, data, out),))
        running.start()
        deadline = time.monotonic() + 30
        while len(server.bodies) < 7 or not out.is_file() or out.read_text().count("\n") < 3:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert [row["problem"] for row in lines_of(out)] == ["0 + 1", "1 + 1", "2 + 1"]
        slow.set()
        running.join()
    assert len(lines_of(out)) == 6


def test_a_call_that_stays_failed_is_told_and_asked_again_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, out = rows_file(tmp_path, 8), tmp_path / "out.jsonl"
    is_broken = [True]

    def refuses(body: dict[str, Any], tried: int) -> Reply:
        return Reply(400, "no") if is_broken[0] and query_of(body) == "Solve: 5 + 1" else adds(body, tried)

    with FaultServer(refuses) as server:
        assert main(command(server, data, out)) == 0
        assert "calls without an answer: 1; the same command asks them again" in capsys.readouterr().out
        assert [row["problem"] for row in lines_of(out)] == [f"{n} + 1" for n in range(8) if n != 5]
        (failed,) = lines_of(tmp_path / "out.left_out.jsonl")
        assert (failed["problem"], failed["generation"]["left_out"]) == ("5 + 1", "failed")
        assert failed["generation"]["error"] == "HTTP 400: no"
        before, is_broken[0] = asked(server), False
        assert main(command(server, data, out)) == 0
        assert asked(server) - before == Counter({"Solve: 5 + 1": 1})
    assert [row["problem"] for row in lines_of(out)] == [f"{n} + 1" for n in range(8)]


def test_an_endpoint_that_mostly_fails_ends_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def refuses(body: dict[str, Any], tried: int) -> Reply:
        return Reply(400, "no") if "9" in query_of(body) else adds(body, tried)

    data, out = rows_file(tmp_path, 100), tmp_path / "out.jsonl"
    with FaultServer(refuses) as server:
        assert main(command(server, data, out, "--set", "max_failure_share=0.15")) == 2
    assert "19 of the last 100 calls stayed failed (19 x HTTP 400" in capsys.readouterr().err
    assert len(lines_of(out)) == 81


@pytest.mark.parametrize(
    ("flags", "kept"),
    [
        ([], ["\\boxed{1}", "\\boxed{7}", "so \\boxed{1}"]),
        (["--reward", "accuracy_reward"], ["\\boxed{1}", "so \\boxed{1}"]),
        (["--reward", "accuracy_reward", "--keep", "first"], ["\\boxed{1}"]),
        (["--reward", "tests.test_generate:longer", "--min-reward", "5", "--keep", "best"], ["so \\boxed{1}"]),
        (["--reward", "tests.test_generate:longer", "--min-reward", "10"], ["so \\boxed{1}"]),
        (["--reward", "accuracy_reward", "--reward", "tests.test_generate:says_so"], ["so \\boxed{1}"]),
    ],
)
def test_what_passes_is_data_and_the_rest_says_why_not(tmp_path: Path, flags: list[str], kept: list[str]) -> None:
    """Cut, empty and repeated completions are none, whatever a reward says."""
    said = [
        "\\boxed{1}",
        "\\boxed{7}",
        "CUT \\boxed{1}",
        " \\boxed{1}\n",
        "",
        "so \\boxed{1}",
        "half \ud83d",
        "\\boxed{1}<|im_end|>",
    ]
    out = tmp_path / "out.jsonl"
    with FaultServer(scripted(*said)) as server:
        common = ["--num-generations", "8", "--temperature", "1", "--concurrency", "1"]
        assert main(command(server, rows_file(tmp_path, 1), out, *common, *flags)) == 0
    assert [row["messages"][-1]["content"] for row in lines_of(out)] == kept
    left_out = lines_of(tmp_path / "out.left_out.jsonl")
    assert len(left_out) + len(kept) == 8
    reasons = [row["generation"]["left_out"] for row in left_out]
    assert {"cut by max_tokens", "the same as another completion", "empty"} <= set(reasons)
    assert {"with half a character", "with a control token"} <= set(reasons)  # which SFT refuses


def longer(completions: list[str], **columns: list[Any]) -> list[float]:
    return [float(len(text)) for text in completions]


def says_so(completions: list[str], **columns: list[Any]) -> list[float]:
    return [float("so" in text) for text in completions]


@pytest.mark.parametrize("template", [TEMPLATE, "Solve: {{ row['problem'] }}"])
def test_rows_like_test_rows_and_repeated_prompts_are_not_paid_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], template: str
) -> None:
    test = [row["problem"] for row in lines_of(Path("prewrite/tasks/data/arithmetic_test.jsonl"))]
    short = min(test, key=len)
    long = max(test, key=len)
    assert len(long.split()) >= 9
    texts = ["What is 1 + 1 here?", short.upper(), f"Well now: {long}", "What is 1 + 1 here?"]
    data, out = tmp_path / "rows.jsonl", tmp_path / "out.jsonl"
    data.write_text("".join(json.dumps({"problem": text, "id": i}) + "\n" for i, text in enumerate(texts)))
    with FaultServer() as server:
        assert main(command(server, data, out, "--decontaminate", "arithmetic", "--template", template)) == 0
        assert asked(server) == Counter({"Solve: What is 1 + 1 here?": 1})
    assert [row["id"] for row in lines_of(out)] == [0]
    left_out = {row["id"]: row["generation"]["left_out"] for row in lines_of(tmp_path / "out.left_out.jsonl")}
    assert left_out == {
        1: "like a test row of arithmetic",
        2: "like a test row of arithmetic",
        3: "repeats another prompt",
    }


LEVELS = [{"problem": "2 + 1", "level": None}, {"problem": "4 + 1", "level": "5"}]
WITH_LEVEL = "{{ problem }}{% if level is defined %} ({{ row['level'] }}){% endif %}"
LEVELS_ASKED = ["2 + 1", "4 + 1 (5)"]


def prompts_of(path: Path) -> list[str]:
    return [row["messages"][0]["content"] for row in lines_of(path)]


@pytest.mark.parametrize("kind", ["csv", "saved"])
def test_local_rows(tmp_path: Path, kind: str) -> None:
    out = tmp_path / "out.jsonl"
    (tmp_path / "rows.csv").write_text("problem\n2 + 1\n4 + 1 (5)\n")
    datasets.Dataset.from_list(LEVELS).save_to_disk(str(tmp_path / "saved"))
    with FaultServer() as server:
        data = tmp_path / {"csv": "rows.csv", "saved": "saved"}[kind]
        assert main(command(server, data, out, "--template", WITH_LEVEL)) == 0
    assert prompts_of(out) == LEVELS_ASKED


def test_rows_of_the_hub(tmp_path: Path) -> None:
    """The real `datasets`, and a hub that runs here."""
    out, splits = tmp_path / "out.jsonl", {"train": LEVELS[1:], "validation": LEVELS}
    with FaultServer() as server, HubStandIn({"me/sums": splits}) as hub:
        words = command(server, "me/sums", out, "--split", "validation", "--template", WITH_LEVEL)
        own = {"HF_ENDPOINT": hub.address, "HF_HOME": str(tmp_path / "home"), "HF_HUB_OFFLINE": "0"}
        code, _, stderr = finish(start([sys.executable, "-m", "prewrite.generate", *words], **own), timeout=120)
    assert code == 0, stderr
    assert prompts_of(out) == LEVELS_ASKED


def test_rows_of_a_task_are_those_that_a_run_trains_on(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    with FaultServer() as server:
        words = ["--task", "arithmetic", "--set", "dev_size=490", "--template", TEMPLATE, "--out", str(out)]
        assert main([*words, "--model", "task", "--base-url", server.base_url]) == 0
    train = load_examples(get_task("arithmetic"), "train", dev_size=490, seed=1)
    assert [(row["problem"], row["answer"], row["id"]) for row in lines_of(out)] == [
        (one.fields["problem"], one.target, one.id) for one in train
    ]
    assert len(train) == 10
    assert UNREAD["data"] == {"tasks": ["sentiment"]}, "what is set is of this call alone"


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--data", "nowhere.jsonl"], "nowhere.jsonl: there is no such file"),
        (["--data", "./no/where"], "there is no such file or folder"),
        (["--data", "EMPTY"], "0 rows"),
        (["--data", "./" + "a" * 300], "there is no such file or folder"),
        (["--data", "a" * 300 + ".jsonl"], "there is no such file"),
        (["--out", "a" * 300 + ".jsonl"], "cannot be written"),
        (["--split", "test"], "--subset and --split are of data sets on the hub"),
        (["--template", "{{ question }}"], "'question' is undefined. "),
        (["--template", "{{ question }}"], "row 1 has problem, answer; for a column"),
        (["--template", "{{ level }}"], "'level' is undefined. "),
        (["--template", "{{ problem"], "--template: line 1 is no Jinja"),
        (["--template", "{{ problem.__class__.__mro__ }}"], "it raised SecurityError"),
        (["--template", "{{ " + "(" * 3000 + "1" + ")" * 3000 + " }}"], "it cannot be compiled (RecursionError"),
        (["--template", "{{ " + "1" * 5000 + " }}"], "it cannot be compiled (ValueError"),
        (["--template", "{% for a in b %}" * 25 + "{% endfor %}" * 25], "it cannot be compiled (SyntaxError"),
        (["--template", "{{ problem + 1 }}"], "it raised TypeError"),
        (["--template", "{{ ' ' if problem }}"], "is blank"),
        (["--template", "{{ 'Solve it.' }}"], "it shows no column"),
        (["--template", "nowhere.jinja"], "neither a template"),
        (["--reward", "accuracy_rewards"], "Did you mean 'accuracy_reward'?"),
        (["--reward", "accuracy_math_reward"], "scores rewrites"),
        (["--reward", "levenshtein_reward"], "the column 'solution' is missing"),
        (["--reward", "accuracy_reward", "--data", "NO_ANSWER"], "row 1 has no 'answer'"),
        (
            ["--reward", "tests.test_generate:needs_gold", "--template", "x {{ problem }}"],
            "the column 'gold' is missing",
        ),
        (["--reward", "accuracy_reward", "--min-reward", "2"], "goes from 0 to 1"),
        (["--reward", "soft_overlong_punishment"], "the parameter 'max_completion_len' has no default"),
        (["--decontaminate", "arithmetics"], "'arithmetics' is no task"),
        (["--num-generations", "2"], "`samples_per_query` with `temperature` 0"),
        (["--top-p", "2"], "task_model.top_p"),
        (["--api-key-env", "NOT_SET_ANYWHERE"], "an environment variable that is not set"),
        (["--config", "nowhere.json"], "cannot be read"),
        (["--out", "nowhere/x.jsonl"], "cannot be written"),
        (["--out", "x.csv"], "ends in .jsonl"),
        (["--out", "EXISTS"], "was not generated here"),
    ],
)
def test_faults_are_one_message_before_anything_is_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], flags: list[str], said: str
) -> None:
    data = rows_file(tmp_path, 2, level=None)
    files = {"EMPTY": "", "NO_ANSWER": '{"problem": "2 + 2"}\n', "EXISTS": "{}\n"}
    for name, text in files.items():
        (tmp_path / f"{name}.jsonl").write_text(text)
    flags = [str(tmp_path / f"{flag}.jsonl") if flag in files else flag for flag in flags]
    with FaultServer() as server:
        assert main(command(server, data, tmp_path / "out.jsonl", *flags)) == 2
        assert not server.bodies
    err = capsys.readouterr().err
    assert said in err
    assert err.startswith("python -m prewrite.generate: ")
    assert "Traceback" not in err
    assert {path.name for path in tmp_path.iterdir()} == {"rows.jsonl", *(f"{name}.jsonl" for name in files)}


def test_a_template_without_end_is_told_at_the_first_row(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("prewrite.plugins._TEMPLATE_SECONDS", 0.2)
    loops = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}{{ problem }}"
    with FaultServer() as server:
        assert main(command(server, rows_file(tmp_path, 9), tmp_path / "out.jsonl", "--template", loops)) == 2
    told = capsys.readouterr().err
    assert "row 1: it takes more than 0.2 s for one row: look for a loop that does not end" in told
    assert told.count("\n") == 1


def test_a_full_disk_is_one_message_and_nothing_answered_is_lost(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, out = rows_file(tmp_path, 60), tmp_path / "out.jsonl"
    limits, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    with FaultServer(adds) as server:
        words = command(server, data, out)
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (12_000, limits[1]))
            assert main(words) == 2
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
            signal.signal(signal.SIGXFSZ, handler)
        told = capsys.readouterr().err
        assert "out.jsonl: could not be written ([Errno 27] File too large); no answer is asked twice" in told
        kept = (tmp_path / "out.answers.jsonl").read_text().count("\n")
        assert kept > 40
    with FaultServer(adds) as server:  # another one: calls that were under way may reach the first one late
        assert main(command(server, data, out)) == 0
        assert sum(asked(server).values()) == 60 - kept
    assert [row["problem"] for row in lines_of(out)] == [f"{number} + 1" for number in range(60)]


def needs_gold(completions: list[str], gold: list[str], **columns: Any) -> list[float]:
    return [0.0] * len(completions)


def test_without_a_model_it_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--data", str(rows_file(tmp_path, 1)), "--template", TEMPLATE]
    assert main(words) == 2
    assert "no model: give --model" in capsys.readouterr().err


@pytest.mark.parametrize(
    "flags",
    [
        ["--public"],
        ["--keep", "best"],
        ["--min-reward", "0.5"],
        ["--reward", "accuracy_reward", "--min-reward", "nan"],
        ["--reward", "accuracy_reward", "--min-reward", "much"],
    ],
)
def test_flags_that_would_do_nothing_are_refused(tmp_path: Path, flags: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--data", str(rows_file(tmp_path, 1)), "--template", TEMPLATE, "--dry-run", "--model", "m", *flags])
    assert ended.value.code == 2


def test_a_dry_run_counts_and_prices_and_asks_and_writes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, out = rows_file(tmp_path, 10), tmp_path / "out.jsonl"
    price = ["--max-tokens", "100", "--set", "task_output_price=1000"]
    with FaultServer(adds) as server:
        assert main(command(server, data, out, "--dry-run", *price)) == 0
        assert not server.bodies
        assert [path.name for path in tmp_path.iterdir()] == ["rows.jsonl"]
        told = capsys.readouterr().out
        assert "10 prompts x 1 completions = 10 calls" in told
        assert "10 to be asked; they write at most 1,000 tokens" in told
        assert "cost at most 1.00" in told
        assert main(command(server, data, out, *price, "--limit", "4")) == 0
        capsys.readouterr()
        assert main(command(server, data, out, "--dry-run", *price)) == 0
    assert "4 are answered already" in capsys.readouterr().out
    assert len(server.bodies) == 5


def test_a_budget_holds_over_all_starts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data, out = rows_file(tmp_path, 10), tmp_path / "out.jsonl"
    limit = ["--set", "max_task_calls=5", "--concurrency", "1"]
    with FaultServer(adds) as server:
        assert main(command(server, data, out, *limit)) == 0
        assert "calls without an answer: 6;" in capsys.readouterr().out
        assert len(server.bodies) == 5  # the first question is one of them
        assert len(lines_of(out)) == 4
    reasons = [row["generation"]["left_out"] for row in lines_of(tmp_path / "out.left_out.jsonl")]
    assert reasons == ["not asked, the budget is spent"] * 6


def test_no_answer_that_was_kept_is_forgotten_however_many_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answers, "_CACHED", 2)
    kept = answers.Answers()
    kept.open(tmp_path / "answers.jsonl", rank=0, ranks=1)
    for number in range(6):
        kept.add(bytes([number]), Answer(str(number)))
    kept.close()
    again = answers.Answers()
    again.open(tmp_path / "answers.jsonl", rank=0, ranks=1)
    again.add(b"new", Answer("new"))
    assert all(bytes([number]) in again for number in range(6))


@pytest.mark.parametrize("public", [False, True])
def test_a_push_sends_rows_and_card_private_unless_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], public: bool
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_right")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DISABLE_XET", True)
    data, out = rows_file(tmp_path, 3), tmp_path / "out.jsonl"
    with HubServer() as hub, FaultServer(adds) as server:
        monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", hub.address)  # read at import
        flags = ["--push-to-hub", "me/sums", *(["--public"] if public else [])]
        assert main(command(server, data, out, "--reward", "accuracy_reward", *flags)) == 0
    assert hub.repos == {"me/sums": ("dataset", "public" if public else "private")}
    assert hub.files["main", "train.jsonl"] == out.read_bytes()
    card = hub.files["main", "README.md"].decode()
    assert '"template": "Solve: {{ problem }}"' in card
    assert '"accuracy_reward": ">= 1"' in card
    assert str(tmp_path) not in card
    assert "pushed: " in capsys.readouterr().out


def test_a_hub_that_refuses_is_told_before_anything_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    with HubServer() as hub, FaultServer(adds) as server:
        monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", hub.address)
        assert main(command(server, rows_file(tmp_path, 3), tmp_path / "out.jsonl", "--push-to-hub", "me/sums")) == 2
        assert not server.bodies
    assert "401 Unauthorized" in (err := capsys.readouterr().err)
    assert "Look at the name, at HF_TOKEN" in err


@pytest.mark.slow
def test_the_recipe_runs_at_toy_size_from_a_teacher_to_grpo(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], shallow_model: str
) -> None:
    """The commands of docs/generate.md; the teacher is right in half of its answers, and in form in half of those."""
    page = (ROOT / "docs" / "generate.md").read_text(encoding="utf-8").split("## From a teacher", 1)[1]
    blocks = re.findall(r"^       (python .*?)(?:\n\n|\Z)", page, re.MULTILINE | re.DOTALL)
    ask, tune, train = (shlex.split(re.sub(r"\n {7}", "\n", block).replace("\\\n", " ")) for block in blocks)
    out, said = tmp_path / "sums.jsonl", itertools.count()
    train_rows = load_examples(get_task("arithmetic"), "train", dev_size=64, seed=1)
    golds = {one.fields["problem"]: one.target for one in train_rows}

    def teacher(body: dict[str, Any], tried: int) -> Reply:
        gold, turn = golds.get(query_of(body).split("\n")[0], "0"), next(said)
        box = f"\\boxed{{{gold if turn % 2 else 'none'}}}"
        return Reply(body=completion(f"<think>{turn}</think><answer>{box}</answer>" if turn % 4 < 2 else box))

    with FaultServer(teacher) as server:
        given = {"http://host:8000/v1": server.base_url, "sums.jsonl": str(out)}
        assert main([given.get(word, word) for word in ask[3:]]) == 0
    rows = lines_of(out)
    assert 50 < len(rows) <= 100
    config = load_config(ROOT / "configs" / "solve_tiny.json")
    problems = load_solve_data(config, AutoTokenizer.from_pretrained(MODEL)).train
    turns = {user_turn(one.task, one.example, config.data.instruction_suffix) for one in problems}
    for row in rows:
        asked, answer = row["messages"]
        assert asked["content"] in turns, "the request of a problem that GRPO trains on, to the letter"
        assert row["answer"] in answer["content"]
        assert answer["content"].startswith("<think>")

    written = re.search(r"^       (\{.*?^       \})", page, re.MULTILINE | re.DOTALL)
    assert written
    config_file, run = tmp_path / tune[-1], tmp_path / "sft_sums"
    config_file.write_text(written[1])
    checkpoint = run / "checkpoints" / "step_000006"
    imitate(config_file, out, shallow_model, checkpoint)

    given_model = f"policy.model=runs/sft_sums/checkpoints/step_{json.loads(written[1])['training']['max_steps']:06d}"
    assert given_model in train
    arguments = [f"policy.model={checkpoint}" if word == given_model else word for word in train[2:]]
    capsys.readouterr()
    assert train_here(*arguments, "--dry-run") == 0
    assert "looks at 32 problems" in capsys.readouterr().out


def imitate(config: Path, rows: Path, model: str, last: Path) -> None:
    """A whole run of SFT, which loads no sampler, and one that was stopped half-way and resumed ends as it did."""
    settings = (
        *(f"output_dir={config.parent}", f"policy.model={model}", f"data.chats={rows}", "max_steps=6", "save_steps=3"),
        *("learning_rate=1e-3", "eval_steps=3", "eval_examples=16", "max_tokens_per_micro_batch=1024"),
    )
    command, run = ("train.py", "--config", str(config), *with_settings(*settings)), last.parents[1]
    code, stdout, stderr = finish(start_loaded(*command))
    assert code == 0, stdout[-3000:] + stderr[-3000:]
    steps = trained(run)
    losses = [line["dev_loss"] for line in steps if "dev_loss" in line]
    assert len(losses) == 3
    assert losses[2] < losses[1] < losses[0] - 0.5
    assert "vLLM" not in stdout
    assert not (run / "task_server.log").exists()
    assert f"--set policy.model={last}" in stdout
    assert json.loads((last / "state.json").read_text())["score"] == -losses[2]
    weights = load_file(last / "model.safetensors")
    assert AutoModelForCausalLM.from_pretrained(last).config.num_hidden_layers == 4

    shutil.rmtree(last)
    code, stdout, stderr = finish(start_loaded(*command, "--resume"))
    assert code == 0, stdout[-3000:] + stderr[-3000:]
    assert "step 6/6" in stdout
    assert "step 3/6" not in stdout
    resumed = trained(run)
    assert [line["step"] for line in resumed] == [*range(7)]
    for line, of_one_piece in zip(resumed, steps, strict=True):
        assert line == pytest.approx(of_one_piece, rel=1e-6), "the same rows, rates and moments"
    again = load_file(last / "model.safetensors")
    assert all(torch.equal(again[name], weight) for name, weight in weights.items())


def trained(run: Path) -> list[dict[str, Any]]:
    """The lines of a run, without what depends on the machine's speed."""
    lines = lines_of(run / "metrics.jsonl")
    return [{key: value for key, value in line.items() if "second" not in key} for line in lines]


def test_what_coming_over_names_is_there(capsys: pytest.CaptureFixture[str]) -> None:
    page = (ROOT / "docs" / "coming_over.md").read_text(encoding="utf-8")
    table = page.split("## Generating data", 1)[1].split("## Settings", 1)[0]
    cells = [line.split("|")[2] for line in table.splitlines() if line.startswith("| `")]
    ours = {word for cell in cells for word in re.findall("--[a-z-]+", cell)}
    with pytest.raises(SystemExit):
        main(["--help"])
    known = set(re.findall("--[a-z-]+", capsys.readouterr().out))
    assert len(ours) > 10
    assert ours <= known

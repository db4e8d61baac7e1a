"""The report of a run folder: whole or torn, hostile text in it, and a page that loads and runs nothing of others."""

import base64
import hashlib
import html
import json
import os
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import plotly.graph_objects as go
import pytest

from prewrite.config.loading import load_config
from prewrite.errors import UserError
from prewrite.report import story, try_report
from prewrite.report.__main__ import main
from prewrite.report.bouts import bouts as wins_and_losses
from prewrite.report.folder import read_folder, read_folders
from prewrite.report.page import report_page, write_report
from prewrite.training import trainer

INITIAL = "Say what the sentence feels like."
HOSTILE = (
    "</script><script>document.title='taken over'</script>"
    "<img src=https://evil.example/x onerror=\"document.title='taken over'\">{{ 7 * 7 }} <u>line</u> \u202e"
)
MIDDLE = "Say what the sentence really feels like."


def judged(role: str, rewrite: str, verdicts: list[bool], **more: Any) -> dict[str, Any]:
    share = sum(verdicts) / len(verdicts)
    scores = {"n": len(verdicts), "failed": 0, "score": share, "interval": [max(0, share - 0.2), min(1, share + 0.2)]}
    return {
        "step": 2,
        "task": "toy",
        "row": "toy",
        "role": role,
        "rewrite": rewrite,
        **scores,
        "verdicts": verdicts,
    } | more


def rollout(step: int, rewrite: str, reward: float | None, **more: Any) -> dict[str, Any]:
    asked = {"dataset_name": "toy", "instruction": INITIAL}
    return {"step": step, "stage": 0, **asked, "rewrite": rewrite, "reward": reward, **more}


LOG = [
    rollout(1, MIDDLE, 0.5),
    rollout(1, "Feel.", 0.0),
    rollout(2, HOSTILE, 1.0, parent=MIDDLE),
    rollout(2, HOSTILE, 0.5, parent=INITIAL),
    rollout(2, "Nothing.", None),
]
DEV = [
    judged("initial", INITIAL, [True, False], step=0),
    judged("greedy", MIDDLE, [True, True], step=0),
    judged("race", INITIAL, [True, False, False, False], estimate=0.3, sd=0.05),
    judged("race", HOSTILE, [True, True, False, True], estimate=0.8, sd=0.05),
    judged("race", MIDDLE, [True, True], estimate=0.6, sd=0.1),
    judged("race", "Feel.", [False], estimate=0.2, sd=0.2),
    judged("test", HOSTILE, [True, True, False], step=None),
    judged("test", INITIAL, [False, True, True], step=None),
]
METRICS = [
    {"step": 0, "dev_initial/toy": 0.5, "dev_greedy/toy": 1.0, "dev_best/toy": 0.7},
    {"step": 1, "reward_mean": 0.25, "reward_std": 0.1, "loss": 0.5, "task_calls": 10, "seconds/step": 3},
    {"step": 2, "reward_mean": 0.75, "reward_std": None, "loss": 0.5, "task_calls": 10, "seconds/step": 2},
]
METRICS = [{**line, "seconds/push": 1, "sampler_gap": 0.01, "flat_groups": 0.25} for line in METRICS]
BEST = {
    "toy": {
        "instruction": HOSTILE,
        "estimate": 0.8,
        "sd": 0.05,
        "n": 4,
        "score": 0.75,
        "interval": [0.55, 0.95],
        "macro_f1": None,
        "recall": {"<i>good</i>": 0.5, "bad": None},
        "baseline": {
            "instruction": INITIAL,
            "estimate": 0.3,
            "sd": 0.05,
            "n": 4,
            "score": 0.25,
            "recall": {"bad": 0.1},
        },
        "num_candidates": 4,
        "test": {"proven": False, "p_value": 0.75, "wins": 1, "losses": 1, "n": 3},
        "task": "toy",
    }
}
CONFIG = {"run_name": "toy", "seed": 1, "policy": {"model": "<u>models/toy</u>"}, "task_model": {"model": "task"}}
TOTALS = {"steps": 2, "seconds": 75.2, "task_calls": 40, "cached_calls": 3, "retried_calls": 0, "failed_calls": 0}


def lines(rows: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    run = tmp_path / "toy"
    run.mkdir()
    for name, rows in (("metrics", METRICS), ("log", LOG), ("dev", DEV)):
        (run / f"{name}.jsonl").write_text(lines(rows), encoding="utf-8")
    for name, whole in (("best", BEST), ("config", CONFIG), ("totals", TOTALS)):
        (run / f"{name}.json").write_text(json.dumps(whole), encoding="utf-8")
    return run


class Reader(HTMLParser):
    """Elements with their attributes, scripts with their type and text, and the text between the elements."""

    def __init__(self, page: str):
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[tuple[str | None, str]] = []
        self.styles, self.words, self.inside = "", "", ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag == "script":
            self.scripts.append((dict(attrs).get("type"), ""))
        self.inside = tag if tag in ("script", "style") else ""

    def handle_endtag(self, tag: str) -> None:
        self.inside = ""

    def handle_data(self, data: str) -> None:
        if self.inside == "script":
            kind, text = self.scripts[-1]
            self.scripts[-1] = (kind, text + data)
        elif self.inside == "style":
            self.styles += data
        else:
            self.words += data


def test_hostile_text_stays_text(folder: Path) -> None:
    page = Reader(report_page(read_folder(folder)))
    assert HOSTILE in page.words.replace("\n", "")  # in the table of dev scores, whole
    assert "<u>models/toy</u>" in page.words
    assert "<i>good</i>" in page.words
    assert not {"img", "u"} & {tag for tag, _ in page.elements}
    programs = [text for kind, text in page.scripts if kind is None]
    assert len(programs) == 2  # Plotly's and the page's
    assert not any("taken over" in text for text in programs)


def test_a_figure_shows_tags_as_text(folder: Path) -> None:
    data = [text for kind, text in Reader(report_page(read_folder(folder))).scripts if kind]
    assert not any("<" in text for text in data)  # which could end the script element
    shown = [json.loads(text) for text in data]
    texts = [text for figure in shown for trace in figure["data"] for text in trace.get("text", ())]
    assert any(html.escape("<script>") in text for text in texts)
    assert not any(re.search(r"<(?!br>)", text) for text in texts)


def test_the_page_asks_no_network(folder: Path) -> None:
    other = folder.with_name("other")
    shutil.copytree(folder, other)
    for page in (report_page(read_folder(folder)), write_report([folder, other]).read_text(encoding="utf-8")):
        read = Reader(page)
        for tag, attributes in read.elements:
            for name in ("src", "srcset", "href", "action", "data", "poster", "background"):
                assert (attributes.get(name) or "#").startswith(("#", "data:")), (tag, attributes)
            assert not any(name.startswith("on") for name in attributes)
            assert "url(" not in (attributes.get("style") or "")
        assert "url(" not in read.styles
        assert "@import" not in read.styles
        policy = next(a["content"] for _, a in read.elements if a.get("http-equiv") == "Content-Security-Policy")
        assert policy
        assert policy.startswith("default-src 'none'; img-src data:; ")
        allowed = re.findall(r"'sha256-([^']+)'", policy)
        programs = [text.encode() for kind, text in read.scripts if kind is None]
        assert [base64.b64encode(hashlib.sha256(text).digest()).decode() for text in programs] == allowed


def test_every_figure_is_one_that_plotly_knows(staged: Path) -> None:
    folder = staged
    other = folder.with_name("other")
    shutil.copytree(folder, other)
    (other / "config.json").write_text(json.dumps(CONFIG | {"run_name": "other"}))
    count = 0
    for page in (write_report([folder]), write_report([folder, other])):
        for kind, text in Reader(page.read_text(encoding="utf-8")).scripts:
            if kind:
                plain = re.sub(r'"--[a-z0-9]+(/[0-9.]+)?"', '"#123456"', text)
                go.Figure(json.loads(plain))  # refuses a property or a value that Plotly does not have
                count += 1
    assert count > 15


def test_a_torn_folder_is_told_as_far_as_it_goes(folder: Path) -> None:
    for name in ("totals.json", "log.jsonl"):
        (folder / name).unlink()
    (folder / "best.json").write_text("{")
    (folder / "dev.jsonl").write_text("[1]\n" + lines(DEV[:1]))
    metrics = lines(METRICS) + '{"step": 3, "reward_mean": NaN, "loss": Infinity, "entropy": "no"}\n{"step": 4, "rew'
    (folder / "metrics.jsonl").write_text(metrics)
    run = read_folder(folder)
    assert run.series("reward_mean") == ([1, 2], [0.25, 0.75])
    assert "entropy" not in story.metric_names([run])
    words = Reader(report_page(run)).words
    for fault in (
        "totals.json is missing.",
        "log.jsonl is missing.",
        "best.json is no JSON object; left out.",
        "dev.jsonl: line 1 is no JSON object; left out.",
        "metrics.jsonl: the last line is cut; left out.",
    ):
        assert fault in words
    assert "There is no best.json yet" in words


@pytest.mark.parametrize("row", [["toy"], {"toy": 1}])
def test_a_row_name_that_is_no_text_is_no_fault_of_the_page(folder: Path, row: Any) -> None:
    (folder / "dev.jsonl").write_text(lines([*DEV, DEV[0] | {"row": row}]))
    assert "What was spent" in Reader(report_page(read_folder(folder))).words


def test_a_page_takes_no_device_s_place(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Whoever may write into its folder could rename a file over /dev/null."""
    os.mkfifo(folder / "pipe")
    assert main([str(folder), "--out", str(folder / "pipe")]) == 2
    assert "a device or a folder is there" in capsys.readouterr().err
    assert (folder / "pipe").is_fifo()


def test_on_the_way_the_totals_of_the_stage_before_are_not_the_last_word(folder: Path) -> None:
    # Two steps of 10 calls, 3 and 2 s; totals.json as the stage before wrote it
    (folder / "totals.json").write_text(json.dumps({"steps": 1, "seconds": 4, "task_calls": 40}))
    run = read_folder(folder)
    assert [run.spent(name) for name in ("steps", "seconds", "task_calls")] == [2, 5, 40]


@pytest.mark.parametrize(("kind", "missing"), [({"method": "sft"}, []), ({"objective": "solve"}, ["log", "dev"])])
def test_a_file_that_such_a_run_does_not_write_is_not_missing(folder: Path, kind: dict, missing: list[str]) -> None:
    for name in ("log.jsonl", "dev.jsonl", "best.json"):
        (folder / name).unlink()
    (folder / "config.json").write_text(json.dumps(CONFIG | kind))
    assert read_folder(folder).faults == [f"{name}.jsonl is missing." for name in missing]


def test_a_folder_with_one_file_alone_has_a_report(folder: Path) -> None:
    for file in folder.iterdir():
        if file.name != "config.json":
            file.unlink()
    assert "No step has been written down" in report_page(read_folder(folder))


def test_a_search_without_training_says_so_and_counts_what_raced(folder: Path) -> None:
    (folder / "log.jsonl").unlink()
    (folder / "metrics.jsonl").write_text(lines(METRICS[:1]), encoding="utf-8")
    (folder / "config.json").write_text(json.dumps(CONFIG | {"training": {"max_steps": 0}}))
    run = read_folder(folder)
    words = " ".join(Reader(report_page(run)).words.split())
    assert not run.faults
    assert "rewrites4" in words.replace(" ", "")
    assert "Nothing was trained: a search among rewrites of the policy as it is." in words


def test_one_stage_that_trains_is_training(folder: Path) -> None:
    stages = [{"training": {"num_stage_steps": 3}}, {}]
    (folder / "config.json").write_text(json.dumps(CONFIG | {"training": {"max_steps": 0}, "stages": stages}))
    assert not read_folder(folder).is_untrained
    (folder / "config.json").write_text(json.dumps(CONFIG | {"training": {"max_steps": 0}, "stages": [{}, {}]}))
    assert read_folder(folder).is_untrained


def test_lineage_goes_back_by_parents(folder: Path) -> None:
    chain = story.lineage(read_folder(folder), BEST["toy"])
    assert [one.text for one in chain] == [INITIAL, MIDDLE, HOSTILE]
    assert [one.step for one in chain] == [None, 1, 2]
    assert [one.mean_reward for one in chain] == [None, 0.5, 0.75]  # HOSTILE: (1.0 + 0.5) / 2
    assert [words for words, is_new in chain[1].pieces if is_new] == ["really "]


LATER, LAST = "Name the feeling.", "Name the feeling in one word."


@pytest.fixture
def staged(folder: Path) -> Path:
    """The same run with two stages more. The first ended with HOSTILE; the next wrote LATER only when choosing, and
    the last one LAST."""

    def add(name: str, rows: list[dict[str, Any]]) -> None:
        with (folder / f"{name}.jsonl").open("a", encoding="utf-8") as file:
            file.write(lines(rows))

    add("metrics", [{"step": step, "stage": stage, "reward_mean": 0.5} for step, stage in ((2, 1), (3, 1), (4, 2))])
    add("log", [rollout(4, LAST, 0.75, stage=2, instruction=LATER)])
    for stage, texts in ((1, (HOSTILE, LATER)), (2, (LATER, LAST))):
        add("dev", [judged("initial", texts[0], [True, True], step=stage + 1, stage=stage)])
        add("dev", [judged("race", text, [True] * 3, estimate=0.9, sd=0.1, stage=stage) for text in texts])
        add("dev", [judged("test", text, [True] * 3, step=None, stage=stage) for text in texts])
    tested = {"proven": True, "p_value": 0.01, "wins": 9, "losses": 1, "n": 20}
    earlier = [
        {"stage": 0, "baseline": INITIAL, "instruction": HOSTILE, "estimate": 0.8, "baseline_estimate": 0.3},
        {"stage": 1, "baseline": HOSTILE, "instruction": LATER, "estimate": 0.9, "baseline_estimate": 0.8},
    ]
    earlier = [one | {"step": 2, "test": tested} for one in earlier]
    entry = BEST["toy"] | {"instruction": LAST, "stage": 2, "earlier": earlier, "test": None}
    entry |= {"baseline": BEST["toy"]["baseline"] | {"instruction": LATER, "estimate": 0.9}}
    (folder / "best.json").write_text(json.dumps({"toy": entry}), encoding="utf-8")
    return folder


def test_lineage_goes_back_over_stages(staged: Path) -> None:
    run = read_folder(staged)
    chain = story.lineage(run, run.best["toy"])
    assert [one.text for one in chain] == [INITIAL, MIDDLE, HOSTILE, LATER, LAST]
    assert [one.step for one in chain] == [None, 1, 2, None, 4]
    assert chain[2].note == "written in step 2; the next stage began with it"
    assert chain[3].note == (
        "sampled for choosing, after step 2: a rewrite of what its stage began with; the next stage began with it"
    )


def test_the_page_shows_where_stages_begin_and_what_each_found(staged: Path) -> None:
    run = read_folder(staged)
    assert run.stage_ends() == [2, 3]
    page = Reader(report_page(run))
    figures = [json.loads(text) for kind, text in page.scripts if kind]
    lines_at = [[shape["x0"] for shape in one["layout"].get("shapes", ())] for one in figures]
    assert lines_at.count([2.5, 3.5]) >= 2, "reward and held-out scores"
    assert [one["text"] for one in figures[0]["layout"]["annotations"]] == ["stage 2", "stage 3"]
    table = page.words.partition("Each began with the best instruction")[2].partition("Lineage")[0]
    for words in ("30.0% → 80.0%", "80.0% → 90.0%", LATER, LAST, "better, proven", "not tested"):
        assert words in " ".join(table.split()), words
    assert {one.text for one in story.candidates(run, "toy", run.best["toy"])} == {LATER, LAST}
    # Of LATER, HOSTILE and INITIAL, which two stages looked at, raced or tested, the second has the answers already.
    assert dict(story.spending(run))["test"] == 4 * 3
    assert "initial" not in page.words.partition("Recall by label")[2].partition("Held-out scores")[0]
    assert "only the one before right" in page.words
    kept = run.best["toy"] | {"instruction": LATER}
    assert story.claim(kept).badge == "kept"


def test_rewrites_that_were_rewritten_from_one_another_end_the_lineage(folder: Path) -> None:
    circle = [rollout(1, MIDDLE, 0.5, parent=HOSTILE), rollout(2, HOSTILE, 0.5, parent=MIDDLE)]
    (folder / "log.jsonl").write_text(lines(circle), encoding="utf-8")
    assert [one.text for one in story.lineage(read_folder(folder), BEST["toy"])] == [INITIAL, MIDDLE, HOSTILE]


def test_the_race_by_rounds_and_what_it_spent(folder: Path) -> None:
    run = read_folder(folder)
    # MIDDLE was looked at on 2 examples before the race, so that 2 is no round: it left in the first, as "Feel." did.
    assert story.rounds(run, "toy", BEST["toy"]) == [[(1, 3), (4, 1)]]
    races = [[[8, 6], [4, 18]], [], "no race", [[4, 9], 3]]
    assert story.rounds(run, "toy", BEST["toy"] | {"races": races}) == [[(6, 8), (18, 4)], [(9, 4)]]
    # Looks 2 + 2; race 4 + 4 + 2 + 1 less those; test 3 + 3; the rest of 40 calls is training's.
    assert dict(story.spending(run)) == {"training": 23, "looks": 4, "race": 7, "test": 6}
    test, race = story.duels(run, "toy", BEST["toy"])
    assert test.cells == ["won", "both", "lost"]
    assert race.cells == ["both", "won", "neither", "won"]


def test_wins_and_losses_have_their_texts_and_stay_text(folder: Path) -> None:
    bout = {"example_id": "7", "text": HOSTILE, "gold": ["a", "b"], "best": "b", "initial": None, "others_right": 0.25}
    duels = [
        {"row": "toy", "where": "race", "won": [bout | {"text": "of the race"}], "lost": []},
        {"row": "toy", "where": "test", "won": [bout], "lost": "no list"},
        {"row": "other", "where": "test", "won": [bout | {"text": "of another row"}], "lost": [3]},
    ]
    (folder / "wins_losses.jsonl").write_text(lines(duels))
    (folder / "evaluation_toy.json").write_text(json.dumps(EVALUATION | {"duel": {"won": [], "lost": [bout]}}))
    run = read_folder(folder)
    assert [(one.where, one.gold, one.initial) for one in wins_and_losses(run, "toy")["won"]] == [
        ("test", "a or b", "no answer"),
        ("race", "a or b", "no answer"),
    ]
    assert "lost" not in wins_and_losses(run, "toy")
    page = Reader(report_page(run))
    assert page.words.count("right under 25% of the other instructions") == 3
    assert "of another row" not in page.words
    assert not {"img", "u"} & {tag for tag, _ in page.elements}


def test_a_best_that_was_sampled_for_choosing_says_when(folder: Path) -> None:
    dev = [judged("sampled", "Fresh.", [True], step=7), judged("race", "Fresh.", [True], step=9)]
    (folder / "dev.jsonl").write_text(lines(dev))
    _, fresh = story.lineage(read_folder(folder), BEST["toy"] | {"instruction": "Fresh."})
    assert fresh.note == "sampled for choosing, after step 7: a rewrite of what its stage began with"


@pytest.mark.parametrize(
    ("test", "best", "badge"),
    [
        ({"proven": True, "p_value": 0.01, "wins": 9, "losses": 1, "n": 20}, HOSTILE, "better, proven"),
        ({"proven": False, "p_value": 0.3, "wins": 5, "losses": 4, "n": 20}, HOSTILE, "not proven"),
        (None, HOSTILE, "not tested"),
        (None, INITIAL, "initial kept"),
    ],
)
def test_the_claim_is_that_of_the_test(test: dict | None, best: str, badge: str) -> None:
    assert story.claim(BEST["toy"] | {"test": test, "instruction": best}).badge == badge


def test_differences_are_whole_words() -> None:
    old, new = story.differences("Solve the problem.", "Solve every problem!")
    assert old == [("Solve ", False), ("the", True), (" problem", False), (".", True)]
    assert new == [("Solve ", False), ("every", True), (" problem", False), ("!", True)]


def test_runs_of_one_name_go_by_their_paths(folder: Path) -> None:
    other = folder.parent / "again" / "toy"
    shutil.copytree(folder, other)
    assert [run.name for run in read_folders([folder, other])] == ["toy", "again/toy"]
    (other / "config.json").write_text(json.dumps(CONFIG | {"seed": 2}))
    runs = read_folders([folder, other])
    assert story.differing_settings(runs) == [("seed", [1, 2])]


def test_the_command(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(folder)]) == 0
    assert (folder / "report.html").is_file()
    assert main([str(folder), str(folder)]) == 0
    assert (folder.parent / "comparison.html").is_file()
    empty = folder / "checkpoints"
    empty.mkdir()
    assert main([str(empty)]) == 2
    assert f"{empty}: no run folder" in capsys.readouterr().err
    assert main([str(folder), "--out", str(folder / "no" / "page.html")]) == 2
    assert "could not be written" in capsys.readouterr().err
    with pytest.raises(UserError):
        write_report([folder.parent / "missing"])


def test_a_report_that_fails_is_one_line_at_a_runs_end(folder: Path) -> None:
    assert try_report(folder) == f"report: {folder / 'report.html'}"
    (folder / "report.html").unlink()
    (folder / "report.html.part").mkdir()
    line = try_report(folder)
    assert line.startswith("no report (UserError: ")
    assert line.endswith(f"; to try again: python -m prewrite.report {folder}")
    assert "\n" not in line


def test_a_run_ends_with_its_report(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    journal = SimpleNamespace(folder=folder, write_step=lambda _: None)
    journal.write_totals = lambda totals: (folder / "totals.json").write_text(json.dumps(totals))
    (folder / "totals.json").unlink()
    one = SimpleNamespace(
        config=load_config("configs/quickstart.json", []),
        engines=SimpleNamespace(policy=None, sampler=None, generators=None, journal=journal, opened=0.0),
        state=SimpleNamespace(over="there are no steps", agree=lambda *_, **__: None, tell=lambda *_: None),
        progress=SimpleNamespace(step=0, stage_start=0),
        world=SimpleNamespace(is_main=True, size=1),
        total_steps=0,
        stage_steps=0,
    )
    one._begin, one._evaluate_untrained, one._why_over = print, (lambda _: None), (lambda: "there are no steps")
    one._finish, one._counts, one._summary = dict, (lambda: {"task_calls": 4321}), (lambda: "the outcome")
    trainer.Trainer.run(one)  # type: ignore[arg-type]  # a run of no step
    assert "4,321" in (folder / "report.html").read_text(encoding="utf-8")  # written after the totals
    assert f"the outcome\nreport: {folder / 'report.html'}\n" in capsys.readouterr().out


@pytest.mark.parametrize("looked", [True, False])
def test_a_look_on_the_way_writes_the_report(folder: Path, looked: bool) -> None:
    one = SimpleNamespace(
        config=SimpleNamespace(seed=1),
        engines=SimpleNamespace(journal=SimpleNamespace(folder=folder, write_rollouts=lambda *_, **__: None)),
        state=SimpleNamespace(first_step=1),
        progress=SimpleNamespace(stage=0),
        looked=looked,
    )
    trainer.Trainer._write_rollouts(one, [], {})  # type: ignore[arg-type]  # a batch of no rollouts
    assert (folder / "report.html").is_file() == looked


EVALUATION = {
    "task": "toy",
    "test_split": "toy test",
    "rows": [
        {"role": "initial", "instruction": INITIAL, "summary": {"n": 90, "accuracy": None}, "against": {}},
        {
            "role": "rank 1",
            "instruction": HOSTILE,
            "summary": {"n": 90, "accuracy": {"value": 0.625, "interval": {"low": 0.512, "high": 0.718}}},
            "against": {"initial": {"p_value": 0.0123, "wins": 31, "losses": 12, "ties": 47}},
        },
        "no row",
    ],
}


def test_the_table_of_evaluate_is_shown(folder: Path) -> None:
    (folder / "evaluation_toy.json").write_text(json.dumps(EVALUATION))
    words = Reader(report_page(read_folder(folder))).words
    table = words.partition("Test split: toy")[2].partition("Training")[0]
    assert "62.5% [51.2%, 71.8%]" in table
    assert "31 won, 12 lost, p 0.012" in table
    assert HOSTILE in table


@pytest.mark.slow
def test_a_browser_draws_every_figure_and_complains_of_nothing(folder: Path, tmp_path: Path) -> None:
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        pytest.skip("no Chromium here")
    page = write_report([folder])
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--virtual-time-budget=60000"]
    command = [browser, *flags, f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom", page.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180)
    charts = re.findall(r'<div class="chart[^>]*>(.{0,200})', done.stdout)
    assert len(charts) > 10
    assert all("plot-container" in chart for chart in charts)
    assert "<title>toy</title>" in done.stdout  # the hostile rewrite would have set another
    assert ":CONSOLE" not in done.stderr

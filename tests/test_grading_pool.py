"""No text makes the grader raise, hang or run code; threads, event loops, forks and alarms are safe with it."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prewrite.grading import grade_math, is_correct_math
from prewrite.grading.pool import WorkerPool, shared_pool

HANGING = r"\int_0^{\infty} \frac{\sin(x^x)}{x} e^{-x^{x}} dx"
HOSTILE = [
    "9^{9^{9^9}}", "10^9!", "(10^9)!", r"\dfrac{5^{5^{5^{5^5}}}-5}{16}", r"\sin(\sin(e^{e^{e^{3}}}+3))",
    "{" * 5_000 + "1" + "}" * 5_000, "(" * 3_000 + "1" + ")" * 3_000, "x" * 100_000, "1+" * 40_000 + "1",
    "1+" * 900 + "1",
    r"\sqrt{" * 900 + "2" + "}" * 900, r"\frac{1}{" * 150 + "2" + "}" * 150, "2^" * 900 + "2", "5" + "!" * 500,
    "|" * 1_000,
    r"\sum_{k=1}^{10^{9}} \frac{1}{k^2}", r"\prod_{k=1}^{10^8} k", r"\binom{10^9}{5\cdot10^8}", "exit()", HANGING,
    "[].__class__.__base__.__subclasses__()", r"\input{/etc/passwd}", "\\" * 5_000, "_" * 3_000, "^" * 3_000,
    r"\text{" * 2_000, "1e999999999", "9" * 1_999, "±1" * 600, r"\begin{pmatrix}" + "1&" * 800 + r"1\end{pmatrix}",
    r"\begin{pmatrix}" * 100, "\ud800", "\x00\x01", "-" * 1_000 + "1", "1," * 900 + "2", "x^{x^{x^{x^{x}}}}", "0^{-1}",
    "(x+y+z+w)^{1000}", r"(1+\frac{1}{10^{9}})^{10^{9}}", r"\lfloor 10^{10^{5}} \pi\rfloor", r"\sqrt[10^9]{2}",
    "$" * 5_000,
]  # fmt: skip
"""Texts of which none is 5."""


@pytest.mark.slow
def test_hostile_answers_are_wrong_and_honest_ones_right_within_20_seconds():
    honest = (r"\boxed{\frac{10}{2} + x - x}", "5")
    hostile = [(f"\\boxed{{{text}}}", "5") for text in HOSTILE]
    batch = (hostile * 2)[:48] + [honest] * 16
    is_correct_math(*honest)
    started = time.monotonic()
    verdicts = grade_math(batch)
    assert time.monotonic() - started < 20
    assert verdicts[-16:] == [True] * 16
    assert True not in verdicts[:48]


@pytest.mark.slow
def test_hostile_golds_are_never_right():
    assert True not in grade_math([(r"\boxed{5}", gold) for gold in HOSTILE])


def test_a_worker_that_is_killed_is_replaced_and_its_job_has_no_verdict():
    pool = WorkerPool(1)
    try:
        assert pool.grade([("x+1", ("1+x",))], 60) == [True]
        process = pool._workers[0].process
        assert process is not None
        process.send_signal(signal.SIGSTOP)
        threading.Timer(0.3, process.kill).start()
        assert pool.grade([("x+1", ("1+x",)), ("x+1", ("2+x",))], 60) == [None, False]
    finally:
        pool.close()


def test_a_launchers_sigterm_does_not_end_a_worker_before_its_program():
    pool = WorkerPool(1)
    try:
        assert pool.grade([("x+1", ("1+x",))], 60) == [True]
        process = pool._workers[0].process
        assert process is not None
        process.terminate()
        assert pool.grade([("x+1", ("2+x",))], 60) == [False]
        assert pool._workers[0].process is process
        assert process.poll() is None
    finally:
        pool.close()


def test_jobs_beyond_the_budget_have_no_verdict():
    assert grade_math([(r"\boxed{1+x}", "x+1")], budget_s=0.0) == [None]


@pytest.mark.slow
def test_a_slow_answer_is_wrong_and_costs_a_bounded_time():
    pool = WorkerPool(1)
    try:
        started = time.monotonic()
        assert pool.grade([("5", (HANGING,)), ("x+1", ("1+x",))], 100) == [False, True]
        assert time.monotonic() - started < 60
    finally:
        pool.close()
    assert pool._workers[0].process is None


def test_memory_is_bounded():
    started = resident_bytes()
    grade_math([(r"\boxed{2^{10^{5}} \cdot 3^{10^{5}} " + "x" * length + "}", "5") for length in range(20)])
    assert resident_bytes() - started < 100 * 2**20


def resident_bytes():
    pages = int(Path(f"/proc/{os.getpid()}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.slow
def test_the_callers_alarm_still_fires():
    fired = []
    previous = signal.signal(signal.SIGALRM, lambda *_: fired.append(True))
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.5)
        assert is_correct_math(r"\boxed{x+1}", "1+x") is True
        assert is_correct_math(rf"\boxed{{{HANGING}}}", "5") is False
        assert fired
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)


def test_many_threads_and_an_event_loop():
    def grade(number):
        answer = rf"\boxed{{x + {number}}}"
        return grade_math([(answer, f"{number} + x"), (answer, f"x - {number}")])

    async def in_executors():
        loop = asyncio.get_running_loop()
        return await asyncio.gather(*(loop.run_in_executor(None, grade, number) for number in range(1, 30)))

    assert asyncio.run(in_executors()) == [[True, False]] * 29


def test_a_forked_child_gets_workers_of_its_own():
    assert is_correct_math(r"\boxed{x+1}", "1+x") is True
    parents = {worker.process.pid for worker in shared_pool()._workers if worker.process}
    child = os.fork()
    if child == 0:
        signal.alarm(60)  # a child that waits for its parent's threads would wait for ever
        right = is_correct_math(r"\boxed{x+1}", "1+x") is True
        pool = shared_pool()
        own = parents.isdisjoint(worker.process.pid for worker in pool._workers if worker.process)
        pool.close()
        os._exit(0 if right and own else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert is_correct_math(r"\boxed{x+2}", "2+x") is True


def test_workers_end_with_the_program_even_if_it_is_killed():
    program = (
        "from prewrite.grading import is_correct_math; from prewrite.grading.pool import shared_pool; import time\n"
        "assert is_correct_math(r'\\boxed{x+1}', '1+x')\n"
        "print(*[worker.process.pid for worker in shared_pool()._workers], flush=True); time.sleep(60)"
    )
    parent = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    workers = [int(word) for word in parent.stdout.readline().split()]
    parent.kill()
    parent.wait()
    parent.stdout.close()
    assert workers
    end = time.monotonic() + 20
    while any(map(is_running, workers)) and time.monotonic() < end:
        time.sleep(0.05)
    assert not any(map(is_running, workers))


def is_running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_the_workers_import_neither_torch_nor_the_users_main_script():
    program = "import sys, prewrite.grading.worker; print('torch' in sys.modules, 'sympy' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", program], text=True).split() == ["False", "False"]


PIECES = (
    r"\frac", r"\sqrt", r"\boxed", "{", "}", "(", ")", "[", "]", r"\{", r"\}", "^", "_", "!", "|", ",", ";", ":", "=",
    "<", r"\le", r"\cup", r"\pm", r"\pi", r"\infty", r"\text", r"\sin", r"\log", r"\binom", r"\begin", "pmatrix",
    r"\end", "&", r"\\", "1", "23", "0.5", "x", "i", "e", "%", r"\%", "°", "²", "½", "−", "and", "$", r"\int", r"\sum",
    r"\circ", "/", "*", "+", "-",
)  # fmt: skip
LATEX = st.lists(st.sampled_from(PIECES), max_size=25)


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(st.one_of(st.text(max_size=60), LATEX.map(" ".join), LATEX.map("".join)), st.sampled_from(["5", "x+1"]))
def test_no_text_breaks_the_grader(text, gold):
    before = {worker.process.pid for worker in shared_pool()._workers if worker.process}
    assert is_correct_math(rf"\boxed{{{text}}}", gold) in (True, False)
    assert is_correct_math(rf"\boxed{{{gold}}}", text) in (True, False, None)
    too_slow_is_allowed = any(word in text for word in (r"\int", r"\sum"))
    after = {worker.process.pid for worker in shared_pool()._workers if worker.process}
    assert too_slow_is_allowed or before <= after, "a worker was killed for it"

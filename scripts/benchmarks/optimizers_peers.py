"""GEPA and DSPy's MIPROv2 as they come, on our query, scoring and grading; the model itself proposes.

Neither is a requirement of the project: `pip install gepa==0.1.4`, `pip install dspy==3.4.1 optuna`.
"""

import logging
import re
import warnings
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from prewrite.errors import UserError
from prewrite.tasks.base import query
from prewrite.types import Call, Example
from scripts.benchmarks.asking import Bench, Servers, ask_and_grade

MIPRO_TRAIN_ROWS = 200
MIPRO_MINIBATCH, MIPRO_FULL_EVERY = 35, 5  # its own defaults
MIPRO_BOOTSTRAP_CALLS = 8  # about what one of its demo sets takes: 3 right answers at most
FIRST_FIELD = re.compile(r"starting with the field `(\[\[ ## \w+ ## \]\])`")


def gepa(bench: Bench, budget: int) -> dict[str, Any]:
    """Its own defaults, the dev rows as its validation set; it ends after --minutes at the latest."""
    import gepa as peer  # type: ignore[import-not-found]  # the peer is no requirement of ours
    from gepa.core.adapter import EvaluationBatch  # type: ignore[import-not-found]  # as above
    from gepa.utils import TimeoutStopCondition  # type: ignore[import-not-found]  # as above

    task, seen = bench.task, {"reflections": 0}
    proposer = Servers(bench.arguments, temperature=1.0, max_tokens=bench.arguments.proposal_tokens)

    class Adapter:
        propose_new_texts = None

        def evaluate(self, batch: list[Example], candidate: dict[str, str], capture_traces: bool = False) -> Any:
            answers, verdicts = ask_and_grade(bench.servers, task, [candidate["instruction"]], batch)[0]
            texts = [answer.text or "" for answer in answers]
            scores = [float(bool(verdict.correct)) for verdict in verdicts]
            traces = list(zip(batch, texts, scores, strict=True)) if capture_traces else None
            return EvaluationBatch(outputs=texts, scores=scores, trajectories=traces)

        def make_reflective_dataset(self, candidate: Any, eval_batch: Any, components_to_update: list[str]) -> Any:
            records = [
                {
                    "Inputs": query(task, "", example).strip(),
                    "Generated Outputs": text,
                    "Feedback": _feedback(example, right=score == 1.0),
                }
                for example, text, score in eval_batch.trajectories
            ]
            return {name: records for name in components_to_update}

    def reflect(prompt: Any) -> str:
        text = prompt if isinstance(prompt, str) else prompt[-1]["content"]
        seen["reflections"] += 1
        return _proposal(proposer, text, bench.seed, seen["reflections"])

    class Quiet:
        def log(self, message: str) -> None:
            pass

    result = peer.optimize(
        seed_candidate={"instruction": task.default_instruction},
        trainset=list(bench.train),
        valset=list(bench.dev),
        adapter=Adapter(),  # type: ignore[arg-type]  # its protocol, kept by shape alone
        reflection_lm=reflect,
        max_metric_calls=budget,
        stop_callbacks=TimeoutStopCondition(60.0 * bench.arguments.minutes),
        logger=Quiet(),
        seed=bench.seed,
    )
    proposer.close()
    best = result.best_candidate
    assert isinstance(best, dict)
    kept = [
        {"text": candidate["instruction"], "rows": len(bench.dev), "mean": round(score, 4)}
        for candidate, score in zip(result.candidates, result.val_aggregate_scores, strict=True)
    ]
    return {
        "instruction": best["instruction"],
        "paid": result.total_metric_calls,
        "rewriter_calls": seen["reflections"],
        "finalists": kept,
    }


def mipro(bench: Bench, budget: int) -> dict[str, Any]:
    """MIPROv2 without demonstrations: as many trials as the budget pays, its own defaults otherwise."""
    import dspy  # type: ignore[import-not-found]  # the peer is no requirement of ours

    for name in ("dspy", "optuna"):
        logging.getLogger(name).setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", category=DeprecationWarning, module=r"scripts\.benchmarks|dspy")
    task, by_fields = bench.task, {tuple(example.fields.values()): example for example in (*bench.train, *bench.dev)}
    proposers: dict[str | None, Servers] = {}
    seen = {"proposals": 0, "answers": 0}

    class Proposer(dspy.BaseLM):
        """The model behind DSPy's chat format. A reply without the field that was asked for is taken to be it whole."""

        def forward(self, prompt: Any = None, messages: Any = None, **kwargs: Any) -> Any:
            turns = messages or [{"role": "user", "content": prompt}]
            texts = {turn["role"]: turn["content"] for turn in turns}
            system = texts.get("system")
            if system not in proposers:
                proposers[system] = Servers(
                    bench.arguments, temperature=1.0, max_tokens=bench.arguments.proposal_tokens, system_prompt=system
                )
            seen["proposals"] += 1
            reply = _proposal(proposers[system], texts["user"], bench.seed, seen["proposals"])
            wanted = FIRST_FIELD.search(texts["user"])
            if wanted and not re.search(rf"^\s*{re.escape(wanted[1])}", reply, re.MULTILINE):
                reply = f"{wanted[1]}\n{reply}"
            choice = SimpleNamespace(message=SimpleNamespace(content=reply), finish_reason="stop")
            return SimpleNamespace(choices=[choice], usage={}, model=self.model)

    class Predict(dspy.Predict):
        """Asks the task model our query, in place of DSPy's own format of it."""

        def forward(self, **fields: Any) -> Any:
            example = by_fields[tuple(fields[column] for column in task.fields)]
            seen["answers"] += 1
            answers, verdicts = ask_and_grade(bench.servers, task, [self.signature.instructions], [example])[0]
            told = dspy.Prediction(answer=answers[0].text or "", correct=bool(verdicts[0].correct))
            if dspy.settings.trace is not None:
                dspy.settings.trace.append((self, fields, told))
            return told

    def rows(examples: Sequence[Example]) -> list[Any]:
        return [dspy.Example(**each.fields, answer=_gold(each)).with_inputs(*task.fields) for each in examples]

    trials = mipro_trials(budget, len(bench.dev))
    signature = dspy.Signature(f"{', '.join(task.fields)} -> answer", task.default_instruction)
    proposer = Proposer(bench.arguments.model)
    optimizer = dspy.MIPROv2(
        metric=lambda example, told, trace=None: told.correct,
        prompt_model=proposer,
        task_model=proposer,  # never asked: `Predict` asks the servers
        auto=None,
        num_candidates=max(2, trials * 2 // 3),  # DSPy's own rule: trials = 1.5 x candidates
        max_bootstrapped_demos=0,
        max_labeled_demos=0,
        num_threads=bench.arguments.concurrency,
        seed=bench.seed,
    )
    program = optimizer.compile(
        Predict(signature),
        trainset=rows(bench.train[:MIPRO_TRAIN_ROWS]),
        valset=rows(bench.dev),
        num_trials=trials,
        minibatch_size=min(MIPRO_MINIBATCH, len(bench.dev)),
        minibatch_full_eval_steps=MIPRO_FULL_EVERY,
    )
    for servers in proposers.values():
        servers.close()
    kept = [
        {"text": one["program"].signature.instructions, "rows": len(bench.dev), "mean": round(one["score"] / 100, 4)}
        for one in program.candidate_programs
    ]
    return {
        "instruction": program.signature.instructions,
        "paid": seen["answers"],
        "rewriter_calls": seen["proposals"],
        "trials": trials,
        "finalists": kept,
    }


def mipro_trials(budget: int, dev_size: int) -> int:
    """The most trials that the budget pays, looks at the whole dev set and bootstrapped demonstrations included."""
    batch = min(MIPRO_MINIBATCH, dev_size)

    def cost(trials: int) -> int:
        looks = 1 + trials // MIPRO_FULL_EVERY + (trials % MIPRO_FULL_EVERY > 0)
        return looks * dev_size + trials * batch + MIPRO_BOOTSTRAP_CALLS * max(2, trials * 2 // 3)

    paid = [trials for trials in range(1, budget) if cost(trials) <= budget]
    if not paid:
        raise UserError(f"mipro@{budget}: one trial on {dev_size} dev rows takes {cost(1)} calls: lower --dev-size")
    return paid[-1]


def _proposal(proposer: Servers, text: str, seed: int, number: int) -> str:
    answer = proposer.ask([Call(text, sample_index=seed * 1_000_000 + number)])[0]
    if answer.text is None:
        raise UserError(f"the model gave no proposal: {answer.error}")
    return answer.text


def _gold(example: Example) -> str:
    return example.target if isinstance(example.target, str) else " or ".join(example.target)


def _feedback(example: Example, *, right: bool) -> str:
    if right:
        return "The answer is right."
    solution = f" A solution: {example.solution}" if example.solution else ""
    return f"The answer is wrong. The right answer is {_gold(example)!r}.{solution}"

"""The tasks of SuperGLUE that are used here (Wang et al. 2019): CommitmentBank and COPA."""

from prewrite.tasks.base import HubSplit, Source, Task, labelled

_CB_LABELS, _COPA_LABELS = ("entailment", "contradiction", "neutral"), ("choice1", "choice2")
_read_cb = labelled(_CB_LABELS, premise="premise", hypothesis="hypothesis")
_read_copa = labelled(_COPA_LABELS, premise="premise", question="question", choice1="choice1", choice2="choice2")


def _hub(config: str, split: str) -> tuple[HubSplit]:
    """The converted copy: `datasets` no longer runs the loading script of the main branch."""
    return (HubSplit("aps/super_glue", split, config=config, revision="refs/convert/parquet"),)


# Does the premise entail the hypothesis? (de Marneffe et al. 2019)
CB = Task(
    name="cb",
    aliases=("commitmentbank",),
    kind="classification",
    labels=_CB_LABELS,
    fields={"premise": "Premise", "hypothesis": "Hypothesis"},
    target="label",
    default_instruction="Does the premise entail the hypothesis? Answer entailment, contradiction or neutral.",
    train=Source("cb_train", _hub("cb", "train"), ("cb_train.jsonl",), _read_cb),
    test=Source("cb_val (official validation split)", _hub("cb", "validation"), ("cb_val.jsonl",), _read_cb),
    licence="research use, none stated",
)

# Which of two sentences is the cause or the effect of a third? (Roemmele et al. 2011)
COPA = Task(
    name="copa",
    kind="classification",
    labels=_COPA_LABELS,
    fields={"premise": "Premise", "question": "Question", "choice1": "choice1", "choice2": "choice2"},
    target="label",
    default_instruction="Which choice is the more plausible cause or effect, as the question asks, of the premise? "
    "Answer choice1 or choice2.",
    train=Source("copa_train", _hub("copa", "train"), ("copa_train.jsonl",), _read_copa),
    test=Source("copa_val (official validation split)", _hub("copa", "validation"), ("copa_val.jsonl",), _read_copa),
    licence="BSD-2-Clause",
)

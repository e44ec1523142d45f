"""SuperGLUE: eight tasks of understanding language, and two diagnostic sets (Wang et al. 2019)."""

from zoo.suites.base import Suite, SuiteTask
from zoo.suites.superglue.base import BOOLEANS, TEST_FILE
from zoo.suites.superglue.multirc import MultiSentenceReading
from zoo.suites.superglue.record import CommonsenseReading
from zoo.suites.superglue.texts import (
    CommitmentBank,
    GenderParity,
    PairTask,
    PlausibleAlternatives,
    WordInContext,
)
from zoo.suites.superglue.wsc import WinogradSchemas

ENTAILMENT = ("entailment", "not_entailment")
# Labels are in the order of the released data sets, which classifiers with numbered labels have.
TASKS: tuple[SuiteTask, ...] = (
    PairTask(
        name="boolq",
        title="BoolQ",
        labels=BOOLEANS,
        columns=("passage", "question"),
        form_keys={"passage": "passage", "question": "question"},
        lowers_labels=True,
        test_file=f"BoolQ/{TEST_FILE}",
        submission_names=("BoolQ.jsonl",),
    ),
    CommitmentBank(
        name="cb",
        title="CB",
        labels=("entailment", "contradiction", "neutral"),
        columns=("premise", "hypothesis"),
        form_keys={"hypothesis": "hypothesis", "premise": "premise"},
        test_file=f"CB/{TEST_FILE}",
        submission_names=("CB.jsonl",),
    ),
    PlausibleAlternatives(
        name="copa",
        title="COPA",
        labels=("choice1", "choice2"),
        test_file=f"COPA/{TEST_FILE}",
        submission_names=("COPA.jsonl",),
    ),
    MultiSentenceReading(
        name="multirc",
        title="MultiRC",
        labels=BOOLEANS,
        test_file=f"MultiRC/{TEST_FILE}",
        submission_names=("MultiRC.jsonl",),
    ),
    CommonsenseReading(
        name="record",
        title="ReCoRD",
        labels=BOOLEANS,
        test_file=f"ReCoRD/{TEST_FILE}",
        submission_names=("ReCoRD.jsonl",),
    ),
    PairTask(
        name="rte",
        title="RTE",
        labels=ENTAILMENT,
        columns=("premise", "hypothesis"),
        form_keys={"hypothesis": "hypothesis", "premise": "premise"},
        test_file=f"RTE/{TEST_FILE}",
        submission_names=("RTE.jsonl",),
    ),
    WordInContext(
        name="wic",
        title="WiC",
        labels=BOOLEANS,
        columns=("sentence1", "sentence2"),
        form_keys={"sentence1": "sentence1", "sentence2": "sentence2", "word": "word"},
        lowers_labels=True,
        test_file=f"WiC/{TEST_FILE}",
        submission_names=("WiC.jsonl",),
    ),
    WinogradSchemas(
        name="wsc",
        title="WSC",
        labels=BOOLEANS,
        test_file=f"WSC/{TEST_FILE}",
        submission_names=("WSC.jsonl",),
    ),
    # The model of RTE answers both diagnostic sets, whose only file has labels.
    PairTask(
        name="axb",
        title="AX-b",
        is_averaged=False,
        trained_as="rte",
        labels=ENTAILMENT,
        metric_names=("matthews_correlation",),
        columns=("sentence1", "sentence2"),
        form_name="rte",
        form_keys={"hypothesis": "sentence2", "premise": "sentence1"},
        dev_file="AX-b/AX-b.jsonl",
        test_file="AX-b/AX-b.jsonl",
        submission_names=("AX-b.jsonl",),
    ),
    GenderParity(
        name="axg",
        title="AX-g",
        is_averaged=False,
        trained_as="rte",
        labels=ENTAILMENT,
        columns=("premise", "hypothesis"),
        form_name="rte",
        form_keys={"hypothesis": "hypothesis", "premise": "premise"},
        dev_file="AX-g/AX-g.jsonl",
        test_file="AX-g/AX-g.jsonl",
        submission_names=("AX-g.jsonl",),
    ),
)
SUITE = Suite(
    name="superglue",
    title="SuperGLUE",
    tasks=TASKS,
    source="Wang et al. 2019, arXiv:1905.00537",
    is_finetuned=True,
)

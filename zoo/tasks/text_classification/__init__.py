"""Labels of texts or pairs of texts: one, any number, or a number for each."""

from pathlib import Path
from typing import Any

from zoo.families.tasks import ModelField, SmokeTest, TaskColumn, TaskOption, TaskSpec
from zoo.tasks.options import (
    DOC_STRIDE,
    EVAL_METRIC,
    EVAL_WINDOW_POOLING,
    LABEL_COLUMNS,
    LABELLED,
    MAX_SEQ_LEN,
    METRIC,
    PAIR,
    WINDOW_POOLING,
    WINDOWS,
)

RUN_OPTIONS = (WINDOWS, WINDOW_POOLING)
EVAL_OPTIONS = (*LABELLED, PAIR, MAX_SEQ_LEN, DOC_STRIDE, EVAL_WINDOW_POOLING, EVAL_METRIC)
SEPARATOR = TaskOption(
    "label_separator", "Separator of the labels of a text.  [default: ,]", metavar="TEXT"
)
FIGURES = TaskOption(
    "figures",
    "Draw the confusion matrix and the reliability curve, as SVG.",
    Path,
    metavar="DIR",
)


def _smoke_row(number: int, word: str, good: bool, other: str) -> dict[str, Any]:
    return {
        "text": " ".join([*["the"] * (number % 5), word, "day", str(number)]),
        "label": int(good),
    }


_SHARED: dict[str, Any] = {
    "verb": "classify",
    "heads": ("sequence-classification",),
    "output": "batch labels",
    "predict": "zoo.inference.text_scores:TextScores",
    "run_options": RUN_OPTIONS,
    "train_options": (DOC_STRIDE, METRIC),
    "model_fields": (
        ModelField(
            "both_orders",
            "reads a pair in both orders, which no class of the Hub does",
            "task_args.both_orders",
        ),
    ),
    "pipeline_tag": "text-classification",
}
TASKS = (
    TaskSpec(
        "text-classification",
        "Predict the label of a text or a pair of texts.",
        synonyms=("sentiment-analysis",),
        train="zoo.tasks.text_classification.train:TEXT_CLASSIFICATION",
        evaluate="zoo.tasks.text_classification.evaluate:TextClassificationEvaluation",
        settings=("data.labels", "class_weights"),
        columns=LABEL_COLUMNS,
        eval_options=(*EVAL_OPTIONS, FIGURES),
        metrics=("accuracy",),
        verb_summary="Classify texts, pairs of texts, or tokens.",
        smoke=SmokeTest(40, 32, _smoke_row),
        **_SHARED,
    ),
    TaskSpec(
        "regression",
        "Predict a number for a text or a pair of texts.",
        train="zoo.tasks.text_classification.train:REGRESSION",
        evaluate="zoo.tasks.text_classification.evaluate:RegressionEvaluation",
        columns={**LABEL_COLUMNS, "label": TaskColumn("label", "number")},
        eval_options=EVAL_OPTIONS,
        metrics=("pearson",),
        **_SHARED,
    ),
    TaskSpec(
        "multi-label",
        "Predict any number of labels for a text or a pair of texts.",
        synonyms=("multi-label-classification",),
        train="zoo.tasks.text_classification.train:MULTI_LABEL",
        evaluate="zoo.tasks.text_classification.evaluate:MultiLabelEvaluation",
        settings=("data.labels", "data.label_separator"),
        columns={**LABEL_COLUMNS, "label": TaskColumn("label", "any")},
        eval_options=(*EVAL_OPTIONS, SEPARATOR),
        metrics=("f1_micro",),
        **_SHARED,
    ),
)

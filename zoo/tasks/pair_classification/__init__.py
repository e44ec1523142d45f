"""Pairs of texts that belong together or not, by a threshold of their score."""

from zoo.families.tasks import TaskColumn, TaskSpec
from zoo.tasks.options import (
    DIM,
    EVAL_WINDOW_POOLING,
    LABEL_COLUMNS,
    LABELLED,
    MAX_SEQ_LEN,
    PAIR,
    WINDOWS,
)

TASKS = (
    TaskSpec(
        "pair-classification",
        "Tell whether two texts belong together, by a threshold of their score.",
        evaluate="zoo.tasks.pair_classification.evaluate:PairClassificationEvaluation",
        eval_options=(*LABELLED, PAIR, DIM, MAX_SEQ_LEN, WINDOWS, EVAL_WINDOW_POOLING),
        columns={**LABEL_COLUMNS, "pair": TaskColumn()},
        metrics=("average_precision",),
    ),
)

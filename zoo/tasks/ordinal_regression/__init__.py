"""Labels with an order, such as stars or grades, of texts or pairs of texts."""

from zoo.families.tasks import TaskSpec
from zoo.tasks.options import (
    DOC_STRIDE,
    EVAL_METRIC,
    EVAL_WINDOW_POOLING,
    LABEL_COLUMNS,
    LABELLED,
    MAX_SEQ_LEN,
    METRIC,
    PAIR,
)
from zoo.tasks.text_classification import RUN_OPTIONS

TASKS = (
    TaskSpec(
        "ordinal-regression",
        "Predict a label of an ordered scale, such as stars.",
        heads=("sequence-classification",),
        output="batch labels",
        predict="zoo.tasks.ordinal_regression.predict:Ordinal",
        train="zoo.tasks.ordinal_regression.train:ORDINAL_REGRESSION",
        evaluate="zoo.tasks.ordinal_regression.evaluate:OrdinalRegressionEvaluation",
        run_options=RUN_OPTIONS,
        train_options=(DOC_STRIDE, METRIC),
        settings=("data.labels",),
        columns=LABEL_COLUMNS,
        eval_options=(*LABELLED, PAIR, MAX_SEQ_LEN, DOC_STRIDE, EVAL_WINDOW_POOLING, EVAL_METRIC),
        metrics=("quadratic_kappa",),
    ),
)

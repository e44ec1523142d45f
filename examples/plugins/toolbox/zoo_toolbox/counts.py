"""The task ``count-regression``: how often something happens, from a text.

``COUNT_REGRESSION`` declares it and imports nothing heavy, because commands read it for their help.
The classes of ``count_regression.py`` are imported when the task is run, trained or evaluated.
"""

from zoo.families.tasks import TaskOption, TaskSpec

COUNT_REGRESSION = TaskSpec(
    "count-regression",
    "Predict a count, such as the number of replies, for a text.",
    verb="count",
    heads=("sequence-classification",),
    output="batch labels",
    predict="zoo_toolbox.count_regression:CountScores",
    train="zoo_toolbox.count_regression:COUNT_REGRESSION",
    evaluate="zoo_toolbox.count_regression:CountEvaluation",
    eval_options=(
        TaskOption("text", "Column of the text.  [default: text]", metavar="COL"),
        TaskOption("label", "Column of the count.  [default: label]", metavar="COL"),
        TaskOption("seed", "Seed of intervals.  [default: 0]", int, metavar="N"),
    ),
    metrics=("spearman",),
)

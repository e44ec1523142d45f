"""Text classification from few labels: contrastive pairs, then a logistic regression."""

from zoo.families.tasks import TaskColumn, TaskSpec

TASKS = (
    TaskSpec(
        "setfit",
        "Predict the label of a text, learned from few samples of each.",
        heads=("sequence-classification",),
        train="zoo.tasks.setfit.train:SETFIT",
        columns={"text": TaskColumn("text"), "label": TaskColumn("label", "class")},
        metrics=("accuracy",),
        pipeline_tag="text-classification",
    ),
)

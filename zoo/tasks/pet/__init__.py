"""Text classification from few labels: models of patterns label texts for a classifier."""

from zoo.families.tasks import TaskSpec
from zoo.tasks.options import LABEL_COLUMNS
from zoo.tasks.prompt import TRAIN_OPTIONS

TASKS = (
    TaskSpec(
        "pet",
        "Predict the label of a text, learned from few samples and unlabelled texts.",
        heads=("sequence-classification",),
        train="zoo.tasks.pet.train:PET",
        train_options=TRAIN_OPTIONS,
        columns=LABEL_COLUMNS,
        metrics=("accuracy",),
        pipeline_tag="text-classification",
    ),
)

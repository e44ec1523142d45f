"""A vector for each token of a text, as ColBERT compares them."""

from zoo.families.tasks import TaskOption, TaskSpec

TASKS = (
    TaskSpec(
        "late-interaction",
        "Learn a vector for each token, which MaxSim compares.",
        synonyms=("colbert",),
        heads=("none",),
        train="zoo.tasks.late_interaction.train:LateInteraction",
        train_options=(
            TaskOption(
                "negative",
                "Column of texts unlike the first, for embeddings.",
                metavar="COL",
                multiple=True,
                setting="data.negatives",
            ),
        ),
    ),
)

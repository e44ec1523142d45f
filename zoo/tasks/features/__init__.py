"""Hidden states of the tokens."""

from zoo.families.tasks import TaskOption, TaskSpec

TASKS = (
    TaskSpec(
        "features",
        "Compute hidden states of the tokens, from any layers.",
        predict="zoo.tasks.features.predict:ExtractFeatures",
        run_options=(
            TaskOption(
                "layers",
                "Hidden states to return: 0 for the embeddings, -1 for the last layer.",
                default="-1",
                metavar="N,...",
            ),
        ),
    ),
)

"""Prediction of masked tokens."""

from zoo.families.tasks import TaskOption, TaskSpec

TASKS = (
    TaskSpec(
        "fill-mask",
        "Predict masked tokens.",
        synonyms=("masked-lm",),
        heads=("masked-lm",),
        predict="zoo.tasks.fill_mask.predict:FillMask",
        run_options=(
            TaskOption(
                "top_k", "Number of predictions per mask.", int, minimum=1, default=5, metavar="N"
            ),
        ),
        pipeline_tag="fill-mask",
    ),
)

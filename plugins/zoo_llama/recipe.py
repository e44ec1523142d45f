"""Pretraining settings of the family: only ``tiny`` has a recipe."""

from zoo.errors import UsageError
from zoo.families.recipe import LRSchedulerConfig, OptimizerConfig, Recipe


def recipe(size: str) -> Recipe:
    """Return the settings of ``tiny``, which take a few minutes on two cores."""
    if size != "tiny":
        raise UsageError(
            f"the data and schedule of {size} are not reproduced here", "choose the size tiny"
        )
    return Recipe(
        objective="causal-lm",
        vocab_size=1024,
        seq_len=128,
        global_batch_tokens=4096,
        max_steps=800,
        config={"initializer_range": 0.05},
        optimizer=OptimizerConfig(learning_rate=4e-3, weight_decay=0.01),
        lr_scheduler=LRSchedulerConfig(warmup_steps=80),
    )

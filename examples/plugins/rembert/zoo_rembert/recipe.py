"""Pretraining settings: ``released`` has the batch and the optimizer of BERT.

They are those of arXiv:1810.04805, appendix A.2, with rows of full length from the first step on.
"""

from zoo.families.recipe import LRSchedulerConfig, OptimizerConfig, Recipe, tiny_recipe

RELEASED = Recipe(
    objective="masked-lm",
    seq_len=512,
    global_batch_tokens=256 * 512,
    max_steps=1_000_000,
    optimizer=OptimizerConfig(learning_rate=1e-4, eps=1e-6, weight_decay=0.01),
    lr_scheduler=LRSchedulerConfig(name="linear", warmup_steps=10_000),
)
# a few minutes on two cores
TINY = tiny_recipe("masked-lm", config={"initializer_range": 0.05})


def recipe(size: str) -> Recipe:
    """Return the settings of a size."""
    return TINY if size == "tiny" else RELEASED

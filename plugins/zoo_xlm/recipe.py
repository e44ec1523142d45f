"""Pretraining settings of XLM.

The papers state ranges of learning rates and batches, and no complete setting of a released model,
so only ``tiny`` has a recipe.
"""

from zoo.families.recipe import MASKING, TINY_CONFIG, Recipe, require_tiny, tiny_recipe


def recipe(size: str) -> Recipe:
    """Return the settings of ``tiny``, which take a few minutes on two cores."""
    require_tiny(size)
    config = {**TINY_CONFIG, "embedding_range": 0.05}
    return tiny_recipe("masked-lm", objective_args=MASKING, config=config)

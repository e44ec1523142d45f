"""Pretraining settings of RoFormer.

The paper trains in six stages with rows of 128 to 1536 tokens (arXiv:2104.09864, section 4.5,
table 3) on data that is not published, so only ``tiny`` has a recipe.
"""

from zoo.families.recipe import MASKING, TINY_CONFIG, Recipe, require_tiny, tiny_recipe


def recipe(size: str) -> Recipe:
    """Return the settings of ``tiny``, which take a few minutes on two cores."""
    require_tiny(size)
    return tiny_recipe("masked-lm", objective_args=MASKING, config=TINY_CONFIG)

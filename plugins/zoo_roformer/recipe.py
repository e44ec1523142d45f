"""Pretraining settings of RoFormer.

The paper trains in six stages with rows of 128 to 1536 tokens (arXiv:2104.09864, section 4.5,
table 3) on data that is not published, so only ``tiny`` has a recipe.
"""

from zoo.errors import UsageError
from zoo.families.recipe import MASKING, TINY_CONFIG, Recipe, tiny_recipe


def recipe(size: str) -> Recipe:
    """Return the settings of ``tiny``, which take a few minutes on two cores."""
    if size != "tiny":
        raise UsageError(
            f"the paper does not state all settings of the pretraining of {size}",
            "choose the size tiny, or set them in a configuration file",
        )
    return tiny_recipe("masked-lm", objective_args=MASKING, config=TINY_CONFIG)

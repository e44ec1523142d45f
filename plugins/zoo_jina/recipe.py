"""Pretraining settings of JinaBERT (arXiv:2310.19923, section 4).

Masked language modelling of 30 % of the tokens, with full words. The paper does not state the
schedule of all sizes, so only ``tiny`` has a recipe.
"""

from zoo.families.recipe import TINY_CONFIG, Recipe, require_tiny, tiny_recipe


def recipe(size: str) -> Recipe:
    """Return the settings of ``tiny``, which take a few minutes on two cores."""
    require_tiny(size)
    return tiny_recipe("masked-lm", objective_args={"mask_prob": 0.3}, config=TINY_CONFIG)

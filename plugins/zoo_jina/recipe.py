"""Pretraining settings of JinaBERT (arXiv:2310.19923, section 4).

Masked language modelling of 30 % of the tokens, with full words. The paper does not state the
schedule of all sizes, so only ``tiny`` has a recipe.
"""

from zoo.errors import UsageError
from zoo.families.recipe import TINY_CONFIG, Recipe, tiny_recipe


def recipe(size: str) -> Recipe:
    """Return the settings of ``tiny``, which take a few minutes on two cores."""
    if size != "tiny":
        raise UsageError(
            f"the papers do not state all settings of the pretraining of {size}",
            "choose the size tiny, or set them in a configuration file",
        )
    return tiny_recipe("masked-lm", objective_args={"mask_prob": 0.3}, config=TINY_CONFIG)

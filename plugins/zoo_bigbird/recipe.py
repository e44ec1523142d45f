"""Pretraining settings of BigBird.

The paper continues from RoBERTa's weights on data that is partly not published (arXiv:2007.14062,
appendix E.1), so only ``tiny`` has a recipe. Its rows have block-sparse attention.
"""

from zoo.families.recipe import MASKING, TINY_CONFIG, Recipe, require_tiny, tiny_recipe


def recipe(size: str) -> Recipe:
    """Return the settings of ``tiny``, which take a few minutes on two cores."""
    require_tiny(size)
    return tiny_recipe("masked-lm", objective_args=MASKING, config=TINY_CONFIG)

"""Pretraining settings of XLM."""

from zoo.families.recipe import Recipe, tiny_recipe

TINY = tiny_recipe("masked-lm", learning_rate=1e-3)


def recipe(size: str) -> Recipe:
    """Return the settings of a size."""
    return TINY

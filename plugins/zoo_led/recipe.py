"""Pretraining settings of LED.

Published models continue from BART, with its positions copied (arXiv:2004.05150, section 7), and
were not pretrained on, so only ``tiny`` has a recipe: a new model learns to restore texts, as BART
does (arXiv:1910.13461).
"""

from zoo.families.recipe import Recipe, require_tiny, tiny_seq2seq_recipe

OBJECTIVE = "text-infilling"
OPTIONS = {"noise_density": 0.3, "poisson_lambda": 3.0}


def recipe(size: str) -> Recipe:
    """Return the settings of ``tiny``, which take a few minutes on two cores."""
    require_tiny(size)
    return tiny_seq2seq_recipe(OBJECTIVE, objective_args=OPTIONS)

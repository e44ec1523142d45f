"""Pretraining settings of ERNIE: whole words are masked, the other settings are BERT's.

Phrases and entities, which the first version also masks (arXiv:1904.09223, section 3.2), need lists
that are not published, and ERNIE 2.0's tasks need labelled data.
"""

from zoo.families.recipe import (
    MASKING,
    TINY_CONFIG,
    Recipe,
    SeqLenWarmup,
    million_steps,
    tiny_recipe,
)

OBJECTIVE = "masked-lm"
OPTIONS = {"mask_strategy": "words", **MASKING}


def recipe(size: str) -> Recipe:
    """Return the settings of a size, or for ``tiny`` a run of a few minutes on two cores."""
    if size == "tiny":
        return tiny_recipe(OBJECTIVE, objective_args=OPTIONS, config=TINY_CONFIG)
    return million_steps(
        OBJECTIVE,
        objective_args=OPTIONS,
        seq_len_warmup=SeqLenWarmup(seq_len=128, fraction=0.9),
    )

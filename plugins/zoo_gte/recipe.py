"""Pretraining settings of GTE's encoder.

The paper (arXiv:2407.19669) masks 30 % of the tokens, in rows of 2,048 and then of 8,192 tokens.
The other settings are those of RoBERTa (arXiv:1907.11692, table 9).
"""

from zoo.families.recipe import (
    TINY_CONFIG,
    LRSchedulerConfig,
    Recipe,
    fairseq_adam,
    tiny_recipe,
)

OBJECTIVE = "masked-lm"
OPTIONS = {"mask_prob": 0.3}
BETAS = (0.9, 0.98)


def recipe(size: str) -> Recipe:
    """Return the settings of a size, or for ``tiny`` a run of a few minutes on two cores."""
    if size == "tiny":
        return tiny_recipe(OBJECTIVE, betas=BETAS, objective_args=OPTIONS, config=TINY_CONFIG)
    return Recipe(
        objective=OBJECTIVE,
        objective_args=OPTIONS,
        seq_len=2048,
        global_batch_tokens=8192 * 512,
        max_steps=500_000,
        optimizer=fairseq_adam(6e-4),
        lr_scheduler=LRSchedulerConfig(name="linear", warmup_steps=24_000),
    )

"""Pretraining settings of MPNet: those of the command in the README of microsoft/MPNet."""

from zoo.families.recipe import (
    MASKING,
    TINY_CONFIG,
    LRSchedulerConfig,
    Recipe,
    fairseq_adam,
    tiny_recipe,
)

OBJECTIVE = "masked-and-permuted-lm"
# ``--mask-whole-words`` of the README, and the defaults of masked_permutation_lm.py.
OPTIONS = {"mask_strategy": "words", **MASKING}
BETAS = (0.9, 0.98)


def recipe(size: str) -> Recipe:
    """Return the settings of a size, or for ``tiny`` a run of a few minutes on two cores."""
    if size == "tiny":
        return tiny_recipe(OBJECTIVE, betas=BETAS, objective_args=OPTIONS, config=TINY_CONFIG)
    return Recipe(
        objective=OBJECTIVE,
        objective_args=OPTIONS,
        seq_len=512,
        global_batch_tokens=16 * 16 * 32 * 512,  # rows, accumulated 16 times, on 32 devices
        max_steps=125_000,
        optimizer=fairseq_adam(5e-4),
        lr_scheduler=LRSchedulerConfig(name="linear", warmup_steps=10_000),
    )

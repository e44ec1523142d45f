"""Pretraining settings of Nomic's encoder (arXiv:2402.01613, section 4.1)."""

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
STEPS = 100_000  # The number of steps is a choice of this recipe.


def recipe(size: str) -> Recipe:
    """Return the settings of a size, or for ``tiny`` a run of a few minutes on two cores."""
    if size == "tiny":
        return tiny_recipe(OBJECTIVE, betas=BETAS, objective_args=OPTIONS, config=TINY_CONFIG)
    return Recipe(
        objective=OBJECTIVE,
        objective_args=OPTIONS,
        seq_len=2048,
        global_batch_tokens=4096 * 2048,
        max_steps=STEPS,
        optimizer=fairseq_adam(5e-4, max_grad_norm=1.0),
        lr_scheduler=LRSchedulerConfig(name="linear", warmup_steps=STEPS * 6 // 100),
    )

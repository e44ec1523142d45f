"""Pretraining settings of ModernBERT (arXiv:2412.13663, section 2.2) and Ettin (2507.11412)."""

from zoo.families.recipe import LRSchedulerConfig, OptimizerConfig, Recipe, tiny_recipe

OPTIONS = {"mask_prob": 0.3}
BILLION = 1_000_000_000

# learning rate, weight decay, and tokens of the warm-up, by size; rows of a batch
_STABLE = {
    "base": (8e-4, 1e-5, 3, 4608),
    "large": (5e-4, 1e-5, 2, 4928),
    # pretraining/configs/standard of Ettin's released code
    "ettin-17m": (3e-3, 3e-4, 4, 4608),
    "ettin-32m": (3e-3, 3e-4, 4, 4608),
    "ettin-68m": (3e-3, 3e-4, 3, 4608),
    "ettin-150m": (8e-4, 1e-5, 3, 4608),
    "ettin-400m": (5e-4, 1e-5, 2, 4608),
    "ettin-1b": (5e-4, 5e-5, 2, 4608),
}


def recipe(size: str) -> Recipe:
    """Return the settings of a size; ``tiny`` takes a few minutes on two cores.

    The paper's optimizer is StableAdamW; here, AdamW with clipped gradients. Its batches grow, and
    its rows become longer in the last part; here, both have the size of the first 1.7 trillion
    tokens.
    """
    if size == "tiny":
        return tiny_recipe("masked-lm", objective_args=OPTIONS, config={"initializer_range": 0.05})
    rate, decay, warmup, rows = _STABLE[size]
    tokens = rows * 1024
    return Recipe(
        objective="masked-lm",
        objective_args=OPTIONS,
        seq_len=1024,
        global_batch_tokens=tokens,
        max_steps=1700 * BILLION // tokens,
        optimizer=OptimizerConfig(
            learning_rate=rate, betas=(0.9, 0.98), eps=1e-6, weight_decay=decay
        ),
        lr_scheduler=LRSchedulerConfig(name="constant", warmup_steps=warmup * BILLION // tokens),
    )

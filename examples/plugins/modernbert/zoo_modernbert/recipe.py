"""Pretraining settings of ModernBERT (arXiv:2412.13663, section 2.2 and appendix A)."""

from zoo.families.recipe import LRSchedulerConfig, OptimizerConfig, Recipe, tiny_recipe

OPTIONS = {"mask_prob": 0.3}


def recipe(size: str) -> Recipe:
    """Return the settings of a size; ``tiny`` takes a few minutes on two cores.

    The paper's optimizer is StableAdamW; here, AdamW with clipped gradients. Its batches grow, and
    its rows become longer in the last part; here, both have the size of the first 1.7 trillion
    tokens.
    """
    if size == "tiny":
        return tiny_recipe("masked-lm", objective_args=OPTIONS, config={"initializer_range": 0.05})
    tokens, rate = {"base": (4608 * 1024, 8e-4), "large": (4928 * 1024, 5e-4)}[size]
    return Recipe(
        objective="masked-lm",
        objective_args=OPTIONS,
        seq_len=1024,
        global_batch_tokens=tokens,
        max_steps=1_700_000_000_000 // tokens,
        optimizer=OptimizerConfig(
            learning_rate=rate, betas=(0.9, 0.98), eps=1e-6, weight_decay=1e-5
        ),
        lr_scheduler=LRSchedulerConfig(name="constant", warmup_steps=3_000_000_000 // tokens),
    )

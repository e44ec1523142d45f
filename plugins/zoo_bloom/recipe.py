"""Pretraining settings of BLOOM (arXiv:2211.05100, table 3)."""

from zoo.families.recipe import LRSchedulerConfig, OptimizerConfig, Recipe

# tokens per step, learning rate; the schedule ends at a tenth of it
_SETTINGS = {
    "560m": (256 * 2048, 3e-4),
    "1b1": (256 * 2048, 2.5e-4),
    "1b7": (512 * 2048, 2e-4),
    "3b": (512 * 2048, 1.6e-4),
    "7b1": (512 * 2048, 1.2e-4),
    "176b": (2048 * 2048, 6e-5),
}


def recipe(size: str) -> Recipe:
    """Return the settings of a size; ``tiny`` takes a few minutes on two cores."""
    if size == "tiny":
        return Recipe(
            objective="causal-lm",
            vocab_size=1024,
            seq_len=128,
            global_batch_tokens=4096,
            max_steps=800,
            config={"initializer_range": 0.05},
            optimizer=OptimizerConfig(learning_rate=4e-3, weight_decay=0.01),
            lr_scheduler=LRSchedulerConfig(warmup_steps=80),
        )
    tokens, rate = _SETTINGS[size]
    return Recipe(
        objective="causal-lm",
        seq_len=2048,
        global_batch_tokens=tokens,
        max_steps=341_000_000_000 // tokens,
        optimizer=OptimizerConfig(learning_rate=rate, betas=(0.9, 0.95), weight_decay=0.1),
        lr_scheduler=LRSchedulerConfig(
            name="cosine", warmup_steps=375_000_000 // tokens, min_lr_ratio=0.1
        ),
    )

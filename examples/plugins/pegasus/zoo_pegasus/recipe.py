"""Pretraining settings of PEGASUS (arXiv:1912.08777, section 6 and appendix C)."""

from zoo.families.recipe import TINY_CONFIG, LRSchedulerConfig, OptimizerConfig, Recipe


def recipe(size: str) -> Recipe:
    """Return the settings of a size; ``tiny`` takes a few minutes on two cores."""
    if size == "tiny":
        return Recipe(
            objective="gap-sentences",
            vocab_size=600,
            seq_len=64,
            config={**TINY_CONFIG, "scale_embedding": False},
            optimizer=OptimizerConfig(learning_rate=1e-3, betas=(0.9, 0.98), weight_decay=0.01),
            lr_scheduler=LRSchedulerConfig(warmup_steps=100),
        )
    return Recipe(
        objective="gap-sentences",
        objective_args={"gap_sentences_ratio": 0.3},
        seq_len=512,
        global_batch_tokens=(256 if size == "base" else 8192) * 512,
        max_steps=500_000,
        optimizer=OptimizerConfig(name="adafactor", learning_rate=0.1, max_grad_norm=None),
        lr_scheduler=LRSchedulerConfig(name="inverse-sqrt-constant-warmup", warmup_steps=10_000),
    )

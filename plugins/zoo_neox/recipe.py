"""Pretraining settings of Pythia (Biderman et al. 2023, arXiv:2304.01373, tables 1 and 6)."""

from zoo.families.recipe import LRSchedulerConfig, OptimizerConfig, Recipe

# size -> peak learning rate; the schedule ends at a tenth of it
_RATES = {
    "pythia-14m": 1e-3,
    "pythia-70m": 1e-3,
    "pythia-160m": 6e-4,
    "pythia-410m": 3e-4,
    "pythia-1b": 3e-4,
    "pythia-1.4b": 2e-4,
    "pythia-2.8b": 1.6e-4,
    "pythia-6.9b": 1.2e-4,
    "pythia-12b": 1.2e-4,
}
_STEPS = 143_000


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
    if size == "20b":
        # Black et al. 2022, table 4 of the appendix
        return Recipe(
            objective="causal-lm",
            seq_len=2048,
            global_batch_tokens=1538 * 2048,
            max_steps=150_000,
            optimizer=OptimizerConfig(learning_rate=9.7e-5, betas=(0.9, 0.95), weight_decay=0.01),
            lr_scheduler=LRSchedulerConfig(name="cosine", warmup_steps=1500, min_lr_ratio=0.1),
        )
    return Recipe(
        objective="causal-lm",
        seq_len=2048,
        global_batch_tokens=1024 * 2048,
        max_steps=_STEPS,
        optimizer=OptimizerConfig(learning_rate=_RATES[size], betas=(0.9, 0.95), weight_decay=0.1),
        lr_scheduler=LRSchedulerConfig(name="cosine", warmup_steps=_STEPS // 100, min_lr_ratio=0.1),
    )

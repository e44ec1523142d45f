"""Settings for pretraining OPT (arXiv:2205.01068) and XGLM (arXiv:2112.10668)."""

from zoo.families.recipe import Recipe, causal_recipe, tiny_causal_recipe

# OPT, section 2.2 and table 1: peak rate, and tokens of a step
RATES = {
    "125m": (6e-4, 500_000),
    "1.3b": (2e-4, 1_000_000),
    "2.7b": (1.6e-4, 1_000_000),
    "6.7b": (1.2e-4, 2_000_000),
    "13b": (1e-4, 4_000_000),
    "30b": (1e-4, 4_000_000),
    "66b": (8e-5, 2_000_000),
    # XGLM, section 2.3: 1 million tokens a step
    "xglm-564m": (1.5e-3, 1_000_000),
    "xglm-1.7b": (1e-3, 1_000_000),
    "xglm-2.9b": (7.5e-4, 1_000_000),
    "xglm-7.5b": (7.5e-4, 1_000_000),
}
LENGTH = 2048


def recipe(size: str) -> Recipe:
    """Return the papers' settings, or for ``tiny`` a run of a few minutes on two cores."""
    if size == "tiny":
        return tiny_causal_recipe(config={"initializer_range": 0.05, "dropout": 0.0})
    rate, tokens = RATES[size]
    rows = tokens // LENGTH
    total = 500_000_000_000 if size.startswith("xglm-") else 300_000_000_000
    return causal_recipe(
        learning_rate=rate,
        seq_len=LENGTH,
        global_batch_tokens=rows * LENGTH,
        max_steps=total // tokens,
        warmup_steps=2000,
        schedule="linear",
    )

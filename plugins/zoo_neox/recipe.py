"""Pretraining settings of Pythia (Biderman et al. 2023, arXiv:2304.01373, tables 1 and 6)."""

from zoo.families.recipe import Recipe, causal_recipe, tiny_causal_recipe

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
        return tiny_causal_recipe()
    if size == "20b":
        # Black et al. 2022, table 4 of the appendix
        return causal_recipe(
            learning_rate=9.7e-5,
            global_batch_tokens=1538 * 2048,
            max_steps=150_000,
            warmup_steps=1500,
            weight_decay=0.01,
        )
    return causal_recipe(
        learning_rate=_RATES[size],
        global_batch_tokens=1024 * 2048,
        max_steps=_STEPS,
        warmup_steps=_STEPS // 100,
    )

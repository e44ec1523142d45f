"""Pretraining settings of BLOOM (arXiv:2211.05100, table 3)."""

from zoo.families.recipe import Recipe, causal_recipe, tiny_causal_recipe

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
        return tiny_causal_recipe()
    tokens, rate = _SETTINGS[size]
    return causal_recipe(
        learning_rate=rate,
        global_batch_tokens=tokens,
        max_steps=341_000_000_000 // tokens,
        warmup_steps=375_000_000 // tokens,
    )

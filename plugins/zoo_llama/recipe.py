"""Pretraining settings of the family: of TinyLlama, and of the size ``tiny``."""

from zoo.errors import UsageError
from zoo.families.recipe import Recipe, causal_recipe, tiny_causal_recipe


def recipe(size: str) -> Recipe:
    """Return the settings of a size; ``tiny`` takes a few minutes on two cores.

    Raises:
        UsageError: the size has no recipe.
    """
    match size:
        case "tiny":
            return tiny_causal_recipe()
        case "tinyllama-1.1b":
            return _tinyllama()
    raise UsageError(
        f"the pretraining of {size} is not reproduced here",
        "choose the size tiny or tinyllama-1.1b",
    )


def _tinyllama() -> Recipe:
    """Return the settings of Zhang et al. 2024, arXiv:2401.02385, section 2.4.

    AdamW with betas 0.9 and 0.95, a cosine from 4e-4 to 4e-5 after 2,000 steps of warm-up, weight
    decay of 0.1, gradients clipped at 1, batches of 2 million tokens, and 3 trillion in all.
    """
    tokens = 1024 * 2048
    return causal_recipe(
        learning_rate=4e-4,
        global_batch_tokens=tokens,
        max_steps=round(3e12 / tokens),
        warmup_steps=2000,
    )

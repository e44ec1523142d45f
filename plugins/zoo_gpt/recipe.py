"""How GPT (Radford et al. 2018, section 4.1) and GPT-2 (Radford et al. 2019) are pretrained."""

from zoo.training.optimizers import OptimizerSettings
from zoo.training.schedules import ScheduleSettings
from zoo.training.settings import Recipe

OBJECTIVE = "causal-lm"
# GPT-2's paper says that rates were tuned for each size, and not to what. These are of the models
# of the same shapes in Brown et al. 2020 (arXiv:2005.14165, table 2.1).
RATES = {"distil": 6e-4, "small": 6e-4, "medium": 3e-4, "large": 2.5e-4, "xl": 2e-4}


def recipe(size: str) -> Recipe:
    """Return the papers' settings, or for ``tiny`` what two cores do in a few minutes."""
    if size == "tiny":
        return Recipe(
            objective=OBJECTIVE,
            vocab_size=4096,
            length=128,
            batch_tokens=4096,
            steps=500,
            optimizer=OptimizerSettings(learning_rate=2e-3, betas=(0.9, 0.95), weight_decay=0.1),
            schedule=ScheduleSettings(name="cosine", warmup=50, end=0.1),
        )
    return _first() if size == "gpt" else _second(RATES[size])


def _first() -> Recipe:
    """Return what section 4.1 of GPT's paper says: Adam with a highest rate of 2.5e-4 after 2,000
    updates, then a cosine to 0; decoupled decay of 0.01; 64 rows of 512 tokens, 100 epochs.

    These are 3,000,000 updates for its corpus, 985 million words (Zhu et al. 2015,
    arXiv:1506.06724, table 2), were each word a token. The limit on the gradient's norm is that
    of the released code, which tunes the model (train.py, ``max_grad_norm``).
    """
    return Recipe(
        objective=OBJECTIVE,
        length=512,
        batch_tokens=64 * 512,
        steps=3_000_000,
        optimizer=OptimizerSettings(learning_rate=2.5e-4, weight_decay=0.01, clip=1.0),
        schedule=ScheduleSettings(name="cosine", warmup=2000),
    )


def _second(rate: float) -> Recipe:
    """Return GPT-2's 512 rows of 1,024 tokens (section 2.3), and what its paper is silent about
    from Brown et al. 2020 (appendix B): Adam with betas 0.9 and 0.95, a decay of 0.1, a norm of 1,
    375 million tokens of warm-up, a cosine down to a tenth, and 300 billion tokens in all; there,
    the rate stays a tenth after 260 billion.
    """
    tokens = 512 * 1024
    return Recipe(
        objective=OBJECTIVE,
        length=1024,
        batch_tokens=tokens,
        steps=round(300e9 / tokens),
        optimizer=OptimizerSettings(
            learning_rate=rate, betas=(0.9, 0.95), weight_decay=0.1, clip=1.0
        ),
        schedule=ScheduleSettings(name="cosine", warmup=round(375e6 / tokens), end=0.1),
    )

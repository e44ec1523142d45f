"""How ELECTRA is pretrained (arXiv:2003.10555, appendix A, table 6, and the released code)."""

from typing import Any

from zoo.training.optimizers import OptimizerSettings
from zoo.training.schedules import ScheduleSettings
from zoo.training.settings import Recipe

OBJECTIVE = "replaced-token-detection"
# Table 6: rows in a batch, updates, learning rate. Section 3.3: rows of 128 tokens for small.
BATCHES = {"small": (128, 1_000_000), "base": (256, 766_000), "large": (2048, 400_000)}


def recipe(size: str) -> Recipe:
    """Return the paper's settings, or for ``tiny`` what two cores do in a few minutes.

    A generator's size is taught as the size that it belongs to.
    """
    if size == "tiny":
        return _tiny()
    size = size.removesuffix("-generator")
    rows, steps = BATCHES[size]
    length = 128 if size == "small" else 512
    return Recipe(
        objective=OBJECTIVE,
        options=OPTIONS[size],
        length=length,
        batch_tokens=rows * length,
        steps=steps,
        # the released optimizer does not correct the averages' bias; it clips at 1
        optimizer=OptimizerSettings(
            learning_rate=5e-4 if size == "small" else 2e-4,
            weight_decay=0.01,
            eps=1e-6,
            bias_correction=False,
        ),
        schedule=ScheduleSettings(name="linear-together", warmup=10_000),
    )


# Table 6: the generator's width as a part of the discriminator's, and the share of masked tokens.
# (The small model that was released had a generator of its own width: options.generator=1.0.)
OPTIONS: dict[str, dict[str, Any]] = {
    "small": {"generator": 1 / 4},
    "base": {"generator": 1 / 3},
    "large": {"generator": 1 / 4, "rate": 0.25},
}


def _tiny() -> Recipe:
    shape = {"max_positions": 128, "dropout": 0.0, "attention_dropout": 0.0}
    # at a width of 128, products of fresh weights are as large as those of 0.02 at 768
    shape["initializer_range"] = 0.05
    return Recipe(
        objective=OBJECTIVE,
        options={"generator": 0.5},
        config=shape,
        vocab_size=4096,
        length=128,
        batch_tokens=2048,
        steps=1000,
        optimizer=OptimizerSettings(learning_rate=5e-3, weight_decay=0.01, eps=1e-6),
        schedule=ScheduleSettings(name="linear-together", warmup=50),
    )

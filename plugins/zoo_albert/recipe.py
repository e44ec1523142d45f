"""How ALBERT is pretrained (arXiv:1909.11942, section 4.1, and the released code)."""

from zoo.training.optimizers import OptimizerSettings
from zoo.training.schedules import ScheduleSettings
from zoo.training.settings import Recipe, brief

OBJECTIVE = "masked-lm+sentence-order"
# section 4.1: n-grams; create_pretraining_data.py: 0.15, 80-10-10
OPTIONS = {"choose": "ngrams", "rate": 0.15, "mask": 0.8, "random": 0.1}
# README of the release: version 2 was taught longer
STEPS = {"base-v2": 10_000_000, "large-v2": 3_000_000, "xlarge-v2": 3_000_000}
STEPS["xxlarge-v2"] = 3_000_000


def recipe(size: str) -> Recipe:
    """Return the paper's settings, or for ``tiny`` what two cores do in a few minutes."""
    if size == "tiny":
        return brief(
            OBJECTIVE,
            learning_rate=2e-3,
            options={**OPTIONS, "copies": 10},  # dupe_factor of create_pretraining_data.py is 40
            config={"max_positions": 128},
        )
    return Recipe(
        objective=OBJECTIVE,
        options=OPTIONS,
        length=512,
        batch_tokens=4096 * 512,
        steps=STEPS.get(size, 125_000),
        # lamb_optimizer.py and optimization.py: decay 0.01, no correction of the means' bias,
        # and norms up to 1
        optimizer=OptimizerSettings(
            name="lamb",
            learning_rate=0.00176,
            betas=(0.9, 0.999),
            eps=1e-6,
            weight_decay=0.01,
            bias_correction=False,
            clip=1.0,
        ),
        schedule=ScheduleSettings(name="linear-jump", warmup=3125),  # run_pretraining.py
    )

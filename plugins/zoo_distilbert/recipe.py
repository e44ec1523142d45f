"""How DistilBERT learns from text alone; its paper (arXiv:1910.01108) teaches it by a BERT.

From section 3 there: masks are drawn anew each time, and there is no second objective. All else
is BERT's (arXiv:1810.04805, section 3.1 and appendix A.2, and the released code).
"""

from zoo.training.optimizers import OptimizerSettings
from zoo.training.schedules import ScheduleSettings
from zoo.training.settings import Recipe, brief

OBJECTIVE = "masked-lm"
OPTIONS = {"choose": "tokens", "rate": 0.15, "mask": 0.8, "random": 0.1}  # BERT, section 3.1


def recipe(size: str) -> Recipe:
    """Return those settings, or for ``tiny`` what two cores do in a few minutes."""
    if size == "tiny":
        shorter = {"max_positions": 128}
        return brief(OBJECTIVE, learning_rate=1e-3, options=OPTIONS, config=shorter)
    # BERT, appendix A.2: 256 rows of 512 tokens, 1,000,000 steps
    return Recipe(
        objective=OBJECTIVE,
        options=OPTIONS,
        length=512,
        batch_tokens=256 * 512,
        steps=1_000_000,
        # BERT, optimization.py: no correction of the means' bias, 1e-6, and norms up to 1
        optimizer=OptimizerSettings(
            learning_rate=1e-4,
            betas=(0.9, 0.999),
            weight_decay=0.01,
            eps=1e-6,
            bias_correction=False,
            clip=1.0,
        ),
        schedule=ScheduleSettings(name="linear-jump", warmup=10_000),
    )

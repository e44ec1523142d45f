"""How BERT is pretrained (arXiv:1810.04805, appendix A.2, and the released code)."""

from zoo.training.optimizers import OptimizerSettings

from zoo.training.schedules import ScheduleSettings
from zoo.training.settings import Recipe

OBJECTIVE = "masked-lm"


def recipe(size: str) -> Recipe:
    """Return the paper's settings, or for ``tiny`` what two cores do in a few minutes."""
    if size == "tiny":
        return Recipe(
            objective=OBJECTIVE,
            vocab_size=4096,
            length=128,
            batch_tokens=4096,
            steps=500,
            optimizer=OptimizerSettings(learning_rate=1e-3, weight_decay=0.01),
            schedule=ScheduleSettings(warmup=50),
        )
    # section A.2: 256 rows of 512 tokens, 1,000,000 steps, 10,000 of warm-up, lr 1e-4, L2 0.01
    return Recipe(
        objective=OBJECTIVE,
        length=512,
        batch_tokens=256 * 512,
        steps=1_000_000,
        # the released optimizer does not correct the averages' bias, and adds 1e-6
        optimizer=OptimizerSettings(
            learning_rate=1e-4, weight_decay=0.01, eps=1e-6, bias_correction=False
        ),
        schedule=ScheduleSettings(warmup=10_000),
    )

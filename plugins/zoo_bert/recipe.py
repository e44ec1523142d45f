"""How BERT is pretrained (arXiv:1810.04805, appendix A.2, and the released code)."""

from zoo.training.optimizers import OptimizerSettings
from zoo.training.schedules import ScheduleSettings
from zoo.training.settings import Recipe, ShortSettings, brief

OBJECTIVE = "masked-lm+next-sentence"
OPTIONS = {"choose": "tokens", "rate": 0.15, "mask": 0.8, "random": 0.1}  # section 3.1


def recipe(size: str) -> Recipe:
    """Return the paper's settings, or for ``tiny`` what two cores do in a few minutes.

    Dropout of 0.1 is in the sizes. Rows have 128 tokens in the first 90 % of the steps, and 512 in
    the rest (appendix A.2), 256 of them in each. The released models for whole words are of
    ``choose`` set to ``words``.
    """
    if size == "tiny":
        copies = 10  # dupe_factor of create_pretraining_data.py
        return brief(OBJECTIVE, learning_rate=1e-3, options={**OPTIONS, "copies": copies})
    return Recipe(
        objective=OBJECTIVE,
        options=OPTIONS,
        length=512,
        short=ShortSettings(length=128, part=0.9),
        batch_tokens=256 * 512,
        steps=1_000_000,
        # optimization.py: no correction of the means' bias, 1e-6, and norms up to 1
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

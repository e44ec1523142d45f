"""How ELMo is pretrained: allenai/bilm-tf, ``bilm/training.py`` and ``bin/train_elmo.py``."""

from zoo.training.optimizers import OptimizerSettings
from zoo.training.schedules import ScheduleSettings
from zoo.training.settings import Recipe

OBJECTIVE = "bidirectional-lm"
CONSTANT = ScheduleSettings(name="constant")
WINDOW = 20  # words
ROWS = 3 * 128  # devices, and rows of each
TOKENS = 768_648_884  # of the 1 Billion Word Benchmark, as the released code has it
EPOCHS = 10


def recipe(size: str) -> Recipe:
    """Return the released settings, or for ``tiny`` what two cores do in a few minutes.

    The released code multiplies the mean loss by the words of a window before it takes
    gradients. Adagrad sees no difference where its sums begin with 1 / 20**2 instead of 1, and
    the limit on the norm is 10 / 20 instead of 10.
    """
    if size == "tiny":
        return Recipe(
            objective=OBJECTIVE,
            config={"dropout": 0.0},
            vocab_size=4096,
            length=WINDOW,
            batch_tokens=32 * WINDOW,
            steps=500,
            optimizer=OptimizerSettings(learning_rate=0.03),
            schedule=ScheduleSettings(name="cosine", warmup=20, end=0.1),
        )
    places = ROWS * WINDOW
    return Recipe(
        objective=OBJECTIVE,
        options={"samples": 8192},
        length=WINDOW,
        batch_tokens=places,
        steps=EPOCHS * (TOKENS // places),
        optimizer=OptimizerSettings(
            name="adagrad",
            learning_rate=0.2,
            accumulator=1 / WINDOW**2,
            clip=10.0 / WINDOW,
        ),
        schedule=CONSTANT,
    )

"""Pretraining and fine-tuning settings of LSTM language models.

They are those of adversarial_text (tensorflow/models), the code released for Dai and Le 2015,
arXiv:1511.01432, and for Miyato et al. 2017, arXiv:1605.07725: its README, for reviews of films.
"""

from typing import Any

from zoo.families.distillation import pretraining_recipe
from zoo.families.recipe import LRSchedulerConfig, OptimizerConfig, Recipe, tiny_causal_recipe

OBJECTIVE = "causal-lm"
STEPS = 100_000
ROWS = 256
TIMESTEPS = 400
REVIEWS = 25_000  # With labels, in the training set of IMDB.

PRESETS: dict[str, Any] = {
    "tiny": {"optimizer": {"learning_rate": 2e-3}},
    # 15,000 steps, in which the learning rate becomes a twentieth. Here it becomes zero.
    "paper": {
        "max_seq_len": TIMESTEPS,
        "batch_size": 64,
        "num_train_epochs": 15_000 * 64 / REVIEWS,
        "early_stopping_patience": 3,
        "optimizer": {"learning_rate": 5e-4, "weight_decay": 0.0, "max_grad_norm": 1.0},
        "lr_scheduler": {"name": "linear"},
    },
}

# No paper distils into these models on text; the losses are those of other language models.
DISTILLATION = (
    pretraining_recipe(
        "lstm",
        "Sanh et al. 2019, arXiv:1910.01108, without their loss of hidden states, whose teacher is "
        "as wide as the student",
        terms={"kl": {"kind": "kl", "weight": 5.0, "temperature": 2.0, "positions": "all"}},
        init_layers=None,
    ),
)


def recipe(size: str) -> Recipe:
    """Return the released settings, or for ``tiny`` a run of a few minutes on two cores."""
    if size == "tiny":
        return tiny_causal_recipe(config={})
    # There, the learning rate falls by a factor of 0.9999 in each step, to less than a
    # ten-thousandth.
    return Recipe(
        objective=OBJECTIVE,
        config={"embedding_dropout": 0.5},
        seq_len=TIMESTEPS,
        global_batch_tokens=ROWS * TIMESTEPS,
        max_steps=STEPS,
        optimizer=OptimizerConfig(learning_rate=1e-3, max_grad_norm=1.0),
        lr_scheduler=LRSchedulerConfig(name="linear"),
    )

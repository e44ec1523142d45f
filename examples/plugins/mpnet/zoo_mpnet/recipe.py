"""Pretraining settings of MPNet with masked language modelling.

``BASE`` has the settings of the released code's command (the README of microsoft/MPNet) for this
objective, ``--input-mode mlm``: 16 rows in each of 16 micro-batches on 32 devices. The paper's own
objective, which also predicts tokens in a permuted order, is not in ``zoo``.
"""

from zoo.families.recipe import LRSchedulerConfig, OptimizerConfig, Recipe, tiny_recipe

BASE = Recipe(
    objective="masked-lm",
    objective_args={"mask_strategy": "words"},
    seq_len=512,
    global_batch_tokens=16 * 16 * 32 * 512,
    max_steps=125_000,
    optimizer=OptimizerConfig(
        learning_rate=5e-4, betas=(0.9, 0.98), eps=1e-6, weight_decay=0.01, max_grad_norm=None
    ),
    lr_scheduler=LRSchedulerConfig(name="linear", warmup_steps=10_000),
)
# a few minutes on two cores
TINY = tiny_recipe("masked-lm", learning_rate=1e-3)


def recipe(size: str) -> Recipe:
    """Return the settings of a size."""
    return TINY if size == "tiny" else BASE

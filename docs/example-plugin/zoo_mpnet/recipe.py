"""How MPNet is taught to tell masked tokens.

``BASE`` has the settings of the released code's command (the README of microsoft/MPNet), which
also does this: ``--input-mode mlm``. Its 16 rows in 16 parts on each of the paper's 32 devices
are the batch. The paper's own objective, which ``zoo`` lacks, has some tokens predicted in a
permuted order, too.
"""

from zoo.families.recipe import LRSchedulerConfig, OptimizerConfig, Recipe, smoke_test_recipe

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
# what two cores do in a few minutes
TINY = smoke_test_recipe("masked-lm", learning_rate=1e-3)


def recipe(size: str) -> Recipe:
    """Return how a size is pretrained."""
    return TINY if size == "tiny" else BASE

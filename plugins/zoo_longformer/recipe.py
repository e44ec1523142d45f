"""Pretraining settings of Longformer (arXiv:2004.05150, section 5)."""

from zoo.families.recipe import (
    MASKING,
    TINY_CONFIG,
    LRSchedulerConfig,
    Recipe,
    fairseq_adam,
    tiny_recipe,
)

OBJECTIVE = "masked-lm"
OPTIONS = {"mask_strategy": "tokens", **MASKING}  # As RoBERTa, whose training goes on.


def recipe(size: str) -> Recipe:
    """Return the paper's settings, or for ``tiny`` a run of a few minutes on two cores.

    The paper goes on from a RoBERTa whose positions are copied; see ``zoo convert --max-seq-len``.
    Its rate falls by a polynomial of power 3, and here linearly.
    """
    if size == "tiny":
        changes = {**TINY_CONFIG, "attention_window": 16}
        return tiny_recipe(OBJECTIVE, betas=(0.9, 0.98), objective_args=OPTIONS, config=changes)
    return Recipe(
        objective=OBJECTIVE,
        objective_args=OPTIONS,
        seq_len=4096,
        global_batch_tokens=64 * 4096,
        max_steps=65_000,
        optimizer=fairseq_adam(3e-5),
        lr_scheduler=LRSchedulerConfig(name="linear", warmup_steps=500),
    )

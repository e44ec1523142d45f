"""Settings of DistilBERT (arXiv:1910.01108): pretraining without a teacher, and distillation.

By section 3 there, masks are drawn anew each time, without a second objective. All else is
BERT's (arXiv:1810.04805, section 3.1 and appendix A.2, and the released code).
"""

from zoo.families.distillation import pretraining_recipe
from zoo.families.recipe import (
    MASKING,
    TINY_CONFIG,
    Recipe,
    million_steps,
    tiny_recipe,
)

OBJECTIVE = "masked-lm"
OPTIONS = {"mask_strategy": "tokens", **MASKING}  # BERT, section 3.1

# the paper has no settings; these are from run_glue.py, the released code's script of that time
PRESETS = {
    "paper": {
        "max_seq_len": 128,
        "batch_size": 32,
        "num_train_epochs": 3.0,
        "optimizer": {"learning_rate": 5e-5},
    }
}

# distillation/train.py and its README, of the released code: ``--mlm_smoothing 0.7``. It masks 15 %
# of a batch, and here of each row.
DISTILLATION = (
    pretraining_recipe(
        "distilbert",
        "Sanh et al. 2019, arXiv:1910.01108, section 3, and train.py of the released code; "
        "DistilmBERT from a multilingual teacher",
        objective_args={"mask_smoothing": 0.7},
    ),
)


def recipe(size: str) -> Recipe:
    """Return the settings of a size, or for ``tiny`` of a few minutes on two cores."""
    if size == "tiny":
        changes = {**TINY_CONFIG, "max_positions": 128}
        return tiny_recipe(OBJECTIVE, objective_args=OPTIONS, config=changes)
    # BERT, appendix A.2: 256 rows of 512 tokens, 1,000,000 steps
    return million_steps(OBJECTIVE, objective_args=OPTIONS)

"""Settings of LED, of pretraining and of fine-tuning.

Published models continue from BART, with its positions copied (arXiv:2004.05150, section 7), and
were not pretrained on, so only ``tiny`` has a recipe: a new model learns to restore texts, as BART
does (arXiv:1910.13461).
"""

from zoo.families.recipe import Recipe, require_tiny, tiny_seq2seq_recipe

OBJECTIVE = "text-infilling"
OPTIONS = {"noise_density": 0.3, "poisson_lambda": 3.0}

# Of both published sizes: summaries of arXiv's papers (arXiv:2004.05150, section 7), by
# scripts/summarization.py of the released code, with 1,000 steps of warm-up, of about 63,000.
PRESETS = {
    "paper": {
        "max_seq_len": 16_384,
        "batch_size": 16,
        "num_train_epochs": 5.0,
        "warmup_ratio": 0.016,
        "optimizer": {"learning_rate": 3e-5, "weight_decay": 0.0},
    }
}


def recipe(size: str) -> Recipe:
    """Return the settings of ``tiny``, which take a few minutes on two cores."""
    require_tiny(size)
    return tiny_seq2seq_recipe(OBJECTIVE, objective_args=OPTIONS)

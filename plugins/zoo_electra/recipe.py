"""Pretraining settings of ELECTRA (arXiv:2003.10555, appendix A, table 6; the released code)."""

from typing import Any

from zoo.families.distillation import DistillationRecipe
from zoo.families.recipe import TINY_CONFIG, LRSchedulerConfig, OptimizerConfig, Recipe, tiny_recipe

OBJECTIVE = "replaced-token-detection"
# Table 6: rows in a batch, updates, learning rate. Section 3.3: rows of 128 tokens for small.
BATCHES = {"small": (128, 1_000_000), "base": (256, 766_000), "large": (2048, 400_000)}

# appendix B, table 7, and configure_finetuning.py of the released code; 10 epochs for RTE and
# STS-B, 2 for SQuAD, with rows of 512 tokens (there). Neither has multiple choice.
_FINE_TUNING = {
    "max_seq_len": 128,
    "batch_size": 32,
    "num_train_epochs": 3.0,
    "warmup_ratio": 0.1,
    "lr_scheduler": {"name": "linear-warmup-times-decay"},
    "tasks": {
        "question-answering": {"num_train_epochs": 2.0, "max_seq_len": 512},
        "glue/rte": {"num_train_epochs": 10.0},
        "glue/stsb": {"num_train_epochs": 10.0},
    },
}
_OPTIMIZER = {"eps": 1e-6, "weight_decay": 0.01, "bias_correction": False}
PRESETS = {
    "paper": {
        **_FINE_TUNING,
        "optimizer": {**_OPTIMIZER, "learning_rate": 1e-4, "layerwise_lr_decay": 0.8},
    },
    "paper-large": {
        **_FINE_TUNING,
        "optimizer": {**_OPTIMIZER, "learning_rate": 5e-5, "layerwise_lr_decay": 0.9},
    },
}


def recipe(size: str) -> Recipe:
    """Return the paper's settings, or for ``tiny`` a run of a few minutes on two cores."""
    # A generator has the settings of its discriminator's size
    if size == "tiny":
        return _tiny()
    size = size.removesuffix("-generator")
    rows, steps = BATCHES[size]
    length = 128 if size == "small" else 512
    return Recipe(
        objective=OBJECTIVE,
        objective_args=OPTIONS[size],
        seq_len=length,
        global_batch_tokens=rows * length,
        max_steps=steps,
        # the released optimizer has no bias correction; it clips at 1
        optimizer=OptimizerConfig(
            learning_rate=5e-4 if size == "small" else 2e-4,
            weight_decay=0.01,
            eps=1e-6,
            bias_correction=False,
        ),
        lr_scheduler=LRSchedulerConfig(name="linear-warmup-times-decay", warmup_steps=10_000),
    )


# No paper has one. A student with a generator of its own. Its discriminator also learns what the
# teacher's predicts of the same tokens, and its generator what the teacher's predicts of the masked
# ones, each with the weight of its own loss.
DISTILLATION = (
    DistillationRecipe(
        name="electra",
        source="Hinton et al. 2015, arXiv:1503.02531, of Clark et al. 2020, section 2",
        objective=OBJECTIVE,
        data="text",
        terms={
            "kl": {"kind": "kl", "weight": 50.0},
            "generator": {"kind": "kl", "logits_of": "masked-lm"},
        },
    ),
)

# Table 6: the generator's width as a fraction of the discriminator's, and the fraction of masked
# tokens. (The released small model had a generator of its own width: generator_width_ratio=1.0.)
OPTIONS: dict[str, dict[str, Any]] = {
    "small": {"generator_width_ratio": 1 / 4},
    "base": {"generator_width_ratio": 1 / 3},
    "large": {"generator_width_ratio": 1 / 4, "mask_prob": 0.25},
}


def _tiny() -> Recipe:
    """Return a recipe in two stages: a discriminator from new weights learns nothing in minutes."""
    # Embeddings are as wide as the hidden states. With half of that, the loss of the generator was
    # 4.4 instead of 2.8 after the first stage
    stages = {"generator_width_ratio": 1.0, "generator_fraction": 0.5, "temperature": 2.0}
    changes = {**TINY_CONFIG, "embedding_size": 128, "max_positions": 128}
    return tiny_recipe(OBJECTIVE, objective_args=stages, config=changes)

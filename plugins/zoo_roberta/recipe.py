"""Pretraining settings of RoBERTa (arXiv:1907.11692, table 9)."""

from zoo.families.distillation import pretraining_recipe
from zoo.families.recipe import (
    MASKING,
    TINY_CONFIG,
    LRSchedulerConfig,
    Recipe,
    fairseq_adam,
    tiny_recipe,
)

OBJECTIVE = "masked-lm"  # section 4.1: masks are drawn anew each time; 4.2: without pairs
OPTIONS = {"mask_strategy": "tokens", **MASKING}  # section 2.3, as BERT
BETAS = (0.9, 0.98)  # table 9
# table 9: the highest rate, and the updates until then
RATES = {"base": (6e-4, 24_000), "large": (4e-4, 30_000)}

# appendix, table 10, and README.glue.md of the released code: learning rate of 1e-5, 2e-5 or 3e-5,
# batch size of 16 or 32, 6 % warm-up, at most 10 epochs, no clipping
PRESETS = {
    "paper": {
        "max_seq_len": 512,
        "batch_size": 32,
        "num_train_epochs": 10.0,
        "warmup_ratio": 0.06,
        "optimizer": {
            "learning_rate": 1e-5,
            "betas": [0.9, 0.98],
            "eps": 1e-6,
            "weight_decay": 0.1,
            "max_grad_norm": None,
        },
        # table 10, the columns of SQuAD, which the released code lacks, and of RACE, for which its
        # README.race.md has 5 epochs at a constant rate, and a weight decay of 0.01
        "tasks": {
            "question-answering": {
                "batch_size": 48,
                "num_train_epochs": 2.0,
                "optimizer": {"learning_rate": 1.5e-5, "weight_decay": 0.01},
            },
            "multiple-choice": {
                "batch_size": 16,
                "num_train_epochs": 4.0,
                "optimizer": {"learning_rate": 1e-5},
            },
        },
    }
}


# DistilRoBERTa has the recipe of DistilBERT (distillation/README.md of the released code).
DISTILLATION = (
    pretraining_recipe(
        "distilroberta",
        "Sanh et al. 2019, arXiv:1910.01108, and the README of its released code: DistilRoBERTa",
        objective_args={"mask_smoothing": 0.7},
    ),
)


def recipe(size: str) -> Recipe:
    """Return the paper's settings, or for ``tiny`` a run of a few minutes on two cores."""
    # Sizes of later papers and of other languages have the settings of the size in their name,
    # those of ``large`` if they are larger, or of ``base``. As in section 4.2 (full sentences),
    # rows are packed across documents; here, each document has special tokens of its own, and
    # attention stays within it
    if size == "tiny":
        changes = {**TINY_CONFIG, "max_positions": 130}
        return tiny_recipe(OBJECTIVE, betas=BETAS, objective_args=OPTIONS, config=changes)
    rate, warmup = RATES["large" if size.endswith(("large", "xl")) else "base"]
    return Recipe(
        objective=OBJECTIVE,
        objective_args=OPTIONS,
        seq_len=512,
        global_batch_tokens=8192 * 512,  # "8k"
        max_steps=500_000,
        optimizer=fairseq_adam(rate),
        lr_scheduler=LRSchedulerConfig(name="linear", warmup_steps=warmup),
    )

"""Pretraining settings of ALBERT (arXiv:1909.11942, section 4.1, and the released code)."""

from zoo.families.recipe import (
    MASKING,
    TINY_CONFIG,
    LRSchedulerConfig,
    OptimizerConfig,
    Recipe,
    tiny_recipe,
)

OBJECTIVE = "masked-lm+sentence-order"
# section 4.1: n-grams; create_pretraining_data.py: 0.15, 80-10-10
OPTIONS = {"mask_strategy": "ngrams", **MASKING}
# README of the release: version 2 was trained longer
STEPS = {"base-v2": 10_000_000, "large-v2": 3_000_000, "xlarge-v2": 3_000_000}
STEPS["xxlarge-v2"] = 3_000_000

# appendix A.4, table 14, the row of SST-2: 20,935 steps of 32 are 10 epochs, 1,256 are warm-up;
# optimization.py of the released code: decay of 0.01, no bias correction
PRESETS = {
    "paper": {
        "max_seq_len": 512,
        "batch_size": 32,
        "num_train_epochs": 10.0,
        "warmup_ratio": 0.06,
        "optimizer": {
            "learning_rate": 1e-5,
            "eps": 1e-6,
            "weight_decay": 0.01,
            "bias_correction": False,
        },
        "lr_scheduler": {"name": "linear-decay-from-zero"},
        # table 14, the rows of SQuAD 1.1 and RACE: 3,649 steps of 48 are 2 epochs; 12,000 steps of
        # 32 are 4.4 epochs; 1,000 steps are warm-up. The rate of RACE is from version
        # 2, in the README of the released code and run_race.py; with the table's 2e-5, the rate of
        # version 1, models of version 2 diverge (there)
        "tasks": {
            "question-answering": {
                "batch_size": 48,
                "num_train_epochs": 2.0,
                "warmup_ratio": 0.1,
                "optimizer": {"learning_rate": 5e-5},
            },
            "multiple-choice": {
                "num_train_epochs": 4.4,
                "warmup_ratio": 1 / 12,
                "optimizer": {"learning_rate": 1e-5},
            },
        },
    }
}


def recipe(size: str) -> Recipe:
    """Return the paper's settings, or for ``tiny`` a run of a few minutes on two cores."""
    if size == "tiny":
        return tiny_recipe(
            OBJECTIVE,
            objective_args={**OPTIONS, "dupe_factor": 10},  # 40 in create_pretraining_data.py
            config={**TINY_CONFIG, "max_positions": 128},
        )
    return Recipe(
        objective=OBJECTIVE,
        objective_args=OPTIONS,
        seq_len=512,
        global_batch_tokens=4096 * 512,
        max_steps=STEPS.get(size, 125_000),
        # lamb_optimizer.py and optimization.py: decay 0.01, no bias correction,
        # and norms up to 1
        optimizer=OptimizerConfig(
            name="lamb",
            learning_rate=0.00176,
            betas=(0.9, 0.999),
            eps=1e-6,
            weight_decay=0.01,
            bias_correction=False,
            max_grad_norm=1.0,
        ),
        lr_scheduler=LRSchedulerConfig(
            name="linear-decay-from-zero", warmup_steps=3125
        ),  # run_pretraining.py
    )

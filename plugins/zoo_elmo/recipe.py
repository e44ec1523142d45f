"""Pretraining settings of ELMo: allenai/bilm-tf, ``bilm/training.py``, ``bin/train_elmo.py``."""

from typing import Any

from zoo.families.recipe import LRSchedulerConfig, OptimizerConfig, Recipe

OBJECTIVE = "bidirectional-lm"
CONSTANT = LRSchedulerConfig(name="constant")
WINDOW = 20  # words
ROWS = 3 * 128  # devices, and rows of each
TOKENS = 768_648_884  # of the 1 Billion Word Benchmark, as the released code has it
EPOCHS = 10


# Peters et al. 2018, section 3.3: the backbone is frozen, and the mix of its layers is learned with
# the task; section A.3 (named entities): Adam at 0.001 without decay, gradients clipped at 5, and
# early stopping
_MIX = {"task_args": {"layers": "mix"}}
PRESETS: dict[str, Any] = {
    "tiny": {"optimizer": {"learning_rate": 0.01}},
    "paper": {
        "max_seq_len": 128,
        "batch_size": 32,
        "num_train_epochs": 10.0,
        "freeze_layers": 2,
        "early_stopping_patience": 3,
        "optimizer": {"learning_rate": 1e-3, "max_grad_norm": 5.0, "weight_decay": 0.0},
        "lr_scheduler": {"name": "constant"},
        "tasks": dict.fromkeys(
            ("text-classification", "regression", "multi-label", "token-classification"), _MIX
        ),
    },
}


def recipe(size: str) -> Recipe:
    """Return the released settings, or for ``tiny`` a run of a few minutes on two cores."""
    # The released code multiplies the mean loss by the words of a window. With Adagrad, the updates
    # are the same if its sums start with 1 / 20**2 instead of 1, and gradients are clipped at 10 /
    # 20 instead of 10
    if size == "tiny":
        return Recipe(
            objective=OBJECTIVE,
            config={"dropout": 0.0, "lstm_size": 128, "projection_size": 64},
            vocab_size=4096,
            seq_len=WINDOW,
            global_batch_tokens=32 * WINDOW,
            max_steps=800,
            optimizer=OptimizerConfig(learning_rate=0.01),
            lr_scheduler=LRSchedulerConfig(name="cosine", warmup_steps=20, min_lr_ratio=0.1),
        )
    tokens = ROWS * WINDOW
    return Recipe(
        objective=OBJECTIVE,
        objective_args={"num_sampled": 8192},
        seq_len=WINDOW,
        global_batch_tokens=tokens,
        max_steps=EPOCHS * (TOKENS // tokens),
        optimizer=OptimizerConfig(
            name="adagrad",
            learning_rate=0.2,
            initial_accumulator_value=1 / WINDOW**2,
            max_grad_norm=10.0 / WINDOW,
        ),
        lr_scheduler=CONSTANT,
    )

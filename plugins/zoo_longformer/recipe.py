"""Settings of Longformer: of pretraining (arXiv:2004.05150, section 5) and of fine-tuning."""

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

# Of both published sizes, by the paper's released code: scripts/classification.py, with the batch
# and the epochs of RoBERTa (arXiv:1907.11692, table 10), of which it has no values of its own.
PRESETS = {
    "paper": {
        "max_seq_len": 4096,
        "batch_size": 32,
        "num_train_epochs": 10.0,
        "warmup_ratio": 0.1,
        "optimizer": {"learning_rate": 2e-5, "eps": 1e-8, "weight_decay": 0.0},
        # TriviaQA, scripts/cheatsheet.txt: 1,000 steps of warm-up, of about 55,000.
        "tasks": {
            "question-answering": {
                "batch_size": 8,
                "num_train_epochs": 4.0,
                "warmup_ratio": 0.02,
                "optimizer": {"learning_rate": 3e-5},
            },
        },
    }
}


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

"""Pretraining settings of BERT (arXiv:1810.04805, appendix A.2, and the released code)."""

from zoo.families.recipe import (
    MASKING,
    TINY_CONFIG,
    Recipe,
    SeqLenWarmup,
    million_steps,
    tiny_recipe,
)

OBJECTIVE = "masked-lm+next-sentence"
OPTIONS = {"mask_strategy": "tokens", **MASKING}  # section 3.1

# appendix A.3, and run_classifier.py of the released code: 10 % warm-up, decay of 0.01, no bias
# correction; of the learning rates 5e-5, 3e-5 and 2e-5 the lowest
PRESETS = {
    "paper": {
        "max_seq_len": 128,
        "batch_size": 32,
        "num_train_epochs": 3.0,
        "warmup_ratio": 0.1,
        "optimizer": {
            "learning_rate": 2e-5,
            "eps": 1e-6,
            "weight_decay": 0.01,
            "bias_correction": False,
        },
        "lr_scheduler": {"name": "linear-decay-from-zero"},
        "tasks": {
            # section 4.2, SQuAD 1.1, and the defaults of run_squad.py of the released code; for
            # version 2.0 (4.3) 2 epochs with a batch size of 48
            "question-answering": {"num_train_epochs": 3.0, "optimizer": {"learning_rate": 5e-5}},
            # section 4.4, SWAG, which the released code lacks
            "multiple-choice": {"batch_size": 16, "optimizer": {"learning_rate": 2e-5}},
        },
    }
}


def recipe(size: str) -> Recipe:
    """Return the paper's settings, or for ``tiny`` a run of a few minutes on two cores."""
    # Dropout of 0.1 is part of the sizes. Batches have 256 rows, of 128 tokens in the first 90 % of
    # the steps and of 512 in the rest (appendix A.2). The released models with whole word masking
    # have ``mask_strategy`` set to ``words``
    if size == "tiny":
        copies = 10  # dupe_factor of create_pretraining_data.py
        return tiny_recipe(
            OBJECTIVE,
            objective_args={**OPTIONS, "dupe_factor": copies},
            config={**TINY_CONFIG, "max_positions": 128},
        )
    return million_steps(
        OBJECTIVE,
        objective_args=OPTIONS,
        seq_len_warmup=SeqLenWarmup(seq_len=128, fraction=0.9),
    )

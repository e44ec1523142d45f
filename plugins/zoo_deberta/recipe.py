"""Pretraining settings of DeBERTa 1 and 2 (arXiv:2006.03654), and 3 (arXiv:2111.09543)."""

from typing import Any

from zoo.families.recipe import (
    MASKING,
    TINY_CONFIG,
    LRSchedulerConfig,
    OptimizerConfig,
    Recipe,
    tiny_recipe,
)

# The released optimizer (optims/xadam.py) has no bias correction, and its schedule
# ``warmup_linear`` jumps; weights decay by 0.01, gradients are clipped at 1 (optims/args.py).
ADAM: dict[str, Any] = {"weight_decay": 0.01, "eps": 1e-6, "bias_correction": False}
SCHEDULE = LRSchedulerConfig(name="linear-decay-from-zero", warmup_steps=10_000)
# NGramMaskGenerator of apps/tasks/mlm_task.py: 80-10-10, and up to max_ngram words in a row, n with
# a probability in proportion to 1 / n. (There, one n-gram is drawn in each window of 6 n words, and
# those beyond 15 % of the tokens, at the end of a row, are dropped; here, n-grams are drawn
# anywhere until so many tokens are.)
MASKS = {"mask_strategy": "ngrams", **MASKING}
# Version 3, experiments/language_model/rtd_*.json: a generator as wide, and half as deep; single
# tokens are chosen, and all become the mask (apps/tasks/rtd_task.py: max_gram=1, mask_prob=1).
# By default, the released code steps two optimizers in turn (decoupled_training): the generator's,
# then the discriminator's on the embeddings so updated. Here, one optimizer steps both. No gradient
# flows between them, so that AdamW's updates differ only by the joint clipping of gradients.
DETECTION = {
    "mask_strategy": "tokens",
    "mask_prob": 0.15,
    "mask_token_prob": 1.0,
    "generator_width_ratio": 1.0,
    "generator_depth_ratio": 0.5,
    "discriminator_weight": 50.0,  # section 3.1; the released code's default is 10
    "embedding_sharing": "gradient-disentangled",
}

# experiments/glue/mnli.sh of the released code, version 3: its base and its small model
_FINE_TUNING = {
    "max_seq_len": 256,
    "batch_size": 64,
    "num_train_epochs": 3.0,
    "warmup_ratio": 0.1,
    "lr_scheduler": {"name": "linear-decay-from-zero"},
    # experiments/my_exp/run.sh of the released code, for RACE: the base model of version 1, which
    # was fine-tuned on MNLI before; 100 steps of warm-up are 0.6 %. There is no script for SQuAD.
    "tasks": {
        "multiple-choice": {
            "max_seq_len": 320,
            "batch_size": 32,
            "num_train_epochs": 6.0,
            "warmup_ratio": 0.006,
            "optimizer": {"learning_rate": 2e-5},
            "config": {"classifier_dropout": 0.2},
        }
    },
}
PRESETS = {
    "paper": {**_FINE_TUNING, "optimizer": {**ADAM, "learning_rate": 1.5e-5}},
    "paper-small": {**_FINE_TUNING, "optimizer": {**ADAM, "learning_rate": 4.5e-5}},
}


def recipe(size: str) -> Recipe:
    """Return the papers' settings, or for ``tiny`` a run of a few minutes on two cores."""
    if size == "tiny":
        return _tiny()
    return _third(size) if size.startswith("v3-") else _masked(size)


def _masked(size: str) -> Recipe:
    """Return the settings of versions 1 and 2 (arXiv:2006.03654, appendix A.3, table of
    hyper-parameters for pre-training): 2,048 rows, 1,000,000 updates, a rate of 2e-4, and
    1.5e-4 for version 2."""
    # Masks are of up to three words in a row: appendix A.3 adds spans of a size up to three, and
    # experiments/language_model/mlm.sh has ``--max_ngram 3`` for the sizes of version 2
    rate = 1.5e-4 if size.startswith("v2-") else 2e-4
    return Recipe(
        objective="masked-lm",
        objective_args=MASKS,
        seq_len=512,
        global_batch_tokens=2048 * 512,
        max_steps=1_000_000,
        optimizer=OptimizerConfig(learning_rate=rate, **ADAM),
        lr_scheduler=SCHEDULE,
    )


def _third(size: str) -> Recipe:
    """Return the settings of version 3 (arXiv:2111.09543, section 4.1): 8,192 rows, 500,000
    updates, a rate of 5e-4, and 3e-4 for the large size; the second beta is 0.98.
    """
    rate = 3e-4 if size == "v3-large" else 5e-4
    return Recipe(
        objective="replaced-token-detection",
        objective_args=DETECTION,
        seq_len=512,
        global_batch_tokens=8192 * 512,
        max_steps=500_000,
        optimizer=OptimizerConfig(learning_rate=rate, betas=(0.9, 0.98), **ADAM),
        lr_scheduler=SCHEDULE,
    )


def _tiny() -> Recipe:
    """Return a recipe in two stages; tiny is built like version 3."""
    stages = {"generator_depth_ratio": 1.0, "generator_fraction": 0.5, "temperature": 2.0}
    changes = {**TINY_CONFIG, "max_positions": 128}
    return tiny_recipe(
        "replaced-token-detection",
        objective_args={**DETECTION, **stages},
        config=changes,
        max_steps=500,
    )

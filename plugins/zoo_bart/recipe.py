"""Settings for pretraining and fine-tuning BART (arXiv:1910.13461)."""

from typing import Any

from zoo.families.recipe import (
    TINY_CONFIG,
    LRSchedulerConfig,
    OptimizerConfig,
    Recipe,
    SeqLenWarmup,
)

OBJECTIVE = "text-infilling+sentence-permutation"  # section 5.1
OPTIONS = {"noise_density": 0.3, "poisson_lambda": 3.0, "permute_sentences": 1.0}
# section 5.1: as RoBERTa, arXiv:1907.11692, table 9: the highest rate, and the updates until then
RATES = {"base": (6e-4, 24_000), "large": (4e-4, 30_000)}


def _tuned(rate: float, batch_size: int, **changes: Any) -> dict[str, Any]:
    return {
        "batch_size": batch_size,
        "warmup_ratio": 0.06,
        "optimizer": {
            "learning_rate": rate,
            "betas": [0.9, 0.98],
            "eps": 1e-8,
            "weight_decay": 0.01,
        },
        **changes,
    }


# README.glue.md and README.summarization.md of the released code
PRESETS = {
    "paper": {
        "max_seq_len": 512,
        "num_train_epochs": 10.0,
        **_tuned(1e-5, 32),
        "tasks": {
            # batches of about 64 texts, 20,000 updates, gradients clipped at 0.1, smoothed targets
            "seq2seq": {
                "max_seq_len": 1024,
                "batch_size": 64,
                "num_train_epochs": 5.0,
                "warmup_ratio": 0.025,
                "task_args": {"label_smoothing_factor": 0.1},
                "optimizer": {
                    "learning_rate": 3e-5,
                    "betas": [0.9, 0.999],
                    "weight_decay": 0.01,
                    "max_grad_norm": 0.1,
                },
            }
        },
    }
}


def recipe(size: str) -> Recipe:
    """Return the paper's settings, or for ``tiny`` a run of a few minutes on two cores."""
    # The paper trains ``base`` for its comparisons only; here it has the steps of ``large``.
    # Dropout in the last tenth of the steps is not turned off, as it is there
    if size == "tiny":
        return _tiny()
    rate, warmup = RATES[size]
    return Recipe(
        objective=OBJECTIVE,
        objective_args=OPTIONS,
        seq_len=512,
        global_batch_tokens=8000 * 512,
        max_steps=500_000,
        optimizer=OptimizerConfig(
            learning_rate=rate, betas=(0.9, 0.98), eps=1e-6, weight_decay=0.01, max_grad_norm=None
        ),
        lr_scheduler=LRSchedulerConfig(name="linear", warmup_steps=warmup),
    )


def _tiny() -> Recipe:
    # The decoder first has to learn to copy what the source has; short rows in the order of the
    # text, of which most is not masked, teach it within a few hundred steps
    return Recipe(
        objective=OBJECTIVE,
        objective_args=OPTIONS,
        config=TINY_CONFIG,
        vocab_size=600,
        seq_len=64,
        seq_len_warmup=SeqLenWarmup(
            seq_len=32, fraction=0.4, keep="tokens", objective="text-infilling"
        ),
        global_batch_tokens=2048,
        max_steps=1000,
        optimizer=OptimizerConfig(learning_rate=3e-3, betas=(0.9, 0.98), weight_decay=0.01),
        lr_scheduler=LRSchedulerConfig(warmup_steps=100),
    )

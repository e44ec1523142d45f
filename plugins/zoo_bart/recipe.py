"""Settings for pretraining and fine-tuning BART (arXiv:1910.13461)."""

from typing import Any

from zoo.families.recipe import (
    LRSchedulerConfig,
    Recipe,
    SeqLenWarmup,
    fairseq_adam,
    tiny_seq2seq_recipe,
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
        optimizer=fairseq_adam(rate),
        lr_scheduler=LRSchedulerConfig(name="linear", warmup_steps=warmup),
    )


def _tiny() -> Recipe:
    # Short rows are in the order of the text, and most of them is not masked.
    return tiny_seq2seq_recipe(
        OBJECTIVE,
        objective_args=OPTIONS,
        seq_len_warmup=SeqLenWarmup(
            seq_len=32, fraction=0.4, keep="tokens", objective="text-infilling"
        ),
    )

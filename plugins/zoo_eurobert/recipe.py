"""Pretraining settings of EuroBERT (arXiv:2503.05500).

A run has two phases (section 2.3 and table 4): 4.8 trillion tokens in rows of 2,048 at a constant
rate, with half of the tokens masked, and 200 billion tokens in rows of up to 8,192 with a larger
rotary base and a tenth of the tokens masked, while the rate decays. They are a sequence-length
warm-up and the schedule ``warmup-stable-decay``.
"""

from typing import Any

from zoo.families.recipe import (
    LRSchedulerConfig,
    OptimizerConfig,
    Recipe,
    SeqLenWarmup,
    tiny_recipe,
)

OBJECTIVE = "masked-lm"
MASKED_AT_FIRST = {"mask_prob": 0.5}  # Section 2.3.
MASKED_AT_LAST = {"mask_prob": 0.1}
# Billions of tokens of the phases.
PRETRAINING = 4800
ANNEALING = 200
# Tokens of a row.
SHORT = 2048
LONG = 8192
BASE_OF_SHORT_ROWS = 10_000.0
# Rows of 2,048 tokens per step: devices, rows of each, and steps of accumulation (table 4).
_ROWS = {"210m": 192 * 24, "610m": 384 * 12, "2.1b": 96 * 10 * 5}


def recipe(size: str) -> Recipe:
    """Return the settings of a size; ``tiny`` takes a few minutes on two cores."""
    if size == "tiny":
        return tiny_recipe(
            OBJECTIVE,
            objective_args={"mask_prob": 0.3},
            config={"initializer_range": 0.05},
            optimizer=_optimizer(2e-3, weight_decay=0.01),
        )
    batch = _ROWS[size] * SHORT
    total = PRETRAINING + ANNEALING
    return Recipe(
        objective=OBJECTIVE,
        objective_args=MASKED_AT_LAST,
        seq_len=LONG,
        seq_len_warmup=SeqLenWarmup(
            seq_len=SHORT,
            fraction=PRETRAINING / total,
            keep="tokens",
            objective=OBJECTIVE,
            objective_args=MASKED_AT_FIRST,
            config={"rope_theta": BASE_OF_SHORT_ROWS},
        ),
        global_batch_tokens=batch,
        max_steps=total * 1_000_000_000 // batch,
        optimizer=_optimizer(1e-4, weight_decay=0.1),
        lr_scheduler=LRSchedulerConfig(
            name="warmup-stable-decay",
            warmup_steps=2000,
            decay_fraction=ANNEALING / total,
            decay_type="cosine",
        ),
    )


def _optimizer(rate: float, **changes: Any) -> OptimizerConfig:
    return OptimizerConfig(
        learning_rate=rate, betas=(0.9, 0.95), eps=1e-5, max_grad_norm=1.0, **changes
    )

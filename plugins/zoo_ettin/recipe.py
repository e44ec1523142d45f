"""Pretraining settings of Ettin (Weller et al. 2025, arXiv:2507.11412, section 3 and appendix).

Decoders are trained like the encoders, with another objective. A run has three phases: 1.7 trillion
tokens in rows of 1,024 at a constant rate, 250 billion in rows of 8,192 with rotary frequencies of
a larger base and half the rate, and 50 billion while the rate decays. They are a sequence-length
warm-up and the schedule ``warmup-stable-decay``.
"""

from typing import NamedTuple

from zoo.families.recipe import LRSchedulerConfig, OptimizerConfig, Recipe, SeqLenWarmup

# Billions of tokens of the phases.
_FIRST = 1700
_LONGER = 250
_DECAY = 50
_TOTAL = _FIRST + _LONGER + _DECAY
# Tokens of a row.
_SHORT = 1024
_LONG = 8192
_BATCH = 4608 * _SHORT
_BASE_OF_SHORT_ROWS = 10_000.0


class _Size(NamedTuple):
    rate: float  # Learning rate of the first phase.
    decay: float  # Weight decay as a part of a weight, at that rate.
    warmup: int  # Billions of tokens.


# The configurations of the released code.
_SIZES = {
    "17m": _Size(3e-3, 3e-4, 4),
    "32m": _Size(3e-3, 3e-4, 4),
    "68m": _Size(3e-3, 3e-4, 3),
    "150m": _Size(8e-4, 1e-5, 3),
    "400m": _Size(5e-4, 1e-5, 2),
    "1b": _Size(5e-4, 5e-5, 2),
}


def recipe(size: str) -> Recipe:
    """Return the settings of a size; ``tiny`` takes a few minutes on two cores."""
    if size == "tiny":
        return Recipe(
            objective="causal-lm",
            vocab_size=1024,
            seq_len=128,
            global_batch_tokens=4096,
            max_steps=800,
            config={"initializer_range": 0.05},
            optimizer=_optimizer(4e-3, weight_decay=0.01),
            lr_scheduler=LRSchedulerConfig(
                name="warmup-stable-decay", warmup_steps=80, decay_fraction=0.3
            ),
        )
    rate, decay, warmup = _SIZES[size]
    return Recipe(
        objective="causal-lm",
        seq_len=_LONG,
        seq_len_warmup=SeqLenWarmup(
            seq_len=_SHORT,
            fraction=_FIRST / _TOTAL,
            keep="tokens",
            learning_rate=rate,
            config=dict.fromkeys(("global_rope_theta", "local_rope_theta"), _BASE_OF_SHORT_ROWS),
        ),
        global_batch_tokens=_BATCH,
        max_steps=_steps(_TOTAL),
        optimizer=_optimizer(rate / 2, weight_decay=decay / rate),
        lr_scheduler=LRSchedulerConfig(
            name="warmup-stable-decay",
            warmup_steps=_steps(warmup),
            decay_fraction=_DECAY / _TOTAL,
        ),
    )


def _steps(billions: int) -> int:
    return billions * 1_000_000_000 // _BATCH


def _optimizer(rate: float, weight_decay: float) -> OptimizerConfig:
    """Return StableAdamW, which clips updates instead of gradients."""
    return OptimizerConfig(
        name="stable-adamw",
        learning_rate=rate,
        betas=(0.9, 0.98),
        eps=1e-6,
        max_grad_norm=None,
        weight_decay=weight_decay,
    )

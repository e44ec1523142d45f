"""Pretraining settings of ModernBERT (arXiv:2412.13663) and of Ettin's encoders (arXiv:2507.11412).

A run has three phases (section 2.2 of the first): 1.7 trillion tokens in rows of 1,024 at a
constant rate, 250 billion in rows of 8,192 with rotary frequencies of a larger base, and 50 billion
while the rate decays. They are a sequence-length warm-up and the schedule ``warmup-stable-decay``.
"""

from typing import Any, NamedTuple

from zoo.families.recipe import (
    LRSchedulerConfig,
    OptimizerConfig,
    Recipe,
    SeqLenWarmup,
    tiny_recipe,
)

OPTIONS = {"mask_prob": 0.3}
# billions of tokens of the phases
FIRST = 1700
LONGER = 250
DECAY = 50
# tokens of a row
SHORT = 1024
LONG = 8192
BASE_OF_SHORT_ROWS = 10_000.0


class _Size(NamedTuple):
    rates: tuple[float, float]  # of the first phase, and of the others
    decay: float  # weight decay as a part of a weight, at the highest rate
    warmup: int  # billions of tokens
    rows: int = 4608  # of a batch


# section 2.2 and appendix A; for Ettin the configurations of its released code, whose rates of the
# later phases are half of the first. Batches have their last size from the beginning
_SIZES = {
    "base": _Size((8e-4, 3e-4), 1e-5, 3),
    "large": _Size((5e-4, 5e-5), 1e-5, 2, 4928),
    "ettin-17m": _Size((3e-3, 1.5e-3), 3e-4, 4),
    "ettin-32m": _Size((3e-3, 1.5e-3), 3e-4, 4),
    "ettin-68m": _Size((3e-3, 1.5e-3), 3e-4, 3),
    "ettin-150m": _Size((8e-4, 4e-4), 1e-5, 3),
    "ettin-400m": _Size((5e-4, 2.5e-4), 1e-5, 2),
    "ettin-1b": _Size((5e-4, 2.5e-4), 5e-5, 2),
}


def recipe(size: str) -> Recipe:
    """Return the settings of a size; ``tiny`` takes a few minutes on two cores."""
    if size == "tiny":
        return _tiny()
    (first_rate, later_rate), decay, warmup, rows = _SIZES[size]
    batch = rows * SHORT
    total = FIRST + LONGER + DECAY
    bases = ["global_rope_theta"]
    if size.startswith("ettin"):
        bases.append("local_rope_theta")
    return Recipe(
        objective="masked-lm",
        objective_args=OPTIONS,
        seq_len=LONG,
        seq_len_warmup=SeqLenWarmup(
            seq_len=SHORT,
            fraction=FIRST / total,
            keep="tokens",
            learning_rate=first_rate,
            config=dict.fromkeys(bases, BASE_OF_SHORT_ROWS),
        ),
        global_batch_tokens=batch,
        max_steps=_steps(total, batch),
        optimizer=_optimizer(later_rate, weight_decay=decay / first_rate),
        lr_scheduler=LRSchedulerConfig(
            name="warmup-stable-decay",
            warmup_steps=_steps(warmup, batch),
            decay_fraction=DECAY / total,
        ),
    )


def _tiny() -> Recipe:
    """Return the same phases, with rows that grow from 16 to 64 tokens."""
    return tiny_recipe(
        "masked-lm",
        objective_args=OPTIONS,
        config={"initializer_range": 0.05},
        optimizer=_optimizer(2e-3, weight_decay=0.01),
        lr_scheduler=LRSchedulerConfig(
            name="warmup-stable-decay", warmup_steps=100, decay_fraction=0.3
        ),
    )


def _steps(billions: int, batch: int) -> int:
    return billions * 1_000_000_000 // batch


def _optimizer(rate: float, **changes: Any) -> OptimizerConfig:
    """Return StableAdamW, which clips updates instead of gradients."""
    return OptimizerConfig(
        name="stable-adamw",
        learning_rate=rate,
        betas=(0.9, 0.98),
        eps=1e-6,
        max_grad_norm=None,
        **changes,
    )

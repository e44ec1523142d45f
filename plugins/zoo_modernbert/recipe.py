"""Pretraining settings of ModernBERT (arXiv:2412.13663) and of Ettin's encoders (arXiv:2507.11412).

A run has three phases (section 2.2 of the first): 1.7 trillion tokens in rows of 1,024 at a
constant rate, 250 billion in rows of 8,192 with rotary frequencies of a larger base, and 50 billion
while the rate decays. They are a sequence-length warm-up and the schedule ``warmup-stable-decay``.
"""

from typing import NamedTuple

from zoo.families.alternating import ROTARY_BASES, three_phase_recipe
from zoo.families.recipe import LRSchedulerConfig, Recipe, stable_adamw, tiny_recipe

OPTIONS = {"mask_prob": 0.3}


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
    rates, decay, warmup, rows = _SIZES[size]
    # Only Ettin changes the base of local attention.
    bases = ROTARY_BASES if size.startswith("ettin") else ROTARY_BASES[:1]
    return three_phase_recipe(
        "masked-lm",
        rates=rates,
        decay=decay,
        warmup=warmup,
        rows=rows,
        bases=bases,
        objective_args=OPTIONS,
    )


def _tiny() -> Recipe:
    """Return the same phases, with rows that grow from 16 to 64 tokens."""
    return tiny_recipe(
        "masked-lm",
        objective_args=OPTIONS,
        config={"initializer_range": 0.05},
        optimizer=stable_adamw(2e-3, weight_decay=0.01),
        lr_scheduler=LRSchedulerConfig(
            name="warmup-stable-decay", warmup_steps=100, decay_fraction=0.3
        ),
    )

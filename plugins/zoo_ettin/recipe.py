"""Pretraining settings of Ettin (Weller et al. 2025, arXiv:2507.11412, section 3 and appendix).

Decoders are trained like the encoders, with another objective. A run has three phases: 1.7 trillion
tokens in rows of 1,024 at a constant rate, 250 billion in rows of 8,192 with rotary frequencies of
a larger base and half the rate, and 50 billion while the rate decays. They are a sequence-length
warm-up and the schedule ``warmup-stable-decay``.
"""

from typing import NamedTuple

from zoo.families.alternating import three_phase_recipe
from zoo.families.recipe import LRSchedulerConfig, Recipe, stable_adamw, tiny_causal_recipe


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
        return tiny_causal_recipe(
            optimizer=stable_adamw(4e-3, weight_decay=0.01),
            lr_scheduler=LRSchedulerConfig(
                name="warmup-stable-decay", warmup_steps=80, decay_fraction=0.3
            ),
        )
    rate, decay, warmup = _SIZES[size]
    return three_phase_recipe("causal-lm", rates=(rate, rate / 2), decay=decay, warmup=warmup)

"""Pretraining settings of GPT (Radford et al. 2018, section 4.1) and GPT-2 (ibid. 2019)."""

from typing import Any

from msgspec.structs import replace

from zoo.families.distillation import pretraining_recipe
from zoo.families.recipe import TINY_CONFIG, LRSchedulerConfig, OptimizerConfig, Recipe

OBJECTIVE = "causal-lm"
BROWN: dict[str, Any] = {"betas": (0.9, 0.95), "weight_decay": 0.1}
# GPT-2's paper tuned learning rates for each size and does not give them. Brown et al. 2020
# (arXiv:2005.14165, table 2.1) have these for models of the same sizes.
RATES = {"distil": 6e-4, "small": 6e-4, "medium": 3e-4, "large": 2.5e-4, "xl": 2e-4}

# Radford et al. 2018, section 4.1: 3 epochs suffice; warm-up takes 0.2 % of the training.
_PAPER: dict[str, Any] = {
    "max_seq_len": 512,
    "batch_size": 32,
    "num_train_epochs": 3.0,
    "warmup_ratio": 0.002,
    "optimizer": {"learning_rate": 6.25e-5, "weight_decay": 0.01},
}
# Radford et al. 2018, section 3.3. The released code (train.py) names the tokens, and section 4.1
# has the weight of the auxiliary loss, 0.5.
_INPUTS = {"task_args": {"input_tokens": ["_start_", "_delimiter_", "_classify_"], "lm_coef": 0.5}}
_TASKS = ("text-classification", "regression", "multi-label", "multiple-choice")
PRESETS = {"paper": _PAPER, "paper-inputs": {**_PAPER, "tasks": dict.fromkeys(_TASKS, _INPUTS)}}


# DistilGPT2 has the recipe of DistilBERT, with the causal loss in place of the masked one. Its
# weights are not published; these are DistilBERT's (distillation/README.md of the released code).
DISTILLATION = (
    pretraining_recipe(
        "distilgpt2",
        "Sanh et al. 2019, arXiv:1910.01108, and the README of its released code: DistilGPT2",
    ),
)


def recipe(size: str) -> Recipe:
    """Return the papers' settings, or for ``tiny`` a run of a few minutes on two cores."""
    if size == "tiny":
        settings = _recipe(32, 128, 800, 50, 4e-3, end=0.1, **BROWN)
        dry = {**TINY_CONFIG, "embedding_dropout": 0.0}
        return replace(settings, vocab_size=1024, config=dry)
    return _first() if size == "gpt" else _second(RATES[size])


def _first() -> Recipe:
    """Return the settings of GPT, section 4.1: Adam with a learning rate of 2.5e-4 after 2,000
    warm-up updates, then a cosine to 0; weight decay of 0.01; 64 rows of 512 tokens, 100 epochs."""
    # These are 3,000,000 updates for its corpus, 985 million words (Zhu et al. 2015,
    # arXiv:1506.06724, table 2), were each word a token. Gradients are clipped as in the released
    # code, which fine-tunes the model (train.py, ``max_grad_norm``)
    return _recipe(64, 512, 3_000_000, 2000, 2.5e-4, weight_decay=0.01, max_grad_norm=1.0)


def _second(rate: float) -> Recipe:
    """Return the settings of GPT-2: 512 rows of 1,024 tokens (section 2.3), and what its paper does
    not give, from Brown et al. 2020 (appendix B): Adam with betas 0.9 and 0.95, weight decay of
    0.1, gradients clipped at 1, 375 million tokens of warm-up, a cosine to a tenth, and 300 billion
    tokens in all; there, the rate stays a tenth after 260 billion.
    """
    tokens = 512 * 1024
    steps = round(300e9 / tokens)
    warmup = round(375e6 / tokens)
    return _recipe(512, 1024, steps, warmup, rate, end=0.1, max_grad_norm=1.0, **BROWN)


def _recipe(
    rows: int, length: int, steps: int, warmup: int, rate: float, end: float = 0.0, **adam: Any
) -> Recipe:
    return Recipe(
        objective=OBJECTIVE,
        seq_len=length,
        global_batch_tokens=rows * length,
        max_steps=steps,
        optimizer=OptimizerConfig(learning_rate=rate, **adam),
        lr_scheduler=LRSchedulerConfig(name="cosine", warmup_steps=warmup, min_lr_ratio=end),
    )

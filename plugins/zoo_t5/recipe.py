"""Pretraining settings of T5 (arXiv:1910.10683), its version 1.1 and mT5 (arXiv:2010.11934).

All use Adafactor with a rate of 1 / sqrt(max(n, 10,000)) in update n (section 3.1.2 of T5's
paper), without weight decay and gradient clipping, as in the released code.
"""

from typing import Any

from zoo.families.recipe import LRSchedulerConfig, OptimizerConfig, Recipe, SeqLenWarmup

OBJECTIVE = "span-corruption"
ADAFACTOR = OptimizerConfig(name="adafactor", learning_rate=0.01, max_grad_norm=None)
INVERSE_ROOT = LRSchedulerConfig(name="inverse-sqrt-constant-warmup", warmup_steps=10_000)
NO_DROPOUT = {"dropout": 0.0}  # models/t5.1.1.base.gin of the released code; mT5, section 3.2

# section 3.1.3: Adafactor with a constant learning rate of 0.001, batches of 128 rows
PRESETS = {
    "paper": {
        "max_seq_len": 512,
        "batch_size": 128,
        "num_train_epochs": 3.0,
        "optimizer": {"name": "adafactor", "learning_rate": 1e-3, "max_grad_norm": None},
        "lr_scheduler": {"name": "constant"},
    }
}


def recipe(size: str) -> Recipe:
    """Return the recipe of the papers, or for ``tiny`` one of a few minutes on two cores."""
    if size == "tiny":
        return _tiny()
    if size.startswith("mt5-"):
        # section 3.2: 1,000,000 updates with 1,024 rows of 1,024 tokens
        return _adafactor(1024, 1024, 1_000_000, config=NO_DROPOUT)
    # section 3.1.2, the paper's baseline: 2**19 updates with 128 rows of 512 tokens. The released
    # models were trained on more (section 3.7): 1,000,000 updates with 2,048 rows.
    return _adafactor(128, 512, 2**19, config=NO_DROPOUT if size.startswith("v1.1-") else {})


def _tiny() -> Recipe:
    """Return a recipe with 30 % of the tokens as noise, twice as many as in T5's paper."""
    # A model learns only from the tokens of the targets, which are few at 15 % of a row; with the
    # 50 % of the paper's table 6, it has less of a source to learn from. In the first steps,
    # targets are whole texts, each of whose tokens the source has or masks: from them, and with
    # ``mimetic_init_scale``, the decoder learns to attend to the source, without which span
    # corruption teaches it frequencies of tokens. Adafactor, whose rate is relative to the scale of
    # a weight, suits embeddings of unit scale and unscaled attention scores; its rate is 4 times
    # that of the papers, and decays
    width = {"hidden_size": 128, "intermediate_size": 256, "head_size": 32}
    return Recipe(
        objective=OBJECTIVE,
        objective_args={"noise_density": 0.3},
        config={**NO_DROPOUT, **width, "mimetic_init_scale": 0.3},
        vocab_size=1024,
        seq_len=64,
        seq_len_warmup=SeqLenWarmup(
            seq_len=32, fraction=0.2, keep="tokens", objective="mask-tokens"
        ),
        global_batch_tokens=2048,
        max_steps=1100,
        optimizer=OptimizerConfig(name="adafactor", learning_rate=0.04, max_grad_norm=None),
        lr_scheduler=LRSchedulerConfig(warmup_steps=30),
    )


def _adafactor(rows: int, length: int, steps: int, **changes: Any) -> Recipe:
    return Recipe(
        objective=OBJECTIVE,
        seq_len=length,
        global_batch_tokens=rows * length,
        max_steps=steps,
        optimizer=ADAFACTOR,
        lr_scheduler=INVERSE_ROOT,
        **changes,
    )

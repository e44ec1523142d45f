"""Pretraining recipes: the settings with which a paper or its released code trained a family.

The structs only hold values. ``zoo.training.config`` extends ``Recipe`` to the configuration of
a whole run; ``zoo.training.optim`` builds optimizers and learning-rate schedules from the rest.
"""

import math
from typing import Any, Literal

import msgspec

from zoo.errors import UsageError

_DECAYING = (
    "linear",
    "linear-decay-from-zero",
    "linear-warmup-times-decay",
    "cosine",
    "warmup-stable-decay",
)
_NEED_WARMUP = ("inverse-sqrt", "inverse-sqrt-constant-warmup")


class LRSchedulerConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A learning-rate schedule: the factor that multiplies the learning rate in each update.

    In what follows, n is the update, counted from 0, w the number of warm-up updates and T the
    number of updates of the run. Up to update w, the factor is n / w, except in
    ``linear-warmup-times-decay`` and ``inverse-sqrt-constant-warmup``.

    Attributes:
        name: the schedule after the warm-up:

            ``linear``: a line from 1 at w to ``min_lr_ratio`` at T (Liu et al. 2019,
            arXiv:1907.11692, the polynomial decay of its released code).

            ``linear-decay-from-zero``: a line from 1 at 0 to ``min_lr_ratio`` at T, whose
            warm-up replaces the first w updates: at w the factor drops to 1 - w / T, where
            ``min_lr_ratio`` is 0 (Devlin et al. 2019, arXiv:1810.04805, and Lan et al. 2020,
            arXiv:1909.11942, optimization.py of their released code).

            ``linear-warmup-times-decay``: the same line, multiplied by min(1, n / w); after w, it
            equals ``linear-decay-from-zero`` (Clark et al. 2020, arXiv:2003.10555,
            model/optimization.py of its released code).

            ``cosine``: half a cosine wave from 1 at w to ``min_lr_ratio`` at T (Loshchilov and
            Hutter 2017, arXiv:1608.03983, without restarts).

            ``inverse-sqrt``: sqrt(w / n) (Vaswani et al. 2017, arXiv:1706.03762, section 5.3,
            relative to its highest value).

            ``inverse-sqrt-constant-warmup``: 1 up to w, then sqrt(w / n) (Raffel et al. 2020,
            arXiv:1910.10683, section 3.1.2: 1 / sqrt(max(n, w)), whose highest value,
            1 / sqrt(w), is the learning rate).

            ``constant``: 1.

            ``warmup-stable-decay``: 1 up to ``decay_fraction`` before T, then down to
            ``min_lr_ratio`` at T as ``decay_type`` says (Hu et al. 2024, arXiv:2404.06395, section
            4). With x the part of the decay that is done, from 0 to 1, the factor is 1 - sqrt(x)
            for ``1-sqrt`` (Hagele et al. 2024, arXiv:2405.18392, equation 1), 1 - x for ``linear``
            and (1 + cos(pi x)) / 2 for ``cosine``, of the way down.
        warmup_steps: number of warm-up updates.
        min_lr_ratio: last factor of the linear schedules, of ``cosine`` and of
            ``warmup-stable-decay``.
        decay_fraction: fraction of the updates of ``warmup-stable-decay`` that are its decay.
        decay_type: shape of that decay.
    """

    name: Literal[
        "linear",
        "linear-decay-from-zero",
        "linear-warmup-times-decay",
        "cosine",
        "inverse-sqrt",
        "inverse-sqrt-constant-warmup",
        "constant",
        "warmup-stable-decay",
    ] = "linear"
    warmup_steps: int = 0
    min_lr_ratio: float = 0.0
    decay_fraction: float = 0.1
    decay_type: Literal["1-sqrt", "linear", "cosine"] = "1-sqrt"

    def __post_init__(self) -> None:
        if self.warmup_steps < 0:
            raise ValueError(f"warmup_steps is {self.warmup_steps}, and updates are counted from 0")
        if not 0 <= self.min_lr_ratio <= 1:
            raise ValueError(
                f"min_lr_ratio is {self.min_lr_ratio}, which is not a fraction from 0 to 1"
            )
        if self.min_lr_ratio and self.name not in _DECAYING:
            raise ValueError(
                f"min_lr_ratio is {self.min_lr_ratio}, and the schedule {self.name} has no end: "
                "leave 0"
            )
        if not 0 < self.decay_fraction <= 1:
            raise ValueError(
                f"decay_fraction is {self.decay_fraction}, which is not above 0 and at most 1"
            )
        if not self.warmup_steps and self.name in _NEED_WARMUP:
            raise ValueError(f"the schedule {self.name} needs warmup_steps above 0")


class OptimizerConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of an optimizer."""

    # ``adamw`` (Loshchilov and Hutter 2019, arXiv:1711.05101), ``adafactor`` (see
    # ``zoo.training.optim.adafactor``), ``lamb`` (see ``zoo.training.optim.adam``),
    # ``stable-adamw`` (see ``zoo.training.optim.adam``), ``adagrad`` (Duchi et al. 2011,
    # Journal of Machine Learning Research 12), or the optimizer of a plugin
    name: str = "adamw"
    # the learning rate, which the schedule multiplies. In Adafactor, relative to the root mean
    # square of each parameter.
    learning_rate: float
    # decay rates of the running means of the gradient and of its square; of AdamW, LAMB and
    # StableAdamW
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8  # added to the root of the mean square; of the same
    # Adafactor factors the mean square of parameters whose last two dimensions have at least this
    # size. The default is from the code released with Raffel et al. 2020 (arXiv:1910.10683, its
    # configuration of Mesh TensorFlow).
    min_dim_size_to_factor: int = 128
    # initial value of Adagrad's sums of squared gradients, without ``eps``, as in TensorFlow's
    # ``AdagradOptimizer``
    initial_accumulator_value: float = 0.1
    # decoupled weight decay: an update subtracts this times the learning rate from a weight, as a
    # fraction of it. Biases and norms do not decay. Adagrad has none.
    weight_decay: float = 0.0
    # correct the bias of these running means, which start at zero. Released code often does not:
    # ``AdamWeightDecayOptimizer`` of Devlin et al. 2019 (arXiv:1810.04805) and of Clark et al. 2020
    # (arXiv:2003.10555), and the LAMB of Lan et al. 2020 (arXiv:1909.11942).
    bias_correction: bool = True
    # factor of the learning rate from each layer to the one below it; see
    # ``zoo.training.optim.param_groups.layerwise_lr_scales``
    layerwise_lr_decay: float = 1.0
    # largest norm of all gradients together; ``None`` for no clipping
    max_grad_norm: float | None = 1.0
    # settings that only one optimizer has, such as amsgrad of adamw
    args: dict[str, Any] | msgspec.UnsetType = msgspec.UNSET

    def __post_init__(self) -> None:
        for name in (
            "learning_rate",
            "eps",
            "initial_accumulator_value",
            "layerwise_lr_decay",
            "max_grad_norm",
        ):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise ValueError(f"{name} is {value}, which is not positive and finite")
        if not 0 <= self.weight_decay < math.inf:
            raise ValueError(f"weight_decay is {self.weight_decay}, not 0 or more and finite")
        if not all(0 <= beta < 1 for beta in self.betas):
            raise ValueError(f"betas are {self.betas}, and each is at least 0 and less than 1")


class SeqLenWarmup(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Shorter rows in the first part of a run, with another objective if one is named."""

    seq_len: int  # number of tokens per row
    fraction: float = 0.9  # fraction of the steps that have such rows
    # what a step has as many of as later: ``rows`` (Devlin et al. 2019, arXiv:1810.04805, appendix
    # A.2), or ``tokens``, so that there are more rows.
    keep: Literal["rows", "tokens"] = "rows"
    # name of the objective of these rows, of the same model and loss; ``None`` for the run's
    objective: str | None = None
    # options of the objective that is named
    objective_args: dict[str, Any] = msgspec.field(default_factory=dict)
    # learning rate of these steps, which the schedule multiplies; ``None`` for the optimizer's
    learning_rate: float | None = None
    # fields of the model's configuration that differ in these steps. They change what the weights
    # compute, such as a base of rotary frequencies; see ``Family.fields_by_stage``.
    config: dict[str, Any] = msgspec.field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.learning_rate is not None and not 0 < self.learning_rate < math.inf:
            raise ValueError(f"learning_rate is {self.learning_rate}, not positive and finite")


class Recipe(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Pretraining settings of a model size, from the paper or the released code."""

    objective: str  # name of the pretraining objective
    objective_args: dict[str, Any] = msgspec.field(default_factory=dict)  # options of the objective
    # fields of the model's configuration that differ from the size's
    config: dict[str, Any] = msgspec.field(default_factory=dict)
    vocab_size: int | None = None  # vocabulary size of a tokenizer that is trained for the run
    seq_len: int = 128  # number of tokens per row
    # shorter rows in the first steps; ``None`` for one length throughout
    seq_len_warmup: SeqLenWarmup | None = None
    # number of tokens per step, padding included, over all micro-batches and ranks; with
    # ``seq_len_warmup`` that keeps the number of rows, of the steps after it
    global_batch_tokens: int = 4096
    max_steps: int = 1000  # number of optimizer steps
    optimizer: OptimizerConfig  # settings of the optimizer
    lr_scheduler: LRSchedulerConfig = LRSchedulerConfig()  # learning-rate schedule
    # decay of an exponential moving average of the weights, which then become the final model;
    # ``None`` for no average
    ema_decay: float | None = None


# Devlin et al. 2019, arXiv:1810.04805, section 3.1: 15 % of the tokens are predicted; 80 % of them
# become the mask and 10 % a random token
MASKING = {"mask_prob": 0.15, "mask_token_prob": 0.8, "random_token_prob": 0.1}

# ibid., appendix A.2, and optimization.py of the released code: 1e-6, and no bias correction
ADAMW_WITHOUT_BIAS_CORRECTION = OptimizerConfig(
    learning_rate=1e-4,
    betas=(0.9, 0.999),
    weight_decay=0.01,
    eps=1e-6,
    bias_correction=False,
    max_grad_norm=1.0,
)


def fairseq_adam(
    learning_rate: float,
    *,
    betas: tuple[float, float] = (0.9, 0.98),
    max_grad_norm: float | None = None,
) -> OptimizerConfig:
    """Return the optimizer of fairseq's masked language models.

    Liu et al. 2019, arXiv:1907.11692, table 9: betas of 0.9 and 0.98, epsilon of 1e-6, weight decay
    of 0.01, and no clipping.
    """
    return OptimizerConfig(
        learning_rate=learning_rate,
        betas=betas,
        eps=1e-6,
        weight_decay=0.01,
        max_grad_norm=max_grad_norm,
    )


def stable_adamw(learning_rate: float, *, weight_decay: float) -> OptimizerConfig:
    """Return StableAdamW, which clips updates instead of gradients."""
    return OptimizerConfig(
        name="stable-adamw",
        learning_rate=learning_rate,
        betas=(0.9, 0.98),
        eps=1e-6,
        max_grad_norm=None,
        weight_decay=weight_decay,
    )


def million_steps(objective: str, **changes: Any) -> Recipe:
    """Return the settings of the first masked language model, with another objective.

    Devlin et al. 2019, arXiv:1810.04805, appendix A.2: 1,000,000 steps of 256 rows.

    Args:
        objective: name of the objective.
        **changes: other fields of ``Recipe``.
    """
    settings: dict[str, Any] = {
        "seq_len": 512,
        "global_batch_tokens": 256 * 512,
        "max_steps": 1_000_000,
        "optimizer": ADAMW_WITHOUT_BIAS_CORRECTION,
        "lr_scheduler": LRSchedulerConfig(name="linear-decay-from-zero", warmup_steps=10_000),
    }
    return Recipe(objective=objective, **{**settings, **changes})


def causal_recipe(
    *,
    learning_rate: float,
    global_batch_tokens: int,
    max_steps: int,
    warmup_steps: int,
    seq_len: int = 2048,
    weight_decay: float = 0.1,
    schedule: Literal["cosine", "linear"] = "cosine",
) -> Recipe:
    """Return the settings of a causal language model, of which most papers change some numbers.

    Brown et al. 2020, arXiv:2005.14165, appendix B: AdamW with betas 0.9 and 0.95 and weight decay
    of 0.1, gradients clipped at 1, and a cosine to a tenth of the learning rate.

    Args:
        learning_rate: highest learning rate.
        global_batch_tokens: see ``Recipe``.
        max_steps: see ``Recipe``.
        warmup_steps: number of steps until the highest rate.
        seq_len: see ``Recipe``.
        weight_decay: see ``OptimizerConfig``.
        schedule: form of the way down to a tenth.
    """
    return Recipe(
        objective="causal-lm",
        seq_len=seq_len,
        global_batch_tokens=global_batch_tokens,
        max_steps=max_steps,
        optimizer=OptimizerConfig(
            learning_rate=learning_rate, betas=(0.9, 0.95), weight_decay=weight_decay
        ),
        lr_scheduler=LRSchedulerConfig(name=schedule, warmup_steps=warmup_steps, min_lr_ratio=0.1),
    )


def require_tiny(size: str) -> None:
    """Refuse the sizes of a family whose papers do not state how its models were pretrained.

    Raises:
        UsageError: the size is not ``tiny``.
    """
    if size != "tiny":
        raise UsageError(
            f"the papers do not state all settings of the pretraining of {size}",
            "choose the size tiny, or set them in a configuration file",
        )


# For a model that is 128 wide: products have the initial scale that 0.02 gives them at a width of
# 768, and a few million tokens need no dropout.
TINY_CONFIG = {"dropout": 0.0, "attention_dropout": 0.0, "initializer_range": 0.05}


def tiny_recipe(
    objective: str,
    *,
    learning_rate: float = 2e-3,
    betas: tuple[float, float] = (0.9, 0.999),
    **changes: Any,
) -> Recipe:
    """Return a recipe of a masked language model that learns something in minutes on two cores.

    A masked language model begins on a plateau, where its predictions only follow the
    frequencies of tokens. Short rows, a small vocabulary and large batches make it leave the
    plateau within a few million tokens. From then on, rows have their full length, so that all
    positions are trained. ``benchmarks/tiny_recipes.py`` measures what the recipes learn.

    Args:
        objective: name of the objective.
        learning_rate: learning rate of AdamW.
        betas: decay rates of AdamW's running means.
        **changes: other fields of ``Recipe``; ``config`` usually has ``TINY_CONFIG``.
    """
    settings: dict[str, Any] = {
        "vocab_size": 600,
        "seq_len": 64,
        "seq_len_warmup": SeqLenWarmup(seq_len=16, fraction=0.4, keep="tokens"),
        "global_batch_tokens": 8192,
        "max_steps": 1000,
        "optimizer": OptimizerConfig(learning_rate=learning_rate, betas=betas, weight_decay=0.01),
        "lr_scheduler": LRSchedulerConfig(warmup_steps=100),
    }
    return Recipe(objective=objective, **{**settings, **changes})


def tiny_causal_recipe(**changes: Any) -> Recipe:
    """Return a recipe of a causal language model that learns something in minutes on two cores.

    Args:
        **changes: fields of ``Recipe``.
    """
    settings: dict[str, Any] = {
        "vocab_size": 1024,
        "seq_len": 128,
        "global_batch_tokens": 4096,
        "max_steps": 800,
        "config": {"initializer_range": 0.05},
        "optimizer": OptimizerConfig(learning_rate=4e-3, weight_decay=0.01),
        "lr_scheduler": LRSchedulerConfig(warmup_steps=80),
    }
    return Recipe(objective="causal-lm", **{**settings, **changes})


def tiny_seq2seq_recipe(objective: str, *, learning_rate: float = 3e-3, **changes: Any) -> Recipe:
    """Return a recipe of an encoder-decoder that learns something in minutes on two cores.

    The decoder first has to learn to copy what the source has. Short rows teach it within a few
    hundred steps.

    Args:
        objective: name of the objective.
        learning_rate: learning rate of AdamW.
        **changes: other fields of ``Recipe``.
    """
    return tiny_recipe(
        objective,
        **{
            "config": TINY_CONFIG,
            "seq_len_warmup": SeqLenWarmup(seq_len=32, fraction=0.4, keep="tokens"),
            "global_batch_tokens": 2048,
            "learning_rate": learning_rate,
            "betas": (0.9, 0.98),
            **changes,
        },
    )

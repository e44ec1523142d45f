"""Families in which blocks with global attention alternate with blocks with local attention.

Warner et al. 2024, arXiv:2412.13663, section 2.1; decoders of the same blocks are Weller et al.
2025, arXiv:2507.11412, section 3.
"""

from collections.abc import Mapping
from typing import Any

from zoo.families.config import Activation, same_names
from zoo.families.config.rope import (
    RopeConfig,
    refused_rope_keys,
    rope_keys,
    rope_values,
    unsaid_rope_keys,
)
from zoo.families.recipe import LRSchedulerConfig, Recipe, SeqLenWarmup, stable_adamw

# The Hub's words for what a block attends to: all tokens, or a window.
FULL = "full_attention"
SLIDING = "sliding_attention"
# Names of the configuration's fields with the bases of rotary frequencies.
ROTARY_BASES = ("global_rope_theta", "local_rope_theta")


class AlternatingConfig(RopeConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The fields of such a family, with the values of the first base model."""

    vocab_size: int = 50368  # number of tokens in the vocabulary
    hidden_size: int = 768
    num_layers: int = 22
    num_heads: int = 12
    intermediate_size: int = 1152
    max_positions: int = 8192
    # every so many blocks, from the first on, attention is global
    global_attn_every_n_layers: int = 3
    # number of tokens of a window that has a token in its middle
    local_attention: int = 128
    global_rope_theta: float = 160_000.0  # base of the rotary frequencies of global attention
    local_rope_theta: float = 10_000.0  # base of the rotary frequencies of local attention
    dropout: float = 0.0  # dropout probability of the feed-forward networks
    # dropout probability of the attention weights and of their output
    attention_dropout: float = 0.0
    embedding_dropout: float = 0.0  # dropout probability of the embeddings
    classifier_dropout: float = 0.0  # dropout probability before a classifier
    classifier_activation: Activation = "gelu"  # activation function of the heads
    layer_norm_eps: float = 1e-5  # epsilon of the layer norms
    pad_token_id: int | None = 50283

    @property
    def reach(self) -> int:
        """Half of ``local_attention``: the number of tokens on one side of a token."""
        return self.local_attention // 2

    @property
    def layer_types(self) -> list[str]:
        """Kind of the attention of each block, in the Hub's words."""
        return [
            SLIDING if layer % self.global_attn_every_n_layers else FULL
            for layer in range(self.num_layers)
        ]

    @property
    def local_layers(self) -> list[bool]:
        """For each block, whether a token only attends to a window."""
        return [layer_type == SLIDING for layer_type in self.layer_types]


# Width, inner width and number of blocks by size (arXiv:2507.11412, table 1), of encoders and
# decoders alike.
PAIRED_SHAPES: Mapping[str, tuple[int, int, int]] = {
    "17m": (256, 384, 7),
    "32m": (384, 576, 10),
    "68m": (512, 768, 19),
    "150m": (768, 1152, 22),
    "400m": (1024, 2624, 28),
    "1b": (1792, 3840, 28),
}
_GLOBAL = f"rope_parameters.{FULL}"  # Group of the keys of global attention's rotation.
KEYS: Mapping[str, str] = {
    **same_names("vocab_size", "hidden_size", "intermediate_size", "pad_token_id"),
    **same_names("attention_dropout", "embedding_dropout", "classifier_dropout"),
    **same_names("global_attn_every_n_layers", "local_attention"),
    **same_names(*ROTARY_BASES),
    **same_names("classifier_activation", "initializer_range"),
    "num_hidden_layers": "num_layers",
    "num_attention_heads": "num_heads",
    "max_position_embeddings": "max_positions",
    "hidden_activation": "activation",
    "mlp_dropout": "dropout",
    "norm_eps": "layer_norm_eps",
    "tie_word_embeddings": "tie_embeddings",
    **rope_keys(_GLOBAL),
}
# The scaling is the one of global attention: windows are as long as before.
ROPE_VALUES = rope_values(_GLOBAL)
UNSAID_ROPE_KEYS = unsaid_rope_keys(_GLOBAL)
FIXED: Mapping[str, tuple[Any, ...]] = {
    "attention_bias": (False,),
    "mlp_bias": (False,),
    "norm_bias": (False,),
    "classifier_bias": (False,),
    "decoder_bias": (True,),
    **refused_rope_keys(_GLOBAL),
    f"rope_parameters.{SLIDING}.rope_type": (None, "default"),
}
IGNORED: Mapping[str, str] = {
    "initializer_cutoff_factor": "of new weights",
    "deterministic_flash_attn": "an implementation choice",
    "reference_compile": "an implementation choice",
    "repad_logits_with_grad": "an implementation choice",
    "sparse_prediction": "chooses outputs of training, not values",
    "sparse_pred_ignore_index": "chooses outputs of training, not values",
    "layer_norm_eps": "an old name of norm_eps, which no implementation reads",
    "position_embedding_type": "read by no implementation: positions are rotary",
}
FOLLOWS: Mapping[str, str] = {
    "layer_types": "layer_types",
    "head_dim": "head_size",
    "sliding_window": "reach",
}
# Versions of transformers before 5 read the keys of the bases, later ones write these.
BASES: Mapping[str, str] = {
    f"rope_parameters.{FULL}.rope_theta": "global_rope_theta",
    f"rope_parameters.{SLIDING}.rope_theta": "local_rope_theta",
}


def change_rotary_bases(model: Any, config: Any) -> None:
    """Give a model with an ``AttentionPattern`` the bases of a configuration."""
    from zoo.nn.positions import make_rotary

    rotary = make_rotary(config, config.head_size, config.global_rope_theta)
    model.rotary.base = rotary.base
    model.rotary.scaling = rotary.scaling
    model.pattern.rotary.base = config.local_rope_theta


def three_phase_recipe(
    objective: str,
    *,
    rates: tuple[float, float],
    decay: float,
    warmup: int,
    rows: int = 4608,
    bases: tuple[str, ...] = ROTARY_BASES,
    **changes: Any,
) -> Recipe:
    """Return the settings of a run of three phases (arXiv:2412.13663, section 2.2).

    1.7 trillion tokens are in rows of 1,024 at a constant rate, 250 billion in rows of 8,192 with
    rotary frequencies of a larger base, and 50 billion follow while the rate decays. They are a
    sequence-length warm-up and the schedule ``warmup-stable-decay``.

    Args:
        objective: name of the objective.
        rates: learning rates of the first phase and of the others.
        decay: weight decay as a part of a weight, at the first rate.
        warmup: billions of tokens until the first rate.
        rows: number of short rows of a batch.
        bases: fields of the bases that are smaller for short rows.
        **changes: other fields of ``Recipe``.
    """
    first_rate, later_rate = rates
    batch = rows * 1024
    steps = 2_000_000_000_000 // batch
    return Recipe(
        objective=objective,
        seq_len=8192,
        seq_len_warmup=SeqLenWarmup(
            seq_len=1024,
            fraction=1700 / 2000,
            keep="tokens",
            learning_rate=first_rate,
            config=dict.fromkeys(bases, 10_000.0),
        ),
        global_batch_tokens=batch,
        max_steps=steps,
        optimizer=stable_adamw(later_rate, weight_decay=decay / first_rate),
        lr_scheduler=LRSchedulerConfig(
            name="warmup-stable-decay",
            warmup_steps=warmup * 1_000_000_000 // batch,
            decay_fraction=50 / 2000,
        ),
        **changes,
    )

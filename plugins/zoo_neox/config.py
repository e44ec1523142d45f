"""GPT-NeoX's configuration and the keys of its Hub configuration."""

from typing import Any

from zoo.families.config import ConfigMap, same_names
from zoo.families.config.keys import COMMON
from zoo.families.config.rope import (
    GROUP,
    OLD_GROUP,
    OLD_ROPE_KEYS,
    RopeConfig,
    refused_rope_keys,
    rope_keys,
    rope_values,
    unsaid_rope_keys,
)


class NeoxConfig(RopeConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Configuration of a GPT-NeoX; the defaults are the Hub's, those of GPT-NeoX-20B.

    Attributes:
        rotary_fraction: fraction of a head's width that is rotated by the position.
        rope_theta: base of the rotary frequencies.
        parallel: whether attention and feed-forward network of a block read the same input, and
            not one after the other.
        attention_bias: whether the linear maps of attention have biases.
        dropout: dropout probability of the embeddings and of what is added to the residual path.
        classifier_dropout: dropout probability of the input of token classification.
        layer_norm_eps: epsilon of the layer norms.
    """

    vocab_size: int = 50432
    hidden_size: int = 6144
    num_layers: int = 44
    num_heads: int = 64
    intermediate_size: int = 24576
    max_positions: int = 2048
    rotary_fraction: float = 0.25
    rope_theta: float = 10_000.0
    parallel: bool = True
    attention_bias: bool = True
    dropout: float = 0.0
    classifier_dropout: float = 0.1
    layer_norm_eps: float = 1e-5
    tie_embeddings: bool = False

    @property
    def embedding_dropout(self) -> float:
        """Dropout probability of the embeddings."""
        return self.dropout

    @property
    def rotary_width(self) -> int:
        """Number of components of a head that are rotated."""
        return int(self.head_size * self.rotary_fraction)


_THETA = "rope_parameters.rope_theta"
_FRACTION = "rope_parameters.partial_rotary_factor"
CONFIG_MAP = ConfigMap(
    keys={
        **COMMON,
        **same_names("vocab_size", "intermediate_size", "attention_bias", "attention_dropout"),
        **same_names("initializer_range", "pad_token_id", "layer_norm_eps"),
        **same_names("classifier_dropout"),
        "hidden_act": "activation",
        "hidden_dropout": "dropout",
        "use_parallel_residual": "parallel",
        "tie_word_embeddings": "tie_embeddings",
        _THETA: "rope_theta",
        _FRACTION: "rotary_fraction",
        **rope_keys(),
    },
    fixed=refused_rope_keys(GROUP, OLD_GROUP),
    values=rope_values(),
    follows={"head_dim": "head_size"},
    unsaid=("head_dim", *unsaid_rope_keys()),
    aliases={
        "rotary_emb_base": _THETA,
        "rope_theta": _THETA,
        "rotary_pct": _FRACTION,
        **OLD_ROPE_KEYS,
    },
    both=("rotary_emb_base", "rotary_pct"),  # Versions of transformers before 5 read them.
)


def _pythia(layers: int, width: int, heads: int, **changes: Any) -> NeoxConfig:
    return NeoxConfig(
        num_layers=layers,
        hidden_size=width,
        num_heads=heads,
        intermediate_size=4 * width,
        **{"vocab_size": 50304, **changes},
    )


SIZES = {
    "tiny": _pythia(2, 128, 4, vocab_size=1000, max_positions=512),
    "pythia-14m": _pythia(6, 128, 4),
    "pythia-70m": _pythia(6, 512, 8),
    "pythia-160m": _pythia(12, 768, 12),
    "pythia-410m": _pythia(24, 1024, 16),
    "pythia-1b": _pythia(16, 2048, 8),
    "pythia-1.4b": _pythia(24, 2048, 16),
    "pythia-2.8b": _pythia(32, 2560, 32),
    "pythia-6.9b": _pythia(32, 4096, 32, vocab_size=50432),
    "pythia-12b": _pythia(36, 5120, 40, vocab_size=50688),
    "20b": NeoxConfig(),
}

"""Mistral's configuration and the keys of its Hub configuration."""

from typing import ClassVar

from zoo.families.config import Config, ConfigMap, same_names
from zoo.families.config.keys import COMMON


class MistralConfig(Config, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Configuration of a Mistral; the defaults are the Hub's.

    Attributes:
        vocab_size: number of tokens in the vocabulary.
        hidden_size: width of the hidden state.
        num_layers: number of blocks.
        num_heads: number of attention heads per block.
        num_kv_heads: number of heads of keys and values.
        intermediate_size: inner width of the feed-forward networks, of input and gate each.
        max_positions: number of tokens of the longest row.
        sliding_window: number of tokens that a token attends to, itself included; ``None`` for all.
        rope_theta: base of the rotary frequencies.
        attention_dropout: dropout probability of the attention weights.
        layer_norm_eps: epsilon of the norms.
        initializer_range: standard deviation of initial weights.
        pad_token_id: the padding token, or ``None``.
        tie_embeddings: use the token embeddings as output embeddings.
        dropout: dropout probability of what is added to the residual path: none.
    """

    dropout: ClassVar[float] = 0.0

    vocab_size: int = 32000
    hidden_size: int = 4096
    num_layers: int = 32
    num_heads: int = 32
    num_kv_heads: int = 8
    intermediate_size: int = 14336
    max_positions: int = 131072
    sliding_window: int | None = 4096
    rope_theta: float = 10_000.0
    attention_dropout: float = 0.0
    layer_norm_eps: float = 1e-6
    initializer_range: float = 0.02
    pad_token_id: int | None = None
    tie_embeddings: bool = False

    @property
    def head_size(self) -> int:
        """Width of an attention head."""
        return self.hidden_size // self.num_heads


THETA = {"rope_parameters.rope_theta": "rope_theta"}
CONFIG_MAP = ConfigMap(
    keys={
        **COMMON,
        **same_names("vocab_size", "intermediate_size", "rope_theta", "attention_dropout"),
        **same_names("initializer_range", "pad_token_id", "sliding_window"),
        "num_key_value_heads": "num_kv_heads",
        "rms_norm_eps": "layer_norm_eps",
        "tie_word_embeddings": "tie_embeddings",
    },
    fixed={"hidden_act": ("silu",), "rope_parameters.rope_type": (None, "default")},
    follows={"head_dim": "head_size"},
    aliases=THETA,
    both=THETA.keys(),  # versions of transformers before 5 read the key, later ones write this
)

SIZES = {
    "tiny": MistralConfig(
        vocab_size=1000,
        hidden_size=128,
        num_layers=2,
        num_heads=4,
        num_kv_heads=2,
        intermediate_size=256,
        max_positions=512,
        sliding_window=48,
    ),
    "7b": MistralConfig(max_positions=32768, layer_norm_eps=1e-5),
}

"""Configuration of Ettin's decoders and the keys of their Hub configuration."""

from typing import Any

from zoo.families.config import Activation, Config, ConfigMap, same_names

FULL = "full_attention"
SLIDING = "sliding_attention"


class EttinConfig(Config, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Configuration of a decoder; the defaults are the Hub's.

    Attributes:
        vocab_size: number of tokens in the vocabulary.
        hidden_size: width of the hidden state.
        num_layers: number of blocks.
        num_heads: number of attention heads per block.
        intermediate_size: inner width of the feed-forward networks, of input and gate each.
        max_positions: number of tokens of the longest row.
        activation: activation function of the feed-forward networks.
        global_attn_every_n_layers: every so many blocks, from the first on, attention is global.
        local_attention: twice the number of tokens that a token attends to in local attention,
            itself included.
        global_rope_theta: base of the rotary frequencies of global attention.
        local_rope_theta: base of the rotary frequencies of local attention.
        dropout: dropout probability of the feed-forward networks.
        attention_dropout: dropout probability of the attention weights and of their output.
        embedding_dropout: dropout probability of the embeddings.
        classifier_dropout: dropout probability before a classifier.
        classifier_activation: activation function of the heads.
        layer_norm_eps: epsilon of the layer norms.
        initializer_range: standard deviation of initial weights.
        pad_token_id: the padding token, which the Hub requires.
        tie_embeddings: use the token embeddings as output embeddings.
    """

    vocab_size: int = 50368
    hidden_size: int = 768
    num_layers: int = 22
    num_heads: int = 12
    intermediate_size: int = 1152
    max_positions: int = 8192
    activation: Activation = "gelu"
    global_attn_every_n_layers: int = 3
    local_attention: int = 128
    global_rope_theta: float = 160_000.0
    local_rope_theta: float = 10_000.0
    dropout: float = 0.0
    attention_dropout: float = 0.0
    embedding_dropout: float = 0.0
    classifier_dropout: float = 0.0
    classifier_activation: Activation = "gelu"
    layer_norm_eps: float = 1e-5
    initializer_range: float = 0.02
    pad_token_id: int = 50283
    tie_embeddings: bool = True

    def __post_init__(self) -> None:
        """Check that a token attends to itself, and that heads can be rotated."""
        super().__post_init__()
        self.refuse(
            {
                f"local_attention {self.local_attention} is less than 2": self.local_attention < 2,
                f"heads of {self.head_size} components cannot be rotated": self.head_size % 2 == 1,
            }
        )

    @property
    def head_size(self) -> int:
        """Width of an attention head."""
        return self.hidden_size // self.num_heads

    @property
    def window(self) -> int:
        """Number of tokens that a token attends to in local attention, itself included."""
        return self.local_attention // 2

    @property
    def layer_types(self) -> list[str]:
        """Kind of the attention of each block, in the Hub's words."""
        return [
            SLIDING if layer % self.global_attn_every_n_layers else FULL
            for layer in range(self.num_layers)
        ]


_BASES = {
    f"rope_parameters.{FULL}.rope_theta": "global_rope_theta",
    f"rope_parameters.{SLIDING}.rope_theta": "local_rope_theta",
}
CONFIG_MAP = ConfigMap(
    keys={
        **same_names("vocab_size", "hidden_size", "intermediate_size", "pad_token_id"),
        **same_names("attention_dropout", "embedding_dropout", "classifier_dropout"),
        **same_names("global_attn_every_n_layers", "local_attention"),
        **same_names("global_rope_theta", "local_rope_theta"),
        **same_names("classifier_activation", "initializer_range"),
        "num_hidden_layers": "num_layers",
        "num_attention_heads": "num_heads",
        "max_position_embeddings": "max_positions",
        "hidden_activation": "activation",
        "mlp_dropout": "dropout",
        "norm_eps": "layer_norm_eps",
        "tie_word_embeddings": "tie_embeddings",
    },
    fixed={
        "attention_bias": (False,),
        "mlp_bias": (False,),
        "norm_bias": (False,),
        "classifier_bias": (False,),
        "decoder_bias": (True,),
        "causal_mask": (None, True),
        "is_causal": (None, True),
        "rope_scaling": (None,),
        f"rope_parameters.{FULL}.rope_type": (None, "default"),
        f"rope_parameters.{SLIDING}.rope_type": (None, "default"),
    },
    ignored={
        "classifier_pooling": "of the encoder; the last token classifies a text",
        "initializer_cutoff_factor": "of new weights",
        "deterministic_flash_attn": "an implementation choice",
        "reference_compile": "an implementation choice",
        "repad_logits_with_grad": "an implementation choice",
        "sparse_prediction": "chooses outputs of training, not values",
        "sparse_pred_ignore_index": "chooses outputs of training, not values",
        "layer_norm_eps": "an old name of norm_eps, which no implementation reads",
        "position_embedding_type": "read by no implementation: positions are rotary",
    },
    follows={"layer_types": "layer_types", "head_dim": "head_size", "sliding_window": "window"},
    aliases=_BASES,
    both=_BASES.keys(),  # Versions of transformers before 5 read the keys, later ones write these.
)

# Weller et al. 2025, table 1, and the configurations of its released code, which rotate local
# attention by the frequencies of global attention
_PUBLISHED = {
    "17m": (256, 384, 7),
    "32m": (384, 576, 10),
    "68m": (512, 768, 19),
    "150m": (768, 1152, 22),
    "400m": (1024, 2624, 28),
    "1b": (1792, 3840, 28),
}


def _published(width: int, inner: int, layers: int, **changes: Any) -> EttinConfig:
    """Return a configuration with heads of 64 components."""
    return EttinConfig(
        hidden_size=width,
        intermediate_size=inner,
        num_layers=layers,
        num_heads=width // 64,
        local_rope_theta=160_000.0,
        **changes,
    )


SIZES = {
    "tiny": _published(
        128, 192, 4, vocab_size=1000, max_positions=512, local_attention=16, pad_token_id=3
    )
}
for _name, _shape in _PUBLISHED.items():
    SIZES[_name] = _published(*_shape)

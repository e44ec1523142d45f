"""MPNet's configuration, and what the keys of its Hub configuration mean."""

from typing import Final, Literal

from zoo.config import Activation, Config, ConfigMap

# Fixed in the released code, whatever a configuration says.
PAD: Final = 1
BUCKETS: Final = 32


class MPNetConfig(Config, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The shape of an MPNet; the defaults are the Hub's.

    Attributes:
        vocab_size: rows of the token embedding.
        hidden_size: width of every token's vector between blocks.
        num_layers: encoder blocks.
        num_heads: attention heads in each; they share ``hidden_size``.
        intermediate_size: inner width of the feed-forward networks.
        max_positions: rows of the position embedding; the longest input is ``PAD + 1`` shorter.
        activation: of the feed-forward networks.
        dropout: probability of dropping an element of a block's output in training.
        attention_dropout: probability of dropping an attention weight in training.
        layer_norm_eps: added to the variance in every norm.
        initializer_range: deviation of fresh weights.
        pad_token_id: the token that takes up no position.
        pooler: whether the bare trunk has a pooler.
    """

    vocab_size: int = 30527
    hidden_size: int = 768
    num_layers: int = 12
    num_heads: int = 12
    intermediate_size: int = 3072
    max_positions: int = 512
    activation: Activation = "gelu"
    dropout: float = 0.1
    attention_dropout: float = 0.1
    layer_norm_eps: float = 1e-12
    initializer_range: float = 0.02
    pad_token_id: Literal[1] = PAD
    pooler: bool = True

    def __post_init__(self) -> None:
        """Refuse a shape that cannot be built.

        Raises:
            ValueError: the heads do not share the width, or no position is left for a token.
        """
        if self.num_heads < 1 or self.hidden_size % self.num_heads:
            raise ValueError(f"{self.num_heads} heads cannot share the width {self.hidden_size}")
        if self.max_positions < PAD + 2:
            raise ValueError(f"{self.max_positions} positions leave none for a token")


CONFIG_MAP = ConfigMap(
    keys={
        "vocab_size": "vocab_size",
        "hidden_size": "hidden_size",
        "num_hidden_layers": "num_layers",
        "num_attention_heads": "num_heads",
        "intermediate_size": "intermediate_size",
        "max_position_embeddings": "max_positions",
        "hidden_act": "activation",
        "hidden_dropout_prob": "dropout",
        "attention_probs_dropout_prob": "attention_dropout",
        "layer_norm_eps": "layer_norm_eps",
        "initializer_range": "initializer_range",
        "pad_token_id": "pad_token_id",
    },
    fixed={
        "relative_attention_num_buckets": (BUCKETS,),
        "tie_word_embeddings": (True,),
        "is_encoder_decoder": (False,),
    },
)

BASE = MPNetConfig(max_positions=514, layer_norm_eps=1e-5)
TINY = MPNetConfig(hidden_size=128, num_layers=2, num_heads=2, intermediate_size=512)
SIZES = {"tiny": TINY, "base": BASE}

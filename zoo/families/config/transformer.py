"""The fields that configurations of most Transformers have."""

from typing import Any, Self

from zoo.families.config.base import Activation, Config


class TransformerConfig(Config, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The fields of a stack of Transformer blocks. A family gives each a default."""

    hidden_size: int  # width of the hidden state
    num_layers: int  # number of blocks
    num_heads: int  # number of attention heads per block
    # inner width of the feed-forward networks; of input and gate each, if there is a gate
    intermediate_size: int
    max_positions: int  # number of position embeddings, or of tokens of the longest row
    activation: Activation = "gelu"  # activation function of the feed-forward networks
    attention_dropout: float = 0.0  # dropout probability of the attention weights
    initializer_range: float = 0.02  # standard deviation of initial weights
    pad_token_id: int | None = None  # the padding token, or ``None``
    tie_embeddings: bool = True  # use the token embeddings as output embeddings

    @property
    def head_size(self) -> int:
        """Width of an attention head."""
        return self.hidden_size // self.num_heads

    @classmethod
    def sized(cls, layers: int, width: int, **changes: Any) -> Self:
        """Return a configuration with heads of width 64 and an FFN of four times the width.

        Args:
            layers: number of blocks.
            width: width of the hidden state.
            **changes: other fields.
        """
        proportions = {"num_heads": width // 64, "intermediate_size": 4 * width}
        return cls(**{"num_layers": layers, "hidden_size": width, **proportions, **changes})

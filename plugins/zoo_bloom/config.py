"""BLOOM's configuration and the keys of its Hub configuration."""

from typing import ClassVar

from zoo.families.config import Config, ConfigMap, same_names


class BloomConfig(Config, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Configuration of a BLOOM; the defaults are the Hub's, which no released model has.

    Attributes:
        vocab_size: number of tokens in the vocabulary.
        hidden_size: width of the hidden state.
        num_layers: number of blocks.
        num_heads: number of attention heads per block.
        dropout: dropout probability of what is added to the residual path.
        attention_dropout: dropout probability of the attention weights.
        layer_norm_eps: epsilon of the layer norms.
        initializer_range: standard deviation of initial weights.
        pad_token_id: the padding token, or ``None``.
        classifier_dropout: dropout probability of the input of token classification; ``None`` for
            ``dropout``.
        embedding_dropout: dropout probability of the embeddings: none.
        activation: activation function of the feed-forward networks.
    """

    embedding_dropout: ClassVar[float] = 0.0
    activation: ClassVar[str] = "gelu_new"

    vocab_size: int = 250880
    hidden_size: int = 64
    num_layers: int = 2
    num_heads: int = 8
    dropout: float = 0.0
    attention_dropout: float = 0.0
    layer_norm_eps: float = 1e-5
    initializer_range: float = 0.02
    pad_token_id: int | None = None
    classifier_dropout: float | None = None

    @property
    def intermediate_size(self) -> int:
        """Inner width of the feed-forward networks."""
        return 4 * self.hidden_size


_FUSION = "an implementation choice of the code that trained it; results are equal"
CONFIG_MAP = ConfigMap(
    keys={
        **same_names("vocab_size", "hidden_size", "initializer_range", "pad_token_id"),
        "n_layer": "num_layers",
        "n_head": "num_heads",
        "hidden_dropout": "dropout",
        "attention_dropout": "attention_dropout",
        "classifier_dropout": "classifier_dropout",
        "layer_norm_epsilon": "layer_norm_eps",
    },
    fixed={
        "apply_residual_connection_post_layernorm": (False,),
        "tie_word_embeddings": (True,),
    },
    ignored={
        "pretraining_tp": "splits products over devices; results are equal",
        "slow_but_exact": "splits products over devices; results are equal",
        "seq_length": "the length of rows in pretraining; attention has no limit",
        "n_inner": "always four times the width",
        "offset_alibi": "read by no implementation",
        "is_decoder": "attention is always causal",
        "attention_softmax_in_fp32": _FUSION,
        "bias_dropout_fusion": _FUSION,
        "masked_softmax_fusion": _FUSION,
        "skip_bias_add": _FUSION,
        "skip_bias_add_qkv": _FUSION,
    },
    aliases={"n_embed": "hidden_size"},
    unsaid=("classifier_dropout",),
)


def _sized(layers: int, width: int, heads: int) -> BloomConfig:
    return BloomConfig(num_layers=layers, hidden_size=width, num_heads=heads, pad_token_id=3)


SIZES = {
    "tiny": BloomConfig(vocab_size=1000, hidden_size=128, num_layers=2, num_heads=4),
    "560m": _sized(24, 1024, 16),
    "1b1": _sized(24, 1536, 16),
    "1b7": _sized(24, 2048, 16),
    "3b": _sized(30, 2560, 32),
    "7b1": _sized(30, 4096, 32),
    "176b": _sized(70, 14336, 112),
}

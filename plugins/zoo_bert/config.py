"""BERT's configuration, and what the keys of its Hub configuration mean."""

from typing import Any

from zoo.config import Activation, Config, ConfigMap

_POSITIVE = (
    "vocab_size",
    "hidden_size",
    "num_layers",
    "num_heads",
    "intermediate_size",
    "max_positions",
    "type_vocab_size",
    "layer_norm_eps",
    "initializer_range",
)


class BertConfig(Config, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The shape of a BERT; the defaults are those of ``base``, and of the Hub.

    Attributes:
        vocab_size: rows of the token embedding.
        hidden_size: width of every token's vector between blocks.
        num_layers: encoder blocks.
        num_heads: attention heads in each; they share ``hidden_size``.
        intermediate_size: inner width of the feed-forward networks.
        max_positions: the longest input.
        type_vocab_size: segments that an input may consist of.
        activation: of the feed-forward networks and of the masked-token head.
        dropout: probability of dropping an element of a block's output in training.
        attention_dropout: probability of dropping an attention weight in training.
        classifier_dropout: the same before a classifier; ``None`` for ``dropout``.
        layer_norm_eps: added to the variance in every norm.
        initializer_range: deviation of fresh weights.
        pad_token_id: the token that fills up short rows, or ``None``.
        tie_embeddings: score masked tokens against the token embeddings.
        pooler: whether the bare trunk has a pooler; heads that use one always have it.
    """

    vocab_size: int = 30522
    hidden_size: int = 768
    num_layers: int = 12
    num_heads: int = 12
    intermediate_size: int = 3072
    max_positions: int = 512
    type_vocab_size: int = 2
    activation: Activation = "gelu"
    dropout: float = 0.1
    attention_dropout: float = 0.1
    classifier_dropout: float | None = None
    layer_norm_eps: float = 1e-12
    initializer_range: float = 0.02
    pad_token_id: int | None = 0
    tie_embeddings: bool = True
    pooler: bool = True

    def __post_init__(self) -> None:
        """Refuse a shape that cannot be built.

        Raises:
            ValueError: a field is out of its range, or two contradict each other.
        """
        for name in _POSITIVE:
            if not getattr(self, name) > 0:  # said so that NaN is refused
                raise ValueError(f"{name} is {getattr(self, name)}, which is not positive")
        for name in ("dropout", "attention_dropout", "classifier_dropout"):
            if not 0 <= (getattr(self, name) or 0) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}, which is not in [0, 1)")
        if self.hidden_size % self.num_heads:
            raise ValueError(
                f"hidden_size {self.hidden_size} does not split into num_heads {self.num_heads}"
            )
        if self.pad_token_id is not None and not 0 <= self.pad_token_id < self.vocab_size:
            raise ValueError(
                f"pad_token_id {self.pad_token_id} is outside the vocabulary of {self.vocab_size}"
            )


_RELEASE = "written by the first release, and read by no implementation"
CONFIG_MAP = ConfigMap(
    keys={
        "vocab_size": "vocab_size",
        "hidden_size": "hidden_size",
        "num_hidden_layers": "num_layers",
        "num_attention_heads": "num_heads",
        "intermediate_size": "intermediate_size",
        "max_position_embeddings": "max_positions",
        "type_vocab_size": "type_vocab_size",
        "hidden_act": "activation",
        "hidden_dropout_prob": "dropout",
        "attention_probs_dropout_prob": "attention_dropout",
        "classifier_dropout": "classifier_dropout",
        "layer_norm_eps": "layer_norm_eps",
        "initializer_range": "initializer_range",
        "pad_token_id": "pad_token_id",
        "tie_word_embeddings": "tie_embeddings",
    },
    fixed={
        "position_embedding_type": ("absolute", None),
        "is_decoder": (False, None),
        "add_cross_attention": (False, None),
        "is_encoder_decoder": (None, False),
        "tie_encoder_decoder": (None, False),
        "cross_attention_hidden_size": (None,),
        "per_layer_config": (None,),
    },
    ignored={
        "directionality": _RELEASE,
        "pooler_fc_size": _RELEASE,
        "pooler_num_attention_heads": _RELEASE,
        "pooler_num_fc_layers": _RELEASE,
        "pooler_size_per_head": _RELEASE,
        "pooler_type": _RELEASE,
    },
)


def _size(layers: int, width: int, **changes: Any) -> BertConfig:
    """Return a released shape: heads are 64 wide, feed-forward networks four times as wide."""
    return BertConfig(
        num_layers=layers,
        hidden_size=width,
        num_heads=width // 64,
        intermediate_size=4 * width,
        **changes,
    )


SIZES = {
    "tiny": _size(2, 128),
    "mini": _size(4, 256),
    "small": _size(4, 512),
    "medium": _size(8, 512),
    "base": _size(12, 768),
    "large": _size(24, 1024),
    "base-cased": _size(12, 768, vocab_size=28996),
    "large-cased": _size(24, 1024, vocab_size=28996),
    "base-multilingual-cased": _size(12, 768, vocab_size=119547),
    "base-multilingual-uncased": _size(12, 768, vocab_size=105879),
    "base-chinese": _size(12, 768, vocab_size=21128),
}

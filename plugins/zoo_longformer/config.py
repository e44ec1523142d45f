"""Longformer's configuration and the keys of its Hub configuration."""

from typing import Any

from zoo.errors import UsageError
from zoo.families.config import ConfigMap
from zoo.families.encoder import FIXED, KEYS, EncoderConfig, require_positions
from zoo.families.global_tokens import (
    GlobalTokenChoice,
    check_global_tokens,
    check_windows,
    reaches,
)
from zoo.families.longer import LongerModel

# Global tokens by head: those of the Hub's classes, and the first token of a text that is pooled.
DEFAULT_RULES = {
    "none": "first",
    "sequence-classification": "first",
    "multiple-choice": "choice",
    "question-answering": "question",
}


class LongformerConfig(EncoderConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Configuration of a Longformer; the defaults are the Hub's, which no released model has."""

    # number of tokens of a window without the one in its middle, of all blocks or of each
    attention_window: int | tuple[int, ...] = 512
    type_vocab_size: int = 2  # number of segment types
    layer_norm_eps: float = 1e-12  # epsilon of the layer norms
    pad_token_id: int = 1  # the padding token, which positions do not count
    sep_token_id: int = 2  # the token that ends a text
    # whether the bare backbone has a pooler; heads that use one always have it
    pooler: bool = True
    # the tokens with global attention: ``none``, ``first``, ``question``, ``choice``,
    # ``separators`` or positions; ``task`` for the rule of the head
    global_tokens: GlobalTokenChoice = "task"

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positions(self.max_positions, self.pad_token_id)
        check_windows(self.attention_window, self.num_layers)
        check_global_tokens(self.global_tokens, self.max_seq_len)

    @property
    def max_seq_len(self) -> int:
        """Largest number of tokens in a row."""
        return self.max_positions - self.pad_token_id - 1


CONFIG_MAP = ConfigMap(
    keys={
        **KEYS,
        "attention_window": "attention_window",
        "sep_token_id": "sep_token_id",
        "global_tokens": "global_tokens",
    },
    fixed={
        **FIXED,
        # Keys of the released code, which published files have.
        "attention_mode": (None, "longformer", "sliding_chunks", "tvm"),
        "autoregressive": (None, False),
        "ignore_attention_mask": (None, False),
    },
    ignored={
        "onnx_export": "a setting of an exporter",
        "attention_dilation": "1 in every block; other values are refused",
    },
    unsaid=("global_tokens",),
)
# Of the released models: RoBERTa's positions up to 4,096, and two that no text has.
_RELEASED: dict[str, Any] = {
    "vocab_size": 50265,
    "max_positions": 4098,
    "type_vocab_size": 1,
    "layer_norm_eps": 1e-5,
}
SIZES = {
    "tiny": LongformerConfig.sized(
        2, 128, **{**_RELEASED, "vocab_size": 1000, "max_positions": 258}, attention_window=32
    ),
    "base": LongformerConfig.sized(12, 768, **_RELEASED),
    "large": LongformerConfig.sized(24, 1024, **_RELEASED),
}


# Fields that a RoBERTa and a Longformer have in common.
_SHARED_FIELDS = (
    "vocab_size",
    "labels",
    "problem",
    "hidden_size",
    "num_layers",
    "num_heads",
    "intermediate_size",
    "activation",
    "dropout",
    "attention_dropout",
    "initializer_range",
    "layer_norm_eps",
    "pad_token_id",
    "type_vocab_size",
    "tie_embeddings",
    "pooler",
    "mix",
    "pooling",
    "sentence_head",
)


def longer_roberta(config: Any, max_seq_len: int) -> LongerModel:
    """Return a Longformer with the weights of a RoBERTa (arXiv:2004.05150, section 5).

    As in the released notebook ``convert_model_to_long``, positions are copied again and again, and
    projections of global tokens begin with the values of the others.

    Raises:
        UsageError: the RoBERTa has other blocks, or as many positions.
    """
    if config.pre_norm:
        raise UsageError(f"{config.model_type} has norms before attention, and Longformer after")
    if max_seq_len < config.max_seq_len:
        raise UsageError(
            f"the model reads {config.max_seq_len:,} tokens, and --max-seq-len is {max_seq_len:,}",
            "give a larger number",
        )
    special_rows = config.pad_token_id + 1
    values = {name: getattr(config, name) for name in _SHARED_FIELDS}
    longer = LongformerConfig(**values, max_positions=special_rows + max_seq_len)
    initial = {}
    for layer in range(config.num_layers):
        for part in ("weight", "bias"):
            block = f"layers.{layer}.attention"
            initial[f"{block}.global_qkv.{part}"] = f"{block}.qkv.{part}"
    reach = min(reaches(longer.attention_window, longer.num_layers))
    return LongerModel(longer, {"embeddings.positions.weight": special_rows}, initial, reach)

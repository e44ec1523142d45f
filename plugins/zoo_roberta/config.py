"""RoBERTa's configuration and the keys of its Hub configuration."""

from dataclasses import replace
from functools import partial
from typing import Any, Literal

from zoo.families.config import ConfigMap
from zoo.families.encoder import FIXED, KEYS, EncoderConfig

ModelType = Literal["roberta", "xlm-roberta", "camembert", "xlm-roberta-xl"]


class RobertaConfig(EncoderConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Configuration of a RoBERTa; the defaults are the Hub's, which no released model has."""

    # the Hub's ``model_type``; ``xlm-roberta-xl`` has norms before each part of a block and after
    # the last block, and none after the embeddings
    model_type: ModelType = "roberta"
    vocab_size: int = 50265
    type_vocab_size: int = 2  # number of segment types; released models have one
    # dropout probability in the heads for sequence and token classification; ``None`` for
    # ``dropout``
    classifier_dropout: float | None = None
    layer_norm_eps: float = 1e-12  # epsilon of the layer norms
    pad_token_id: int = 1  # the padding token, which positions do not count
    # whether the bare backbone has a pooler; heads that use one always have it
    pooler: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max_seq_len < 1:
            raise ValueError(
                f"max_positions {self.max_positions} leaves no position for a text: they begin "
                f"behind pad_token_id {self.pad_token_id}"
            )

    @property
    def pre_norm(self) -> bool:
        """Whether norms precede attention and feed-forward networks, with a last norm."""
        return self.model_type == "xlm-roberta-xl"

    @property
    def max_seq_len(self) -> int:
        """Largest number of tokens in a row."""
        return self.max_positions - self.pad_token_id - 1


SPECIAL_TOKENS = {
    "bos": "<s>",
    "eos": "</s>",
    "unk": "<unk>",
    "sep": "</s>",
    "pad": "<pad>",
    "cls": "<s>",
    "mask": "<mask>",
}
CONFIG_MAP = ConfigMap(keys={**KEYS, "classifier_dropout": "classifier_dropout"}, fixed=FIXED)
# the other model types have other defaults on the Hub
CONFIG_MAPS = {
    name: replace(CONFIG_MAP, implied={"model_type": name, "vocab_size": 30522})
    for name in ("xlm-roberta", "camembert")
}
_XL: dict[str, Any] = {
    "model_type": "xlm-roberta-xl",
    "vocab_size": 250880,
    "hidden_size": 2560,
    "num_layers": 36,
    "num_heads": 32,
    "intermediate_size": 10240,
    "max_positions": 514,
    "type_vocab_size": 1,
    "layer_norm_eps": 1e-5,
}
CONFIG_MAPS["xlm-roberta-xl"] = replace(CONFIG_MAP, implied=_XL)


_size = partial(RobertaConfig.sized, max_positions=514, type_vocab_size=1, layer_norm_eps=1e-5)
_XLM: dict[str, Any] = {"model_type": "xlm-roberta", "vocab_size": 250002}
SIZES = {
    "tiny": _size(2, 128, vocab_size=1000, max_positions=66),
    "distil": _size(6, 768),
    "base": _size(12, 768),
    "large": _size(24, 1024),
    "xlm-base": _size(12, 768, **_XLM),
    "xlm-large": _size(24, 1024, **_XLM),
    "xlm-xl": RobertaConfig(**_XL),
    "xlm-xxl": RobertaConfig(
        **{**_XL, "hidden_size": 4096, "num_layers": 48, "intermediate_size": 16384}
    ),
    "camembert-base": _size(12, 768, model_type="camembert", vocab_size=32005),
}

"""RoBERTa's configuration and the keys of its Hub configuration."""

from dataclasses import replace
from typing import Any, Literal

from zoo.families.config import ConfigMap
from zoo.families.encoder import CLASSIFIER_KEYS, FIXED, PooledEncoderConfig, require_positions

ModelType = Literal["roberta", "xlm-roberta", "camembert", "xlm-roberta-xl"]


class RobertaConfig(PooledEncoderConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Configuration of a RoBERTa; the defaults are the Hub's, which no released model has."""

    # the Hub's ``model_type``; ``xlm-roberta-xl`` has norms before each part of a block and after
    # the last block, and none after the embeddings
    model_type: ModelType = "roberta"
    vocab_size: int = 50265
    pad_token_id: int = 1  # the padding token, which positions do not count

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positions(self.max_positions, self.pad_token_id)

    @property
    def pre_norm(self) -> bool:
        """Whether norms precede attention and feed-forward networks, with a last norm."""
        return self.model_type == "xlm-roberta-xl"

    @property
    def max_seq_len(self) -> int:
        """Largest number of tokens in a row."""
        return self.max_positions - self.pad_token_id - 1


CONFIG_MAP = ConfigMap(keys=CLASSIFIER_KEYS, fixed=FIXED)
# the other model types have other defaults on the Hub
CONFIG_MAPS = {
    name: replace(CONFIG_MAP, implied={"model_type": name, "vocab_size": 30522})
    for name in ("xlm-roberta", "camembert")
}
# Of all released models: 512 positions of texts, and two that no text has.
_RELEASED: dict[str, Any] = {"max_positions": 514, "type_vocab_size": 1, "layer_norm_eps": 1e-5}
_XL: dict[str, Any] = {
    "model_type": "xlm-roberta-xl",
    "vocab_size": 250880,
    "hidden_size": 2560,
    "num_layers": 36,
    "num_heads": 32,
    "intermediate_size": 10240,
    **_RELEASED,
}
CONFIG_MAPS["xlm-roberta-xl"] = replace(CONFIG_MAP, implied=_XL)


def _size(layers: int, width: int, **changes: Any) -> RobertaConfig:
    return RobertaConfig.sized(layers, width, **{**_RELEASED, **changes})


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

"""RoBERTa's configuration, and what the keys of its Hub configurations mean."""

from dataclasses import replace
from functools import partial
from typing import Any, Literal

from zoo.families.config import ConfigMap
from zoo.families.encoder import FIXED, KEYS, EncoderConfig

ModelType = Literal["roberta", "xlm-roberta", "camembert"]


class RobertaConfig(EncoderConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The shape of a RoBERTa; the defaults are those of the Hub, which no released model has.

    Attributes:
        model_type: which of the names for one architecture the Hub uses.
        max_positions: rows of the position embedding. The rows up to that of the padding are not
            for text, so the longest text is shorter.
        type_vocab_size: segments that an input may consist of; released models have one.
        classifier_dropout: probability of dropping an element in the heads that classify texts
            and tokens, in training; ``None`` for ``dropout``.
        layer_norm_eps: added to the variance in every norm.
        pad_token_id: the token that fills up short rows: positions are counted without it.
        pooler: whether the bare trunk has a pooler; heads that use one always have it.
    """

    model_type: ModelType = "roberta"
    vocab_size: int = 50265
    type_vocab_size: int = 2
    classifier_dropout: float | None = None
    layer_norm_eps: float = 1e-12
    pad_token_id: int = 1
    pooler: bool = True

    def __post_init__(self) -> None:
        """Refuse a shape that cannot be built.

        Raises:
            ValueError: a field is out of its range, or two contradict each other.
        """
        super().__post_init__()
        if self.max_seq_len < 1:
            raise ValueError(
                f"max_positions {self.max_positions} leaves no position for a text: they begin "
                f"behind pad_token_id {self.pad_token_id}"
            )

    @property
    def max_seq_len(self) -> int:
        """How many tokens a text may have."""
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
CONFIG_MAP = ConfigMap(
    keys={**KEYS, "classifier_dropout": "classifier_dropout"},
    fixed=FIXED,
)
# the other model types have other defaults on the Hub
CONFIG_MAPS = {
    name: replace(CONFIG_MAP, implied={"model_type": name, "vocab_size": 30522})
    for name in ("xlm-roberta", "camembert")
}


_size = partial(RobertaConfig.sized, max_positions=514, type_vocab_size=1, layer_norm_eps=1e-5)
_XLM: dict[str, Any] = {"model_type": "xlm-roberta", "vocab_size": 250002}
SIZES = {
    "tiny": _size(2, 128, vocab_size=1000, max_positions=66),
    "distil": _size(6, 768),
    "base": _size(12, 768),
    "large": _size(24, 1024),
    "xlm-base": _size(12, 768, **_XLM),
    "xlm-large": _size(24, 1024, **_XLM),
    "camembert-base": _size(12, 768, model_type="camembert", vocab_size=32005),
}

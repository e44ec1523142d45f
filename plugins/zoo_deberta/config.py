"""DeBERTa's configuration and the keys of its Hub configuration."""

from dataclasses import replace
from functools import partial
from typing import Any

from zoo.families.config import Activation, ConfigMap, same_names
from zoo.families.encoder import FIXED, KEYS, EncoderConfig

TERMS = ("c2p", "p2c")


class DebertaConfig(EncoderConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Configuration of a DeBERTa; with the defaults of version 2 on the Hub."""

    vocab_size: int = 128100
    hidden_size: int = 1536
    num_layers: int = 24
    num_heads: int = 24
    intermediate_size: int = 6144
    type_vocab_size: int = 0  # number of segment types; 0 for no segment embeddings
    # probability of dropping an element before a classifier of texts in training; ``None`` for
    # ``dropout``
    classifier_dropout: float | None = None
    pooler_dropout: float = 0.0  # dropout probability before the pooler
    pooler_activation: Activation = "gelu"  # activation function of the pooler
    layer_norm_eps: float = 1e-7  # epsilon of the layer norms
    # whether keys have a bias. Version 1 has none, and stores its three projections as one tensor
    key_bias: bool = True
    relative_attention: bool = False  # whether attention has relative positions
    # the scores between content and position: ``c2p``, ``p2c`` or both, as a list or separated by
    # ``|``
    position_terms: str | tuple[str, ...] | None = None
    max_relative_positions: int = -1  # largest distinct distance; below 1 for ``max_positions``
    # number of table rows of each direction, where large distances share rows; below 1 for a row
    # per distance
    position_buckets: int = -1
    share_att_key: bool = False  # project positions with the matrices of the contents
    norm_rel_ebd: str = "none"  # ``layer_norm`` if the table of relative positions is normalized
    conv_kernel_size: int = 0  # width of the convolution of the first block; 0 for none
    conv_groups: int = 1  # number of groups of its channels
    conv_activation: Activation = "tanh"  # activation function of the convolution
    # whether absolute positions are added to the input embeddings
    position_biased_input: bool = True
    # whether the masked-LM head has the enhanced mask decoder, if the input has no absolute
    # positions. The checkpoint decides
    enhanced_decoder: bool = True
    # whether the Hub's file names the masked-LM head ``cls.predictions`` and not
    # ``lm_predictions.lm_head``. Both are read
    legacy_names: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        terms = self.terms
        norm = self.norm_rel_ebd
        buckets = self.position_buckets
        kernel = self.conv_kernel_size
        groups = self.conv_groups
        width = self.hidden_size
        later = buckets > 0 or self.share_att_key or self.norms_positions or kernel > 0
        self.refuse({
            f"position_terms {self.position_terms!r} are not some of {' and '.join(TERMS)}":
                not set(terms) <= set(TERMS) or len(set(terms)) < len(terms),
            f"norm_rel_ebd {norm!r} is not none or layer_norm":
                not set(_words(norm)) <= {"none", "layer_norm"},
            f"norm_rel_ebd {norm!r} without relative_attention norms nothing":
                self.norms_positions and not self.relative_attention,
            f"position_buckets {buckets} do not divide {self.span} distances":
                buckets > 0 and not 1 < buckets // 2 < self.span - 1,
            f"conv_kernel_size {kernel} is neither odd nor 0": kernel > 0 == kernel % 2,
            f"conv_groups {groups} do not divide hidden_size {width}": width % groups > 0,
            "version 1 (key_bias off) has no buckets, shared keys, normed positions or convolution":
                later and not self.key_bias,
        })  # fmt: skip

    @property
    def terms(self) -> tuple[str, ...]:
        """The scores between content and position."""
        terms = self.position_terms or ()
        return _words(terms) if isinstance(terms, str) else terms

    @property
    def norms_positions(self) -> bool:
        """``True`` if the table of relative positions is normalized."""
        return "layer_norm" in _words(self.norm_rel_ebd)

    @property
    def decodes_positions(self) -> bool:
        """``True`` if the masked-LM head has the enhanced mask decoder."""
        return self.enhanced_decoder and not self.position_biased_input

    @property
    def span(self) -> int:
        """Number of distinct distances in each direction."""
        return (
            self.max_positions if self.max_relative_positions < 1 else self.max_relative_positions
        )

    @property
    def reach(self) -> int:
        """Number of rows of the table of relative positions for each direction."""
        return self.position_buckets if self.position_buckets > 0 else self.span


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.lower().split("|") if word.strip())


_FIRST_KEYS = {
    **{key: field for key, field in KEYS.items() if key != "tie_word_embeddings"},
    **same_names("relative_attention", "max_relative_positions", "position_biased_input"),
    "pos_att_type": "position_terms",
    "pooler_dropout": "pooler_dropout",
    "pooler_hidden_act": "pooler_activation",
    "legacy": "legacy_names",
    "cls_dropout": "classifier_dropout",
}
# settings that version 2 introduced
_LATER = ("position_buckets", "share_att_key", "norm_rel_ebd", "conv_kernel_size")
_LATER_KEYS = same_names(*_LATER, "conv_groups") | {"conv_act": "conv_activation"}
CONFIG_MAP = ConfigMap(
    keys=_FIRST_KEYS | _LATER_KEYS,
    fixed={
        **FIXED,
        "tie_word_embeddings": (True, None),
        "talking_head": (None, False),
        "z_steps": (None, 0),
        # the pooler's settings in Microsoft's own code; the pooler_* keys also have them
        "pooling": (None, {"dropout": 0, "hidden_act": "gelu"}),
    },
    ignored={"padding_idx": "excludes an embedding from training; outputs are equal"},
    follows={
        "embedding_size": "hidden_size",
        "pooler_hidden_size": "hidden_size",
        "attention_head_size": "head_size",
    },
    unsaid=("cls_dropout", *_LATER_KEYS),
)
_FIRST: dict[str, Any] = {"key_bias": False, "vocab_size": 50265}
_BASE = {"hidden_size": 768, "num_layers": 12, "num_heads": 12, "intermediate_size": 3072}
FIRST_MAP = replace(
    CONFIG_MAP,
    keys=_FIRST_KEYS,
    fixed={**CONFIG_MAP.fixed, **{key: (None, getattr(DebertaConfig(), key)) for key in _LATER}},
    implied=_FIRST | _BASE,
)


_size = partial(
    DebertaConfig.sized,
    relative_attention=True,
    position_terms="c2p|p2c",
    position_biased_input=False,
)
_SECOND: dict[str, Any] = {
    "position_buckets": 256,
    "share_att_key": True,
    "norm_rel_ebd": "layer_norm",
    "position_terms": "p2c|c2p",
}
_CONV: dict[str, Any] = {"conv_kernel_size": 3, "conv_activation": "gelu"}
SIZES = {
    "tiny": _size(2, 128, vocab_size=1000, max_positions=40, **{**_SECOND, "position_buckets": 8}),
    "base": _size(12, 768, **_FIRST),
    "large": _size(24, 1024, **_FIRST),
    "xlarge": _size(48, 1024, **_FIRST),
    "v2-xlarge": _size(24, 1536, **_SECOND, **_CONV),
    "v2-xxlarge": _size(48, 1536, **_SECOND, **_CONV),
    "v3-xsmall": _size(12, 384, **_SECOND),
    "v3-small": _size(6, 768, **_SECOND),
    "v3-base": _size(12, 768, **_SECOND),
    "v3-large": _size(24, 1024, **_SECOND),
    "v3-base-multilingual": _size(12, 768, vocab_size=251000, **_SECOND),
}

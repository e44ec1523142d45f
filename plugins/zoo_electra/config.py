"""ELECTRA's configuration and the keys of its Hub configuration."""

from zoo.families.config import ConfigMap
from zoo.families.encoder import CLASSIFIER_KEYS, FIXED, EncoderConfig


class ElectraConfig(EncoderConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Configuration of a discriminator or a generator, with the defaults of ``small``."""

    # width of the embeddings; a linear map projects them to another ``hidden_size``
    embedding_size: int = 128
    hidden_size: int = 256
    num_heads: int = 4
    intermediate_size: int = 1024
    type_vocab_size: int = 2  # number of segment types
    # dropout probability in the heads for sequence and token classification; ``None`` for
    # ``dropout``
    classifier_dropout: float | None = None
    summary_dropout: float = 0.1  # dropout probability in the multiple-choice head
    layer_norm_eps: float = 1e-12  # epsilon of the layer norms


CONFIG_MAP = ConfigMap(
    keys={
        **CLASSIFIER_KEYS,
        "embedding_size": "embedding_size",
        "summary_last_dropout": "summary_dropout",
    },
    fixed={
        **FIXED,
        "summary_type": ("first",),
        "summary_use_proj": (True,),
        "summary_activation": ("gelu",),
        "summary_first_dropout": (None, 0, 0.0),
        "summary_proj_to_labels": (None, False),
    },
)


_size = ElectraConfig.sized
SIZES = {
    "tiny": _size(
        2, 128, intermediate_size=256, embedding_size=64, vocab_size=1000, max_positions=64
    ),
    "small": _size(12, 256),
    "base": _size(12, 768, embedding_size=768),
    "large": _size(24, 1024, embedding_size=1024),
    # the released small generator has the discriminator's shape, not the paper's quarter of it
    "small-generator": _size(12, 256),
    "base-generator": _size(12, 256, embedding_size=768),
    "large-generator": _size(24, 256, embedding_size=1024),
}

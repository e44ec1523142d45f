"""RoFormer's configuration and the keys of its Hub configuration."""

from zoo.families.config import ConfigMap, same_names
from zoo.families.encoder import FIXED, KEYS, EncoderConfig


class RoFormerConfig(EncoderConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Configuration of a RoFormer; the defaults are the Hub's."""

    vocab_size: int = 50000
    # width of the embeddings; a linear map projects them to another ``hidden_size``
    embedding_size: int = 768
    max_positions: int = 1536  # number of tokens of the longest row
    type_vocab_size: int = 2  # number of segment types
    layer_norm_eps: float = 1e-12  # epsilon of the layer norms
    rotary_value: bool = False  # whether values are rotated like queries and keys

    def __post_init__(self) -> None:
        """Check that components of a head form pairs."""
        super().__post_init__()
        if self.head_size % 2:
            raise ValueError(f"heads have a width of {self.head_size}, which is not even")


CONFIG_MAP = ConfigMap(
    keys={**KEYS, **same_names("embedding_size", "rotary_value")},
    fixed=FIXED,
    ignored=dict.fromkeys(
        (
            "summary_type",
            "summary_use_proj",
            "summary_activation",
            "summary_proj_to_labels",
            "summary_first_dropout",
            "summary_last_dropout",
        ),
        "of the head for multiple choice, which is not read",
    ),
)
SIZES = {
    "tiny": RoFormerConfig.sized(2, 128, embedding_size=128, vocab_size=1000, max_positions=512),
    "chinese-base": RoFormerConfig(),
}

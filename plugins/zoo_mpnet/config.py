"""MPNet's configuration and the keys of its Hub configuration."""

from typing import Final, Literal

from zoo.families.config import ConfigMap
from zoo.families.encoder import FIXED, KEYS, EncoderConfig, require_positions

# Constants of the released code, whatever the configuration.
PAD: Final = 1
BUCKETS: Final = 32
FARTHEST: Final = 128  # The distance from which on all are in one bucket.


class MPNetConfig(EncoderConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Configuration of an MPNet; the defaults are the Hub's, which no released model has."""

    vocab_size: int = 30527
    layer_norm_eps: float = 1e-12  # epsilon of the layer norms
    pad_token_id: Literal[1] = PAD  # the padding token, which positions do not count
    # whether the bare backbone has a pooler; heads that use one always have it
    pooler: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positions(self.max_positions, PAD)

    @property
    def max_seq_len(self) -> int:
        """Largest number of tokens in a row."""
        return self.max_positions - PAD - 1


CONFIG_MAP = ConfigMap(
    keys={hub: ours for hub, ours in KEYS.items() if hub != "type_vocab_size"},  # no segments
    fixed={**FIXED, "relative_attention_num_buckets": (BUCKETS,)},
)
SIZES = {
    "tiny": MPNetConfig.sized(2, 128, vocab_size=1000, max_positions=130),
    "base": MPNetConfig(max_positions=514, layer_norm_eps=1e-5),
}

"""MPNet's configuration and the keys of its Hub configuration."""

from typing import Final, Literal

from zoo.families.config import ConfigMap
from zoo.families.encoder import KEYS, EncoderConfig

# constants of the released code, whatever the configuration
PAD: Final = 1
BUCKETS: Final = 32


class MPNetConfig(EncoderConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Configuration of an MPNet; the defaults are the Hub's, which no released model has.

    Tokens use the position embeddings after ``pad_token_id``, so the longest row has
    ``max_positions - pad_token_id - 1`` tokens.

    Attributes:
        layer_norm_eps: epsilon of the layer norms.
        pad_token_id: id of the padding token, which positions do not count.
        pooler: whether the bare backbone has a pooler.
    """

    vocab_size: int = 30527
    layer_norm_eps: float = 1e-12
    pad_token_id: Literal[1] = PAD
    pooler: bool = True


CONFIG_MAP = ConfigMap(
    keys={
        hub: ours
        for hub, ours in KEYS.items()
        if hub not in ("type_vocab_size", "tie_word_embeddings")  # no segments; always tied
    },
    fixed={
        "relative_attention_num_buckets": (BUCKETS,),
        "tie_word_embeddings": (True,),
    },
)

BASE = MPNetConfig(max_positions=514, layer_norm_eps=1e-5)
TINY = MPNetConfig(hidden_size=128, num_layers=2, num_heads=2, intermediate_size=512)
SIZES = {"tiny": TINY, "base": BASE}

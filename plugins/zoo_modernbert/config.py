"""ModernBERT's configuration and the keys of its Hub configuration."""

from typing import Any, Literal

from zoo.families.alternating import (
    BASES,
    FIXED,
    FOLLOWS,
    IGNORED,
    KEYS,
    PAIRED_SHAPES,
    ROPE_VALUES,
    UNSAID_ROPE_KEYS,
    AlternatingConfig,
)
from zoo.families.config import ConfigMap


class ModernBertConfig(AlternatingConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Configuration of a ModernBERT; the defaults are the Hub's."""

    # what a classifier of texts and choices reads: the first token, or the mean of all
    classifier_pooling: Literal["cls", "mean"] = "cls"


CONFIG_MAP = ConfigMap(
    keys={**KEYS, "classifier_pooling": "classifier_pooling"},
    fixed=FIXED,
    ignored=IGNORED,
    follows=FOLLOWS,
    aliases=BASES,
    both=BASES.keys(),
    values=ROPE_VALUES,
    unsaid=UNSAID_ROPE_KEYS,
)


def _published(width: int, inner: int, layers: int, **changes: Any) -> ModernBertConfig:
    """Return a released configuration: heads of 64, texts are classified by their mean."""
    return ModernBertConfig(
        hidden_size=width,
        intermediate_size=inner,
        num_layers=layers,
        num_heads=width // 64,
        classifier_pooling="mean",
        **changes,
    )


# Weller et al. 2025, arXiv:2507.11412: local attention is rotated by the frequencies of global
# attention in the configurations of its released code.
SIZES = {
    "tiny": ModernBertConfig(
        vocab_size=1000,
        hidden_size=128,
        num_layers=4,
        num_heads=2,
        intermediate_size=192,
        max_positions=512,
        local_attention=16,
        pad_token_id=3,
    ),
    "base": _published(768, 1152, 22),
    "large": _published(1024, 2624, 28),
    **{
        f"ettin-{name}": _published(*shape, local_rope_theta=160_000.0)
        for name, shape in PAIRED_SHAPES.items()
    },
}

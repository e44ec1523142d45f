"""Configuration of Ettin's decoders and the keys of their Hub configuration."""

from typing import Any

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


class EttinConfig(AlternatingConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Configuration of a decoder; the defaults are the Hub's.

    A token attends to ``local_attention // 2`` tokens in local attention, itself included.
    """

    pad_token_id: int = 50283  # the padding token, which the Hub requires

    def __post_init__(self) -> None:
        """Check that a token attends to itself, and that heads can be rotated."""
        super().__post_init__()
        self.refuse(
            {
                f"local_attention {self.local_attention} is less than 2": self.local_attention < 2,
                f"heads of {self.head_size} components cannot be rotated": self.head_size % 2 == 1,
            }
        )


CONFIG_MAP = ConfigMap(
    keys=KEYS,
    fixed={
        **FIXED,
        "causal_mask": (None, True),
        "is_causal": (None, True),
        "rope_scaling": (None,),
    },
    ignored={
        **IGNORED,
        "classifier_pooling": "of the encoder; the last token classifies a text",
    },
    follows=FOLLOWS,
    aliases=BASES,
    both=BASES.keys(),
    values=ROPE_VALUES,
    unsaid=UNSAID_ROPE_KEYS,
)


def _published(width: int, inner: int, layers: int, **changes: Any) -> EttinConfig:
    """Return a configuration with heads of 64 components.

    Local attention is rotated by the frequencies of global attention in the configurations of the
    released code.
    """
    return EttinConfig(
        hidden_size=width,
        intermediate_size=inner,
        num_layers=layers,
        num_heads=width // 64,
        local_rope_theta=160_000.0,
        **changes,
    )


SIZES = {
    "tiny": _published(
        128, 192, 4, vocab_size=1000, max_positions=512, local_attention=16, pad_token_id=3
    )
}
for _name, _shape in PAIRED_SHAPES.items():
    SIZES[_name] = _published(*_shape)

"""Weight rules of RoFormer: the Hub's names and ours."""

from functools import partial

from zoo.weights import Constant, WeightMap, sinusoidal_positions
from zoo.weights.encoder_rules import backbone_rules
from zoo.weights.head_rules import HeadNames, MaskedNames, with_head
from zoo_roformer.config import RoFormerConfig

_PREFIX = "roformer."
_HEADS = HeadNames(MaskedNames(), text=("classifier.dense", "classifier.out_proj"))


def weights(config: RoFormerConfig, head: str) -> WeightMap:
    """Return the rules for a configuration and head."""
    table = Constant(
        _PREFIX + "encoder.embed_positions.weight",
        (config.max_positions, config.head_size),
        partial(sinusoidal_positions, config.max_positions, config.head_size),
        "sines and cosines of rotary positions",
        tolerance=1e-6,
    )
    backbone = backbone_rules(config, _PREFIX, positions=False).plus(constants=[table])
    return with_head(backbone, config, head, _HEADS)

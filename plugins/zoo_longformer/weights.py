"""Weight rules of Longformer: the Hub's names and ours."""

from zoo.weights import Rule, WeightMap
from zoo.weights.encoder_rules import backbone_rules
from zoo.weights.head_rules import fairseq_head_names, with_head
from zoo.weights.ops import Concat
from zoo_longformer.config import LongformerConfig

_PREFIX = "longformer."
_NAMES = fairseq_head_names(_PREFIX)


def weights(config: LongformerConfig, head: str) -> WeightMap:
    """Return the rules for a configuration and head."""
    width = config.hidden_size
    attention = f"{_PREFIX}encoder.layer.{{i}}.attention.self."
    projections = tuple(f"{attention}{name}_global.{{p}}" for name in ("query", "key", "value"))
    global_qkv = "layers.{i}.attention.global_qkv.{p}"
    backbone = backbone_rules(config, _PREFIX).plus(
        Rule(projections, global_qkv, (3 * width, width), Concat(3))
    )
    return with_head(backbone, config, head, _NAMES)

"""Weight rules of MPNet: the Hub's names and ours."""

from zoo.weights import Rule, WeightMap
from zoo.weights.encoder_rules import BlockNames, backbone_rules, block_rules
from zoo.weights.head_rules import fairseq_head_names, with_head
from zoo_mpnet.config import BUCKETS, MPNetConfig

_BLOCK = BlockNames(
    query="attention.attn.q",
    key="attention.attn.k",
    value="attention.attn.v",
    out="attention.attn.o",
    attention_norm="attention.LayerNorm",
)
_HEADS = fairseq_head_names("mpnet.")


def weights(config: MPNetConfig, head: str) -> WeightMap:
    """Return the rules for a configuration and head."""
    blocks = block_rules(config, _BLOCK, "mpnet.encoder.layer.{i}.")
    table = Rule(
        "mpnet.encoder.relative_attention_bias.weight",
        "relative_bias.weight",
        (BUCKETS, config.num_heads),
    )
    backbone = backbone_rules(config, "mpnet.", blocks=blocks).plus(table)
    return with_head(backbone, config, head, _HEADS)

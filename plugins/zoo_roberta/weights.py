"""Weight rules of RoBERTa: the Hub's names and ours."""

from zoo.weights import WeightMap
from zoo.weights.encoder_rules import BlockNames, backbone_rules, block_rules, module_rule
from zoo.weights.head_rules import HeadNames, MaskedNames, with_head
from zoo_roberta.config import RobertaConfig

_NAMES = HeadNames(
    masked=MaskedNames(
        dense="lm_head.dense",
        norm="lm_head.layer_norm",
        decoder="lm_head.decoder",
        bias="lm_head.bias",
    ),
    pooler="roberta.pooler.dense",
    text=("classifier.dense", "classifier.out_proj"),
    choice=("classifier",),
)
_PREFIX = "roberta."
_PRE_NORM = BlockNames(attention_norm="attention.self_attn_layer_norm", ffn_norm="LayerNorm")


def weights(config: RobertaConfig, head: str) -> WeightMap:
    """Return the rules for a configuration and head."""
    backbone = _pre_norm_backbone(config) if config.pre_norm else backbone_rules(config, _PREFIX)
    return with_head(backbone, config, head, _NAMES)


def _pre_norm_backbone(config: RobertaConfig) -> WeightMap:
    """Return the rules for the backbone of XLM-R XL and XXL."""
    blocks = block_rules(config, _PRE_NORM, f"{_PREFIX}encoder.layer.{{i}}.")
    final_norm = module_rule(f"{_PREFIX}encoder.LayerNorm", "final_norm", config.hidden_size)
    backbone = backbone_rules(config, _PREFIX, embedding_norm=False, blocks=blocks)
    return backbone.plus(final_norm)

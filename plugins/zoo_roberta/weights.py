"""Weight rules of RoBERTa: the Hub's names and ours."""

from zoo.weights import WeightMap
from zoo.weights.encoder_rules import BlockNames, backbone_rules, block_rules, module_rule
from zoo.weights.head_rules import fairseq_head_names, with_head
from zoo_roberta.config import RobertaConfig

_PREFIX = "roberta."
_NAMES = fairseq_head_names(_PREFIX)
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

"""Weight rules of GTE's encoder: the names of the published code, which transformers writes."""

from zoo.weights import Ignore, Rule, WeightMap
from zoo.weights.encoder_rules import backbone_rules, module_rule
from zoo.weights.head_rules import HeadNames, MaskedNames, with_head
from zoo_gte.config import GteConfig

_OURS = "layers.{i}."
_MASKED = MaskedNames(
    dense="lm_head.dense", norm="lm_head.norm", decoder="lm_head.decoder", bias=""
)
# Multilingual models also weigh tokens for sparse retrieval.
_TOKEN_WEIGHTS = Ignore("classifier.{p}", "weights of tokens, which the backbone does not have")


def weights(config: GteConfig, head: str) -> WeightMap:
    """Return the rules for a configuration and head."""
    prefix = f"{config.model_type}."
    layer = prefix + "encoder.layer.{i}."
    width = config.hidden_size
    inner = config.intermediate_size
    blocks = [
        module_rule(layer + "attention.qkv_proj", _OURS + "attention.qkv", 3 * width, width),
        module_rule(layer + "attention.o_proj", _OURS + "attention.out", width, width),
        module_rule(layer + "attn_ln", _OURS + "attention_norm", width),
        Rule(layer + "mlp.up_gate_proj.weight", _OURS + "ffn.up.weight", (2 * inner, width)),
        module_rule(layer + "mlp.down_proj", _OURS + "ffn.down", width, inner),
        module_rule(layer + "mlp_ln", _OURS + "ffn_norm", width),
    ]
    backbone = backbone_rules(config, prefix, positions=False, blocks=blocks)
    if head == "none":
        backbone = backbone.plus(drops=[_TOKEN_WEIGHTS])
    return with_head(backbone, config, head, HeadNames(_MASKED, pooler=prefix + "pooler.dense"))

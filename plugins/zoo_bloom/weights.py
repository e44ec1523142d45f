"""Weight rules of BLOOM."""

from zoo.weights import DeinterleaveQKV, Rule, WeightMap
from zoo.weights.encoder_rules import module_rule
from zoo.weights.head_rules import causal_head_rules
from zoo_bloom.config import BloomConfig

_PREFIX = "transformer."
_LAYER = _PREFIX + "h.{i}."
_TOKENS = _PREFIX + "word_embeddings.weight"


def weights(config: BloomConfig, head: str) -> WeightMap:
    """Return the rules for a configuration and head."""
    width = config.hidden_size
    inner = config.intermediate_size
    layer = "layers.{i}."
    fused = Rule(
        _LAYER + "self_attention.query_key_value.{p}",
        layer + "attention.qkv.{p}",
        (3 * width, width),
        DeinterleaveQKV(config.num_heads),
    )
    backbone = WeightMap(
        rules=[
            Rule(_TOKENS, "embeddings.tokens.weight", (config.vocab_size, width)),
            module_rule(_PREFIX + "word_embeddings_layernorm", "embeddings.norm", width),
            fused,
            module_rule(_LAYER + "self_attention.dense", layer + "attention.out", width, width),
            module_rule(_LAYER + "input_layernorm", layer + "attention_norm", width),
            module_rule(_LAYER + "mlp.dense_h_to_4h", layer + "ffn.up", inner, width),
            module_rule(_LAYER + "mlp.dense_4h_to_h", layer + "ffn.down", width, inner),
            module_rule(_LAYER + "post_attention_layernorm", layer + "ffn_norm", width),
            module_rule(_PREFIX + "ln_f", "final_norm", width),
        ],
        prefix=_PREFIX,
        counts={"i": config.num_layers},
    )
    return causal_head_rules(backbone, config, head, _TOKENS)

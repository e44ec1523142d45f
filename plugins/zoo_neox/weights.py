"""Weight rules of GPT-NeoX."""

from zoo.weights import DeinterleaveQKV, Rule, WeightMap
from zoo.weights.buffers import causal_buffers, frequencies_buffer
from zoo.weights.encoder_rules import module_rule
from zoo.weights.head_rules import causal_head_rules
from zoo_neox.config import NeoxConfig

_PREFIX = "gpt_neox."
_LAYER = _PREFIX + "layers.{i}."
_OURS = "layers.{i}."
_TOKENS = _PREFIX + "embed_in.weight"


def weights(config: NeoxConfig, head: str) -> WeightMap:
    """Return the rules for a configuration and head."""
    backbone = _backbone(config)
    tied = config.tie_embeddings
    return causal_head_rules(backbone, config, head, _TOKENS, tied=tied, name="embed_out")


def _backbone(config: NeoxConfig) -> WeightMap:
    width = config.hidden_size
    inner = config.intermediate_size
    parameter = "{p}" if config.attention_bias else "weight"
    return WeightMap(
        rules=[
            Rule(_TOKENS, "embeddings.tokens.weight", (config.vocab_size, width)),
            Rule(
                f"{_LAYER}attention.query_key_value.{parameter}",
                f"{_OURS}attention.qkv.{parameter}",
                (3 * width, width),
                DeinterleaveQKV(config.num_heads),
            ),
            Rule(
                f"{_LAYER}attention.dense.{parameter}",
                f"{_OURS}attention.out.{parameter}",
                (width, width),
            ),
            module_rule(_LAYER + "input_layernorm", _OURS + "attention_norm", width),
            module_rule(_LAYER + "mlp.dense_h_to_4h", _OURS + "ffn.up", inner, width),
            module_rule(_LAYER + "mlp.dense_4h_to_h", _OURS + "ffn.down", width, inner),
            module_rule(_LAYER + "post_attention_layernorm", _OURS + "ffn_norm", width),
            module_rule(_PREFIX + "final_layer_norm", "final_norm", width),
        ],
        drops=[
            *causal_buffers(_LAYER + "attention."),
            frequencies_buffer(_LAYER + "attention."),
        ],
        prefix=_PREFIX,
        counts={"i": config.num_layers},
    )

"""Weight rules of GPT-NeoX."""

from zoo.weights import (
    DeinterleaveQKV,
    Ignore,
    Rule,
    WeightMap,
    is_causal_mask,
    is_frequencies,
    is_mask_value,
)
from zoo.weights.encoder_rules import module_rule
from zoo.weights.head_rules import HeadNames, lm_head_rules, with_head, with_mix
from zoo_neox.config import NeoxConfig

_PREFIX = "gpt_neox."
_LAYER = _PREFIX + "layers.{i}."
_OURS = "layers.{i}."
_TOKENS = _PREFIX + "embed_in.weight"


def weights(config: NeoxConfig, head: str) -> WeightMap:
    """Return the rules for a configuration and head."""
    backbone = _backbone(config)
    if head == "causal-lm":
        tied = config.tie_embeddings
        return lm_head_rules(backbone, config, _TOKENS, tied=tied, name="embed_out")
    if head == "sequence-classification":
        score = Rule("score.weight", "head.weight", (len(config.labels), config.hidden_size))
        return with_mix(backbone, config).plus(score)
    return with_head(backbone, config, head, HeadNames())


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
            Ignore(_LAYER + "attention.bias", "a buffer: the causal mask", is_causal_mask),
            Ignore(
                _LAYER + "attention.masked_bias",
                "a buffer: the score of masked positions",
                is_mask_value,
            ),
            Ignore(
                _LAYER + "attention.rotary_emb.inv_freq",
                "a buffer: the frequencies of rotary positions",
                is_frequencies,
            ),
        ],
        prefix=_PREFIX,
        counts={"i": config.num_layers},
    )

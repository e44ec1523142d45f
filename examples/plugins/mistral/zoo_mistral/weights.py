"""Weight rules of Mistral."""

from zoo.weights import Concat, Rule, WeightMap
from zoo.weights.head_rules import lm_head_rules
from zoo_mistral.config import MistralConfig

_LAYER = "model.layers.{i}."
_OURS = "layers.{i}."
_TOKENS = "model.embed_tokens.weight"


def weights(config: MistralConfig, head: str) -> WeightMap:
    """Return the rules for a configuration and head."""
    width = config.hidden_size
    inner = config.intermediate_size
    shared = config.num_kv_heads * config.head_size
    backbone = WeightMap(
        rules=[
            Rule(_TOKENS, "embeddings.tokens.weight", (config.vocab_size, width)),
            Rule(
                tuple(f"{_LAYER}self_attn.{name}_proj.weight" for name in "qkv"),
                _OURS + "attention.qkv.weight",
                (width + 2 * shared, width),
                Concat(3, (width, shared, shared)),
            ),
            _in_layer("self_attn.o_proj", "attention.out", width, width),
            _in_layer("input_layernorm", "attention_norm", width),
            Rule(
                (f"{_LAYER}mlp.gate_proj.weight", f"{_LAYER}mlp.up_proj.weight"),
                _OURS + "ffn.up.weight",
                (2 * inner, width),
                Concat(2),
            ),
            _in_layer("mlp.down_proj", "ffn.down", width, inner),
            _in_layer("post_attention_layernorm", "ffn_norm", width),
            Rule("model.norm.weight", "final_norm.weight", (width,)),
        ],
        prefix="model.",
        counts={"i": config.num_layers},
    )
    if head == "causal-lm":
        return lm_head_rules(backbone, config, _TOKENS, tied=config.tie_embeddings)
    if head == "sequence-classification":
        return backbone.plus(Rule("score.weight", "head.weight", (len(config.labels), width)))
    return backbone


def _in_layer(source: str, target: str, *shape: int) -> Rule:
    return Rule(f"{_LAYER}{source}.weight", f"{_OURS}{target}.weight", shape)

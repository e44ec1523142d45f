"""Weight rules of Jina's encoders."""

from zoo.weights import Concat, Rule, WeightMap
from zoo.weights.encoder_rules import backbone_rules, module_rule, tokens_name
from zoo.weights.head_rules import HeadNames, MaskedNames, with_head
from zoo_jina.config import JinaConfig

_V2 = HeadNames(MaskedNames(), pooler="bert.pooler.dense")
_V3 = HeadNames(
    masked=MaskedNames(
        dense="lm_head.dense",
        norm="lm_head.layer_norm",
        decoder="lm_head.decoder",
        bias="lm_head.bias",
    ),
    pooler="roberta.pooler.dense",
    text=("classifier.dense", "classifier.out_proj"),
)


def weights(config: JinaConfig, head: str) -> WeightMap:
    """Return the rules for a configuration and head."""
    if config.model_type == "jina_bert":
        blocks = _linear_blocks(config, "bert.encoder.layer.{i}.")
        backbone = backbone_rules(config, "bert.", positions=False, blocks=blocks)
        return with_head(backbone, config, head, _V2)
    return with_head(_rotary_rules(config), config, head, _V3)


def _linear_blocks(config: JinaConfig, source: str) -> list[Rule]:
    """Return the rules of the blocks of JinaBERT."""
    width = config.hidden_size
    inner = config.intermediate_size
    target = "layers.{i}."
    qkv = tuple(f"{source}attention.self.{name}.{{p}}" for name in ("query", "key", "value"))
    gated = f"{source}mlp.gated_layers.weight"
    return [
        Rule(qkv, f"{target}attention.qkv.{{p}}", (3 * width, width), Concat(3)),
        module_rule(f"{source}attention.output.dense", f"{target}attention.out", width, width),
        module_rule(f"{source}attention.output.LayerNorm", f"{target}attention_norm", width),
        Rule(gated, f"{target}ffn.up.weight", (2 * inner, width)),
        module_rule(f"{source}mlp.wo", f"{target}ffn.down", width, inner),
        module_rule(f"{source}mlp.layernorm", f"{target}ffn_norm", width),
    ]


def _rotary_rules(config: JinaConfig) -> WeightMap:
    """Return the rules of the backbone of version 3, with the names of its release."""
    width = config.hidden_size
    inner = config.intermediate_size
    prefix = "roberta."
    types = (config.type_vocab_size, width)
    source = f"{prefix}encoder.layers.{{i}}."
    target = "layers.{i}."
    return WeightMap(
        rules=[
            Rule(tokens_name(prefix), "embeddings.tokens.weight", (config.vocab_size, width)),
            Rule(
                f"{prefix}embeddings.token_type_embeddings.weight", "embeddings.types.weight", types
            ),
            module_rule(f"{prefix}emb_ln", "embeddings.norm", width),
            module_rule(f"{source}mixer.Wqkv", f"{target}attention.qkv", 3 * width, width),
            module_rule(f"{source}mixer.out_proj", f"{target}attention.out", width, width),
            module_rule(f"{source}norm1", f"{target}attention_norm", width),
            module_rule(f"{source}mlp.fc1", f"{target}ffn.up", inner, width),
            module_rule(f"{source}mlp.fc2", f"{target}ffn.down", width, inner),
            module_rule(f"{source}norm2", f"{target}ffn_norm", width),
        ],
        prefix=prefix,
        counts={"i": config.num_layers},
    )

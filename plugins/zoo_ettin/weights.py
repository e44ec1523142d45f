"""Weight rules of Ettin's decoders."""

from zoo.weights import Concat, Rule, TiedAlias, WeightMap
from zoo_ettin.config import EttinConfig

_LAYER = "model.layers.{i}."
_OURS = "layers.{i}."
_TOKENS = "model.embeddings.tok_embeddings.weight"


def weights(config: EttinConfig, head: str) -> WeightMap:
    """Return the rules for a configuration and head."""
    backbone = _backbone(config)
    width = config.hidden_size
    match head:
        case "causal-lm":
            return _language_model(backbone, config)
        case "sequence-classification":
            return backbone.plus(
                *_dense("head", width),
                Rule("classifier.weight", "head.out.weight", (len(config.labels), width)),
            )
    return backbone


def _backbone(config: EttinConfig) -> WeightMap:
    width = config.hidden_size
    inner = config.intermediate_size
    rules = [
        Rule(_TOKENS, "embeddings.tokens.weight", (config.vocab_size, width)),
        Rule("model.embeddings.norm.weight", "embeddings.norm.weight", (width,)),
        Rule(
            tuple(f"{_LAYER}attn.{name}_proj.weight" for name in "qkv"),
            f"{_OURS}attention.qkv.weight",
            (3 * width, width),
            Concat(3),
        ),
        _in_layer("attn.Wo", "attention.out", width, width),
        _in_layer("mlp_norm", "ffn_norm", width),
        _in_layer("mlp.Wi", "ffn.up", 2 * inner, width),
        _in_layer("mlp.Wo", "ffn.down", width, inner),
        Rule("model.final_norm.weight", "final_norm.weight", (width,)),
    ]
    # The first block has no norm before its attention.
    for i in range(1, config.num_layers):
        ours = f"layers.{i}.attention_norm.weight"
        rules.append(Rule(f"model.layers.{i}.attn_norm.weight", ours, (width,)))
    return WeightMap(rules=rules, prefix="model.", counts={"i": config.num_layers})


def _language_model(backbone: WeightMap, config: EttinConfig) -> WeightMap:
    rules = backbone.plus(
        *_dense("lm_head", config.hidden_size),
        Rule("decoder.bias", "head.bias", (config.vocab_size,)),
    )
    if config.tie_embeddings:
        return rules.plus(ties=[TiedAlias("decoder.weight", to=_TOKENS)])
    shape = config.vocab_size, config.hidden_size
    return rules.plus(Rule("decoder.weight", "head.decoder.weight", shape))


def _dense(name: str, width: int) -> list[Rule]:
    """Return the rules of the linear map of a head, and of its norm."""
    return [
        Rule(f"{name}.dense.weight", "head.dense.weight", (width, width)),
        Rule(f"{name}.norm.weight", "head.norm.weight", (width,)),
    ]


def _in_layer(source: str, target: str, *shape: int) -> Rule:
    return Rule(f"{_LAYER}{source}.weight", f"{_OURS}{target}.weight", shape)
